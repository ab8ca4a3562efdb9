"""An https server behind a proxy is spoken to in TLS of its own, whatever words the proxy opens the way with."""

import asyncio
import gc
from typing import Any

import pytest
from authority import Authority
from behind_proxy import BASIC, QUOTED, URL, behind, failure, fetch, refused
from byte_script_server import Do, Step, answer, chunked, serve, turns
from relay_proxy import ESTABLISHED, relay

from yarrow.errors import Code, ProviderError
from yarrow.provider.http.client import HttpRequest

pytestmark = pytest.mark.usefixtures("trusted")
OK = answer(b"ok")
BIG = bytes(range(256)) * 8192


async def test_requests_share_a_tunnel_and_only_the_proxy_gets_the_password(vouched: Authority) -> None:
    script = [Do.READ, OK, Do.READ, chunked(BIG, BIG), Do.READ, answer(b"cut")[:-1], Do.CLOSE]
    async with (
        serve(script, tls=vouched.context) as server,
        relay(server.port) as proxy,
        behind(f"http://{QUOTED}@{proxy.authority}") as client,
    ):
        assert await fetch(client) == b"ok"
        assert await fetch(client, body=BIG) == BIG + BIG
        with pytest.raises(ProviderError, match=r"model.test:8443 \(via the proxy .* in the middle") as caught:
            await fetch(client)
        assert caught.value.code is Code.STREAM_TRUNCATED
    assert proxy.heads == [
        b"CONNECT model.test:8443 HTTP/1.1\r\nhost: model.test:8443\r\nproxy-authorization: Basic %b\r\n\r\n" % BASIC
    ]
    [visit] = server.visits
    assert visit.requests[0] == (
        b"POST /v1 HTTP/1.1\r\nhost: model.test:8443\r\naccept-encoding: identity\r\ncontent-length: 0\r\n\r\n"
    )
    assert all(b"roxy-" not in request for request in visit.requests)


async def test_tls_to_the_proxy_and_tls_to_the_server_in_it(vouched: Authority) -> None:
    script = [Do.READ, OK, Do.READ, chunked(BIG, BIG), Do.READ, b"HTTP/1.1 200 OK\r\n\r\n", BIG, Do.CLOSE]
    async with (
        serve(script, tls=vouched.context) as server,
        relay(server.port, tls=vouched.context) as proxy,
        behind(f"https://{proxy.authority}") as client,
    ):
        assert await fetch(client) == b"ok"
        assert await fetch(client, body=BIG) == BIG + BIG
        assert await fetch(client) == BIG
    assert len(proxy.heads) == len(server.visits) == 1


async def test_a_plain_server_is_reached_through_a_tls_proxy(vouched: Authority) -> None:
    async with (
        serve([Do.READ, OK], tls=vouched.context) as proxy,
        behind(f"https://127.0.0.1:{proxy.port}", "http_proxy") as client,
    ):
        assert await fetch(client, "http://model.test/") == b"ok"
    assert proxy.visits[0].requests[0].startswith(b"POST http://model.test/ HTTP/1.1\r\nhost: model.test\r\n")


async def test_a_tunnel_serves_only_one_server(vouched: Authority) -> None:
    async with (
        serve([Do.READ, OK, Do.READ, OK], tls=vouched.context) as server,
        relay(server.port) as proxy,
        behind(proxy.authority) as client,
    ):
        for host in ("model.test", "other.test", "model.test:444", "model.test"):
            assert await fetch(client, f"https://{host}/") == b"ok"
    asked = [head.split()[1] for head in proxy.heads]
    assert asked == [b"model.test:443", b"other.test:443", b"model.test:444"]
    assert [len(visit.requests) for visit in server.visits] == [2, 1, 1]


async def test_a_407_inside_the_tunnel_is_the_servers(vouched: Authority) -> None:
    script = [Do.READ, answer(b"who?", status=b"407 Who")]
    async with (
        serve(script, tls=vouched.context) as server,
        relay(server.port) as proxy,
        behind(proxy.authority) as client,
        client.send(HttpRequest("GET", URL)) as response,
    ):
        assert (response.status, await response.read()) == (407, b"who?")


GIVEN = {
    "1.0": b"HTTP/1.0 200 OK\r\n\r\n",
    "no reason": b"HTTP/1.1 200\r\n\r\n",
    "other 2xx": b"HTTP/1.1 204 No Content\r\nvia: 1.1 p\r\n\r\n",
    "interim": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Wait\r\nx: 1\r\n\r\n" + ESTABLISHED,
    "length": b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
    "meaningless length": b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n",
    "meaningless chunks": b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n",
}


@pytest.mark.parametrize("name", GIVEN)
async def test_any_connect_response_at_any_byte_boundary_is_parsed(vouched: Authority, name: str) -> None:
    raw = GIVEN[name]
    trickle = [raw[i : i + 1] for i in range(len(raw))]
    async with serve([Do.READ, OK], tls=vouched.context) as server:
        for pieces in (*([raw[:cut], raw[cut:]] for cut in range(1, len(raw), 7)), trickle):
            async with relay(server.port, *pieces) as proxy, behind(proxy.authority) as client:
                assert await fetch(client) == b"ok"


