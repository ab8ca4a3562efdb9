"""Every RPC at every door: without the token, with a wrong one, with the right one."""

import asyncio
import ssl
import sys
from pathlib import Path
from typing import Any, cast

import grpc
import pytest
from grpc_health.v1 import health_pb2

from doubles.house import House
from doubles.reached import DOORS, METHODS, behind, call, in_process, request_of
from yarrow.errors import UsageError
from yarrow.service.authentication import load_or_create_token, read_token
from yarrow.service.tls_certificate import load_or_create_certificate
from yarrow.v1 import agent_pb2 as pb

S = grpc.StatusCode
CHECK, SERVING = "/grpc.health.v1.Health/Check", health_pb2.HealthCheckResponse.SERVING
WRONG = (
    (),
    (("authorization", ""),),
    (("authorization", "Bearer "),),
    (("authorization", "Bearer wrong"),),
    (("authorization", "Bearer caf\xe9".encode().decode("latin-1")),),
    (("token", "TOKEN"),),
    (("authorization", "TOKEN"),),
    (("authorization", "Basic TOKEN"),),
    (("authorization", "Bearer TOKENx"),),
    (("authorization", "Bearer TOKEN"), ("authorization", "Bearer wrong")),
    (("authorization", "Bearer TOKEN"), ("origin", "http://evil.example")),
)


@pytest.mark.parametrize("door", DOORS)
async def test_every_rpc_needs_the_right_token(house: House, tmp_path: Path, door: str) -> None:
    async with behind(house, tmp_path / "run", door) as reached, reached.channel() as channel:
        for name, method in METHODS.items():
            request = request_of(method, session_id=f"nobody-{name}")
            for metadata in ((), (("authorization", "Bearer wrong"),)):
                status, sentence = await call(channel, method, request, metadata=metadata)
                assert status is S.UNAUTHENTICATED, name
                assert "token" in sentence
            status, sentence = await call(channel, method, request, metadata=reached.bearer)
            assert status not in (S.UNAUTHENTICATED, S.UNIMPLEMENTED, S.UNKNOWN, S.INTERNAL), (name, sentence)


async def test_the_in_process_channel_needs_no_token(house: House) -> None:
    async with in_process(house) as channel:
        for name, method in METHODS.items():
            status, _ = await call(channel, method, request_of(method, session_id=f"nobody-{name}"))
            assert status not in (S.UNAUTHENTICATED, S.UNIMPLEMENTED)


@pytest.mark.parametrize("metadata", WRONG)
async def test_wrong_tokens_are_rejected(house: House, tmp_path: Path, metadata: tuple[tuple[str, str], ...]) -> None:
    async with behind(house, tmp_path / "run") as reached, reached.channel() as channel:
        given = tuple((key, value.replace("TOKEN", reached.token)) for key, value in metadata)
        request = pb.ListModelsRequest()
        assert (await call(channel, METHODS["ListModels"], request, metadata=reached.bearer))[0] is S.OK
        try:
            status, sentence = await call(channel, METHODS["ListModels"], request, metadata=given)
        except (ValueError, grpc.aio.UsageError, grpc.aio.InternalError):
            return  # the client's library refuses to send it
        assert status is S.UNAUTHENTICATED
        assert reached.token not in sentence
        assert str(tmp_path) not in sentence


async def test_unauthenticated_calls_run_nothing(house: House, tmp_path: Path) -> None:
    async with behind(house, tmp_path / "run") as reached, reached.channel() as channel:
        request = pb.NewSessionRequest(session_id="theirs", cwd=str(house.cwd))
        assert (await call(channel, METHODS["NewSession"], request))[0] is S.UNAUTHENTICATED
        assert not list(house.sessions.rglob("*.jsonl"))


async def status_of(watch: Any) -> int:
    return health_pb2.HealthCheckResponse.FromString(cast("bytes", await watch.read())).status


@pytest.mark.parametrize("door", ["unix", "tls"])
async def test_health_needs_no_token_and_reports_shutdown(house: House, tmp_path: Path, door: str) -> None:
    watched = list[int]()
    async with behind(house, tmp_path / "run", door) as reached:
        channel = reached.channel()
        for name in (b"", b"yarrow.v1.AgentService"):
            request = health_pb2.HealthCheckRequest(service=name.decode()).SerializeToString()
            answer = cast("bytes", await channel.unary_unary(CHECK)(request))
            assert health_pb2.HealthCheckResponse.FromString(answer).status == SERVING
        watch = channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
        watched.append(await status_of(watch))
        # A watcher waits for the next one; unread data can be lost with the connection.
        last = asyncio.ensure_future(status_of(watch))
    watched.append(await last)
    assert watched == [SERVING, health_pb2.HealthCheckResponse.NOT_SERVING]
    watch.cancel()
    await channel.close()


@pytest.mark.parametrize("on", [True, False])
async def test_reflection_is_off_unless_asked_for_and_needs_the_token(house: House, tmp_path: Path, on: bool) -> None:
    from grpc_reflection.v1alpha import reflection_pb2

    path = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
    asked = reflection_pb2.ServerReflectionRequest(list_services="*").SerializeToString()
    async with behind(house, tmp_path / "run", reflection=on) as reached, reached.channel() as channel:

        async def names(**how: object) -> bytes:
            call = channel.stream_stream(path)(iter([asked]), **how)  # pyright: ignore[reportArgumentType]
            return b"".join([answer async for answer in call])

        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await names()
        assert refused.value.code() is (S.UNAUTHENTICATED if on else S.UNIMPLEMENTED)
        if on:
            assert b"yarrow.v1.AgentService" in await names(metadata=reached.bearer)


