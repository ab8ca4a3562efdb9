"""An unreachable server is reported in plain words, and a second address is tried."""

import asyncio
import socket
from collections.abc import Generator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from authority import Authority
from byte_script_server import Do, answer, chunked, serve

from yarrow.errors import Code, ProviderError
from yarrow.provider.http import connection
from yarrow.provider.http.client import HttpClient, HttpRequest, Timeouts

OK = answer(b"ok")
BIG = bytes(range(256)) * 8192


async def failure(client: HttpClient, url: str, connect: float = 10) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        async with client.send(HttpRequest("GET", url, timeouts=Timeouts(connect=connect))):
            pass
    assert caught.value.code is Code.UNREACHABLE
    return caught.value


async def fetch(client: HttpClient, url: str) -> bytes:
    async with client.send(HttpRequest("GET", url)) as response:
        return b"".join([piece async for piece in response])


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.fixture
def full_port() -> Generator[int]:
    """A port where a connection is neither accepted nor refused, because earlier ones are not accepted."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(server.getsockname())
        yield server.getsockname()[1]


def resolve_to(monkeypatch: pytest.MonkeyPatch, *ports: int, second_family: int = 0) -> None:
    """Let any name have several addresses; they are ports, because loopback has one address everywhere."""
    addresses: list[object] = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port)) for port in ports]
    if second_family:
        mapped = ("::ffff:127.0.0.1", second_family, 0, 0)
        addresses.append((socket.AF_INET6, socket.SOCK_STREAM, 6, "", mapped))

    def resolve(*_args: object, **_more: object) -> object:
        return addresses

    monkeypatch.setattr(socket, "getaddrinfo", resolve)


async def test_a_refused_connection_is_reported(client: HttpClient, closed_port: int) -> None:
    error = await failure(client, f"http://127.0.0.1:{closed_port}/v1?key=secret")
    assert error.message == f"cannot connect to 127.0.0.1:{closed_port}: connection refused"
    # No process listens on this machine: the error comes at once, and waiting is useless.
    assert error.retry_after == connection.REFUSED_RETRY_SECONDS
    assert error.retryable


async def test_a_refusal_by_every_address_is_reported_once(
    client: HttpClient, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        second = other.getsockname()[1]
    resolve_to(monkeypatch, closed_port, second)
    assert (await failure(client, "http://model.test")).message == "cannot connect to model.test:80: connection refused"


async def test_an_unreachable_first_address_costs_a_short_delay(
    client: HttpClient, full_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_ATTEMPT_SECONDS", 0.05)
    async with serve([Do.READ, OK]) as server:
        resolve_to(monkeypatch, full_port, server.port)
        assert await fetch(client, "http://model.test") == b"ok"
        assert b"\r\nhost: model.test\r\n" in server.visits[0].requests[0]


async def test_after_an_unreachable_address_the_other_family_is_tried(
    client: HttpClient, closed_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve([Do.READ, answer(b"same")]) as same, serve([Do.READ, answer(b"other")]) as other:
        resolve_to(monkeypatch, closed_port, same.port, second_family=other.port)
        assert await fetch(client, "http://model.test") == b"other"


async def test_a_connection_timeout_is_reported(client: HttpClient, full_port: int) -> None:
    error = await failure(client, f"http://127.0.0.1:{full_port}", connect=0.05)
    assert error.message.endswith(": no connection within 0.05 s")
    assert error.retryable


async def test_an_unknown_host_is_reported(client: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_args: object, **_more: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    error = await failure(client, "http://nowhere.test:81")
    expected = "cannot connect to nowhere.test:81: name resolution failed (Name or service not known)"
    assert (error.message, error.retryable) == (expected, True)


@pytest.mark.parametrize("host", ["a..b", "a" * 64 + ".test"])
async def test_an_invalid_host_name_is_reported(client: HttpClient, host: str) -> None:
    assert "name resolution failed" in (await failure(client, f"http://{host}/")).message


async def test_tls_carries_requests_on_one_connection(client: HttpClient, trusted: Authority) -> None:
    script = [Do.READ, OK, Do.READ, chunked(BIG, BIG), Do.READ, answer(b"cut")[:-1], Do.CLOSE]
    async with serve(script, tls=trusted.context) as server:
        url = f"https://127.0.0.1:{server.port}/"
        assert await fetch(client, url) == b"ok"
        assert await fetch(client, url) == BIG + BIG
        with pytest.raises(ProviderError) as caught:
            await fetch(client, url)
        assert caught.value.code is Code.STREAM_TRUNCATED
        assert len(server.visits) == 1


async def test_a_tls_body_until_close_reaches_a_slow_reader_completely(client: HttpClient, trusted: Authority) -> None:
    async with serve([Do.READ, b"HTTP/1.1 200 OK\r\n\r\n", BIG, Do.CLOSE], tls=trusted.context) as server:
        body = bytearray()
        async with client.send(HttpRequest("GET", f"https://127.0.0.1:{server.port}/")) as response:
            async for piece in response:
                body += piece
                await asyncio.sleep(0.001)
        assert body == BIG


async def test_abandoning_a_tls_response_closes_it(client: HttpClient, trusted: Authority) -> None:
    async with serve([Do.READ, chunked(b"x", end=b"")], tls=trusted.context) as server:
        async with client.send(HttpRequest("GET", f"https://127.0.0.1:{server.port}/")) as response:
            async for _ in response:
                break
        await server.visits[0].gone.wait()


async def test_an_untrusted_certificate_is_rejected(client: HttpClient, vouched: Authority) -> None:
    async with serve([Do.READ, OK], tls=vouched.context) as server:
        error = await failure(client, f"https://127.0.0.1:{server.port}/")
        assert f"cannot verify the TLS certificate of 127.0.0.1:{server.port}: self" in error.message
        assert "SSL_CERT_FILE" in error.message
        assert not error.retryable
        assert not server.visits


async def test_a_missing_ca_file_is_reported(
    client: HttpClient, vouched: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/ca.pem")
    async with serve([Do.READ, OK], tls=vouched.context) as server:
        error = await failure(client, f"https://127.0.0.1:{server.port}/")
        assert error.message.endswith("SSL_CERT_FILE is '/nowhere/ca.pem', which cannot be read: set it to a PEM file")


async def test_a_certificate_for_another_name_is_rejected(
    client: HttpClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Authority(tmp_path, "DNS:other.test")
    monkeypatch.setenv("SSL_CERT_FILE", str(other.pem))
    async with serve([Do.READ, OK], tls=other.context) as server:
        error = await failure(client, f"https://127.0.0.1:{server.port}/")
        assert error.message.endswith("not valid for '127.0.0.1'. Use the name in the certificate in the URL")
        assert not error.retryable


async def test_https_to_a_plain_http_server_is_reported(client: HttpClient) -> None:
    async with serve([b"HTTP/1.1 400 Bad Request\r\n\r\n"]) as server:
        error = await failure(client, f"https://127.0.0.1:{server.port}/")
        assert "is it http instead of https?" in error.message
        assert error.retryable


@pytest.mark.parametrize("end", [Do.CLOSE, Do.RESET])
async def test_a_server_that_closes_during_the_handshake(client: HttpClient, end: Do) -> None:
    async with serve([end]) as server:
        error = await failure(client, f"https://127.0.0.1:{server.port}/")
        assert error.message.startswith(f"cannot connect to 127.0.0.1:{server.port}: ")
        assert error.retryable


async def test_a_hanging_handshake_times_out(client: HttpClient) -> None:
    async with serve([Do.STALL]) as server:
        error = await failure(client, f"https://127.0.0.1:{server.port}/", connect=0.05)
        assert "no connection within 0.05 s" in error.message


async def test_a_server_that_closes_before_the_request(client: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    connect = loop.create_connection

    async def busy(*args: Any, **more: Any) -> Any:
        transport, protocol = await connect(*args, **more)
        await protocol.closed
        return transport, protocol

    monkeypatch.setattr(loop, "create_connection", busy)
    async with serve([Do.CLOSE]) as server:
        error = await failure(client, server.url)
        assert error.message == f"127.0.0.1:{server.port} closed the connection before answering"
        assert error.retryable