@pytest.mark.parametrize("end", [Do.CLOSE, Do.RESET])
async def test_a_server_behind_a_proxy_that_closes_during_the_handshake(end: Do) -> None:
    error, _ = await refused(Do.READ, ESTABLISHED, end)
    assert (error.code, error.retryable) == (Code.UNREACHABLE, True)
    assert error.message.startswith("cannot connect to model.test:8443 (via the proxy 127.0.0.1:")


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("end", [Do.CLOSE, Do.RESET, b"hello"])
async def test_a_server_behind_a_proxy_that_closes_after_the_handshake(
    vouched: Authority, scheme: str, end: Step
) -> None:
    outer = vouched.context if scheme == "https" else None
    async with (
        serve([end, Do.CLOSE], tls=vouched.context) as server,
        relay(server.port, tls=outer) as proxy,
        behind(f"{scheme}://{proxy.authority}") as client,
    ):
        error = await failure(client)
        assert "model.test:8443 (via the proxy" in error.message
        await asyncio.wait_for(client.close(), 5)


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("end", [Do.CLOSE, Do.RESET, b"hello"])
@pytest.mark.parametrize("kept", [True, False])
async def test_a_server_behind_a_proxy_that_closes_before_the_request(
    vouched: Authority, monkeypatch: pytest.MonkeyPatch, scheme: str, end: Step, *, kept: bool
) -> None:
    loop = asyncio.get_running_loop()
    upgrade = loop.start_tls
    broken: list[object] = []
    loop.set_exception_handler(lambda _, context: broken.append(context))

    async def busy(under: Any, connection: Any, *args: Any, **more: Any) -> Any:
        transport = await upgrade(under, connection, *args, **more)
        await connection.closed
        return transport if kept else None

    monkeypatch.setattr(loop, "start_tls", busy)
    outer = vouched.context if scheme == "https" else None
    async with (
        serve([end], tls=vouched.context) as server,
        relay(server.port, tls=outer) as proxy,
        behind(f"{scheme}://{proxy.authority}") as client,
    ):
        error = await failure(client)
        assert (error.code, error.retryable) == (Code.UNREACHABLE, True)
        assert "model.test:8443 (via the proxy" in error.message
        await asyncio.wait_for(client.close(), 5)
        assert not broken


async def test_an_untrusted_certificate_behind_a_proxy_names_the_proxy(
    vouched: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    async with (
        serve([Do.READ, OK], tls=vouched.context) as server,
        relay(server.port) as proxy,
        behind(proxy.authority) as client,
    ):
        error = await failure(client)
    assert error.message.startswith(
        f"cannot verify the TLS certificate of model.test:8443 (via the proxy {proxy.authority})"
    )
    assert not error.retryable
    assert not server.visits


async def test_an_untrusted_proxy_certificate_is_rejected(vouched: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    async with relay(1, tls=vouched.context) as proxy, behind(f"https://{QUOTED}@{proxy.authority}") as client:
        error = await failure(client)
    assert error.message.startswith(
        f"cannot verify the TLS certificate of the proxy {proxy.authority} (from https_proxy)"
    )
    assert not proxy.heads


async def test_a_certificate_for_another_name_behind_the_proxy(vouched: Authority) -> None:
    async with (
        serve([Do.READ, OK], tls=vouched.context) as server,
        relay(server.port) as proxy,
        behind(proxy.authority) as client,
    ):
        with pytest.raises(ProviderError, match=r"not valid for 'evil\.test'"):
            await fetch(client, "https://evil.test/")


STAGES: dict[str, list[Step]] = {
    "before the answer": [Do.READ],
    "in the answer": [Do.READ, ESTABLISHED[:9]],
    "in the handshake": [Do.READ, ESTABLISHED],
    "in the handshake with the proxy": [],
}


@pytest.mark.parametrize("stage", STAGES)
async def test_cancel_closes_and_leaves_no_task(stage: str) -> None:
    before = asyncio.all_tasks()
    scheme = "https" if "with the proxy" in stage else "http"
    async with serve(STAGES[stage]) as proxy, behind(f"{scheme}://127.0.0.1:{proxy.port}") as client:
        tasks = [asyncio.create_task(fetch(client)) for _ in range(3)]
        await proxy.visit(2)
        await turns(50)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert all(task.cancelled() for task in tasks)
        for visit in proxy.visits:
            await visit.gone.wait()
        await proxy.stop()
    await turns()
    assert asyncio.all_tasks() == before
    gc.collect()


async def test_cancel_in_the_body_closes_the_tunnel(vouched: Authority) -> None:
    async with (
        serve([Do.READ, chunked(b"x", end=b"")], tls=vouched.context) as server,
        relay(server.port) as proxy,
        behind(proxy.authority) as client,
    ):
        task = asyncio.create_task(fetch(client))
        await (await server.visit(0)).asked.wait()
        await turns(50)
        task.cancel()
        await server.visits[0].gone.wait()