async def test_a_client_without_a_required_certificate_is_rejected(house: House, tmp_path: Path) -> None:
    async with behind(house, tmp_path / "run", "mtls") as reached:
        pem = (tmp_path / "run" / "tls" / "service.crt").read_bytes()
        options = (("grpc.ssl_target_name_override", "yarrow"),)
        plain = grpc.ssl_channel_credentials(pem)
        async with grpc.aio.secure_channel(reached.address, plain, options=options) as channel:
            request = pb.ListModelsRequest()
            status, _ = await call(channel, METHODS["ListModels"], request, metadata=reached.bearer)
            assert status is S.UNAVAILABLE


async def test_another_certificate_than_the_pinned_one_is_not_trusted(house: House, tmp_path: Path) -> None:
    async with behind(house, tmp_path / "run", "tls") as reached:
        other = grpc.ssl_channel_credentials(load_or_create_certificate(tmp_path / "other").certificate)
        options = (("grpc.ssl_target_name_override", "yarrow"),)
        async with grpc.aio.secure_channel(reached.address, other, options=options) as channel:
            assert (await call(channel, METHODS["ListModels"], pb.ListModelsRequest()))[0] is S.UNAVAILABLE


# ---- the token's file ----


def test_a_token_is_created_once_and_is_private(tmp_path: Path) -> None:
    path = tmp_path / "token"
    token = load_or_create_token(path)
    assert len(token) >= 43
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_or_create_token(path) == read_token(path) == token
    assert load_or_create_token(tmp_path / "other") != token


@pytest.mark.parametrize("kind", ["wide", "link", "empty", "spaces", "folder", "binary", "missing"])
def test_an_insecure_token_file_is_rejected(tmp_path: Path, kind: str) -> None:
    path, real = tmp_path / "token", tmp_path / "real"
    token = load_or_create_token(real)
    contents = {"empty": b"", "spaces": b"a b\n", "binary": b"\xff\xfe"}
    if kind == "link":
        path.symlink_to(real)
    elif kind == "folder":
        path.mkdir()
    elif kind != "missing":
        path.write_bytes(contents.get(kind, token.encode()))
        path.chmod(0o640 if kind == "wide" else 0o600)
    with pytest.raises(UsageError, match=str(path)) as refused:
        read_token(path)
    assert token not in refused.value.message
    if kind != "missing":
        with pytest.raises(UsageError):
            load_or_create_token(path)


# ---- what a web page could send (X-07) ----


async def answer_to(address: str, sent: bytes, trusted: Path) -> bytes:
    if address.startswith("unix:"):
        reader, writer = await asyncio.open_unix_connection(address.removeprefix("unix:"))
    else:
        host, _, port = address.rpartition(":")
        browser = ssl.create_default_context(cafile=str(trusted))
        browser.set_alpn_protocols(["http/1.1"])
        try:
            reader, writer = await asyncio.open_connection(host, int(port), ssl=browser, server_hostname="yarrow")
        except ssl.SSLError:
            return b""  # nothing but HTTP/2 is spoken
    writer.write(sent)
    await writer.drain()
    try:
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize("door", ["unix", "tls"])
@pytest.mark.parametrize("header", ["Host: evil.example:80", "Origin: http://evil.example"])
async def test_a_browser_page_gets_no_answer(house: House, tmp_path: Path, door: str, header: str) -> None:
    async with behind(house, tmp_path / "run", door) as reached:
        body = pb.NewSessionRequest(session_id="theirs", cwd=str(house.cwd)).SerializeToString()
        framed = b"\0" + len(body).to_bytes(4, "big") + body
        head = f"POST /yarrow.v1.AgentService/NewSession HTTP/1.1\r\n{header}\r\nContent-Type: application/grpc-web\r\n"
        head += f"Authorization: Bearer {reached.token}\r\nContent-Length: {len(framed)}\r\n\r\n"
        answer = await answer_to(reached.address, head.encode() + framed, tmp_path / "run/tls/service.crt")
        assert b"HTTP/1.1 200" not in answer
        assert not list(house.sessions.rglob("*.jsonl"))


@pytest.mark.parametrize("door", ["unix", "tls"])
async def test_a_browser_preflight_is_denied(house: House, tmp_path: Path, door: str) -> None:
    async with behind(house, tmp_path / "run", door) as reached:
        head = "OPTIONS /yarrow.v1.AgentService/NewSession HTTP/1.1\r\nHost: x\r\nOrigin: http://evil.example\r\n"
        head += "Access-Control-Request-Method: POST\r\n\r\n"
        answer = await answer_to(reached.address, head.encode(), tmp_path / "run/tls/service.crt")
        assert b"access-control" not in answer.lower()
        assert b"HTTP/1.1 20" not in answer


async def test_a_foreign_authority_header_needs_the_token(house: House, tmp_path: Path) -> None:
    authority = ("grpc.default_authority", "evil.example:80")
    async with behind(house, tmp_path / "run") as reached, reached.channel(authority) as channel:
        request = pb.NewSessionRequest(session_id="theirs", cwd=str(house.cwd))
        assert (await call(channel, METHODS["NewSession"], request))[0] is S.UNAUTHENTICATED
        assert not list(house.sessions.rglob("*.jsonl"))


def test_creating_a_certificate_without_the_extra_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(UsageError, match=r"'\.\[tls\]'.*--tls-cert"):
        load_or_create_certificate(tmp_path / "tls")
    assert not list((tmp_path / "tls").iterdir())
