"""Connections are kept, shared, bounded and never trusted longer than they deserve."""

import asyncio
import socket
from contextlib import nullcontext
from typing import Any

import pytest
from byte_script_server import ByteServer, Do, answer, chunked, serve, turns

from yarrow.errors import Code, ProviderError
from yarrow.provider.http import connection
from yarrow.provider.http.client import HttpClient, HttpRequest, Timeouts

OK = answer(b"ok")


async def ask(client: HttpClient, server: ByteServer | str, path: str = "", *, wait: float = 10) -> bytes:
    url = server if isinstance(server, str) else server.url
    request = HttpRequest("POST", url + path, body=b"question", timeouts=Timeouts(first_byte=wait))
    async with client.send(request) as response:
        return b"".join([piece async for piece in response])


@pytest.mark.parametrize(
    "first",
    [OK, chunked(b"ok"), b"HTTP/1.1 204 None\r\n\r\n", b"HTTP/1.0 200 OK\r\nconnection: keep-alive\r\n" + OK[17:]],
)
async def test_a_fully_read_response_frees_its_connection(client: HttpClient, first: bytes) -> None:
    async with serve([Do.READ, first, Do.READ, OK, Do.READ, OK]) as server:
        for path in ("/a", "/b", "/c"):
            await ask(client, server, path)
        (visit,) = server.visits
        assert [request.split()[1] for request in visit.requests] == [b"/v1/a", b"/v1/b", b"/v1/c"]


@pytest.mark.parametrize(
    "first",
    [
        answer(b"ok", b"connection: close"),
        b"HTTP/1.0 200 OK\r\n" + OK[17:],
        OK + b"HTTP/1.1 200 OK\r\n",
        OK + b"garbage",
        chunked(b"ok") + b"x",
        answer(b"ok", b"connection: close") + b"garbage",
    ],
)
async def test_a_connection_that_cannot_be_reused_is_closed(client: HttpClient, first: bytes) -> None:
    async with serve([Do.READ, first], [Do.READ, OK]) as server:
        assert await ask(client, server) == b"ok"
        await server.visits[0].gone.wait()
        assert await ask(client, server) == b"ok"
        assert len(server.visits) == 2


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil", b"\r\n", b"x"])
async def test_bytes_on_an_idle_connection_close_it(client: HttpClient, garbage: bytes) -> None:
    now = asyncio.Event()
    async with serve([Do.READ, OK, now, garbage], [Do.READ, OK]) as server:
        assert await ask(client, server) == b"ok"
        now.set()
        await server.visits[0].gone.wait()
        assert await ask(client, server) == b"ok"
        assert len(server.visits) == 2


@pytest.mark.parametrize("end", [Do.CLOSE, Do.RESET])
async def test_an_idle_connection_closed_by_the_server_is_replaced(client: HttpClient, end: Do) -> None:
    async with serve([Do.READ, OK, end], [Do.READ, OK]) as server:
        assert await ask(client, server) == b"ok"
        await server.visits[0].gone.wait()
        await turns()
        assert await ask(client, server) == b"ok"
        assert [len(visit.requests) for visit in server.visits] == [1, 1]


@pytest.mark.parametrize("end", [Do.CLOSE, Do.RESET])
async def test_a_request_is_retried_once_if_the_server_closes_during_the_write(client: HttpClient, end: Do) -> None:
    async with serve([Do.READ, OK, Do.READ, end], [Do.READ, OK], [Do.READ, end]) as server:
        await ask(client, server, "/1")
        assert await ask(client, server, "/2") == b"ok"
        assert server.visits[0].requests[1] == server.visits[1].requests[0]
    async with serve([Do.READ, OK, Do.READ, end], [Do.READ, end], [Do.READ, OK]) as server:
        await ask(client, server)
        with pytest.raises(ProviderError) as caught:
            await ask(client, server)
        assert (caught.value.code, caught.value.retryable) == (Code.UNREACHABLE, True)
        assert len(server.visits) == 2


async def test_a_request_is_not_retried_once_an_answer_started(client: HttpClient) -> None:
    async with serve([Do.READ, OK, Do.READ, b"HTTP/1.1 2", Do.CLOSE], [Do.READ, OK]) as server:
        await ask(client, server)
        with pytest.raises(ProviderError) as caught:
            await ask(client, server)
        assert caught.value.code is Code.UNREACHABLE
        assert len(server.visits) == 1


async def test_a_request_is_not_retried_because_the_server_is_slow(client: HttpClient) -> None:
    async with serve([Do.READ, OK, Do.READ], [Do.READ, OK]) as server:
        await ask(client, server)
        with pytest.raises(ProviderError) as caught:
            await ask(client, server, wait=0.02)
        assert caught.value.code is Code.STREAM_STALLED
        assert len(server.visits) == 1


async def test_a_closed_connection_discards_older_idle_ones(client: HttpClient) -> None:
    both = asyncio.Event()
    async with serve(*[[Do.READ, both, OK, Do.READ, Do.CLOSE]] * 2, [Do.READ, OK]) as server:
        first = [asyncio.create_task(ask(client, server)) for _ in range(2)]
        await server.visit(1)
        both.set()
        assert [await task for task in first] == [b"ok"] * 2
        assert await ask(client, server) == b"ok"
        await server.visits[0].gone.wait()
        await server.visits[1].gone.wait()
        assert sorted(len(visit.requests) for visit in server.visits) == [1, 1, 2]


async def test_a_connection_that_was_idle_too_long_is_replaced(
    client: HttpClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_IDLE_SECONDS", -1.0)
    async with serve([Do.READ, OK, Do.READ, OK]) as server:
        await ask(client, server)
        await ask(client, server)
        assert len(server.visits) == 2
        await server.visits[0].gone.wait()


@pytest.mark.parametrize("way", ["break", "error", "read less", "ignore the body"])
async def test_abandoning_a_response_closes_the_connection(client: HttpClient, way: str) -> None:
    async with serve([Do.READ, chunked(b"first", end=b"")], [Do.READ, OK]) as server:
        with pytest.raises(ZeroDivisionError) if way == "error" else nullcontext():
            async with client.send(HttpRequest("GET", server.url)) as response:
                if way == "read less":
                    assert await response.read(3) == b"fir"
                elif way != "ignore the body":
                    async for _ in response:
                        if way == "error":
                            raise ZeroDivisionError
                        break
        await server.visits[0].gone.wait()
        assert await ask(client, server) == b"ok"


async def test_an_unread_body_closes_the_connection_even_if_it_has_arrived(client: HttpClient) -> None:
    async with serve([Do.READ, OK, Do.READ, OK]) as server:
        async with client.send(HttpRequest("GET", server.url)):
            pass
        await server.visits[0].gone.wait()


async def test_an_abandoned_response_cannot_be_read(client: HttpClient) -> None:
    async with serve([Do.READ, chunked(b"first", end=b"")], [Do.READ, OK, Do.READ, OK]) as server:
        async with client.send(HttpRequest("GET", server.url)) as left:
            await anext(aiter(left))
        async with client.send(HttpRequest("GET", server.url)) as read:
            await read.read()
        async with client.send(HttpRequest("GET", server.url)):
            assert await read.read() == b"", "not the body of the request that came after on the same connection"
            with pytest.raises(ProviderError):
                await left.read()


async def test_parallel_requests_get_their_own_answers(client: HttpClient) -> None:
    together = asyncio.Event()
    scripts = [[Do.READ, together, answer(b"%d" % number)] for number in range(20)]
    async with serve(*scripts) as server:
        tasks = [asyncio.create_task(ask(client, server)) for _ in scripts]
        for number in range(20):
            await (await server.visit(number)).asked.wait()
        together.set()
        assert {await task for task in tasks} == {b"%d" % number for number in range(20)}


async def test_connections_are_bounded_and_further_requests_wait_in_order(client: HttpClient) -> None:
    limit, free = connection.MAX_CONNECTIONS, asyncio.Event()
    async with serve([Do.READ, free, OK, *[Do.READ, OK] * 10]) as server:
        tasks = [asyncio.create_task(ask(client, server, f"/{number}")) for number in range(limit + 8)]
        await (await server.visit(limit - 1)).asked.wait()
        await turns(50)
        assert len(server.visits) == limit
        for impatient in tasks[-3:]:
            impatient.cancel()
        await turns()
        free.set()
        assert [await task for task in tasks[:-3]] == [b"ok"] * (limit + 5)
        assert len(server.visits) == limit
        assert sum(len(visit.requests) for visit in server.visits) == limit + 5


async def test_servers_do_not_share_connections_or_limits(client: HttpClient) -> None:
    async with serve([Do.READ, answer(b"one")]) as one, serve([Do.READ, answer(b"two")]) as two:
        assert [await ask(client, one), await ask(client, two)] == [b"one", b"two"]


async def test_close_ends_active_requests_and_rejects_further_ones(client: HttpClient) -> None:
    half = chunked(b"first", end=b"")
    async with serve([Do.READ, OK], [Do.READ], [Do.READ, half]) as server:
        async with client.send(HttpRequest("GET", server.url)) as idle:
            waiting = asyncio.create_task(ask(client, server))
            await (await server.visit(1)).asked.wait()
            reading = asyncio.create_task(ask(client, server))
            await (await server.visit(2)).asked.wait()
            await turns()
            assert await idle.read() == b"ok"
        await client.close()
        for visit in server.visits:
            await visit.gone.wait()
        for task in (waiting, reading):
            with pytest.raises(ProviderError, match="client closed") as caught:
                await task
            assert (caught.value.code, caught.value.retryable) == (Code.UNREACHABLE, False)
        with pytest.raises(ProviderError, match="client is closed"):
            await ask(client, server)
        assert len(server.visits) == 3


async def test_close_returns_when_the_sockets_are_closed() -> None:
    loop, client = asyncio.get_running_loop(), HttpClient()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        asking = asyncio.create_task(ask(client, f"http://127.0.0.1:{listener.getsockname()[1]}"))
        accepted, _ = await loop.sock_accept(listener)
        with accepted:
            await loop.sock_recv(accepted, 1000)
            await loop.sock_sendall(accepted, OK)
            await asking
            await client.close()
            # Without giving the loop another turn.
            accepted.settimeout(1)
            assert accepted.recv(1) == b""


async def test_close_while_connecting(client: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    resolve, asked, go = loop.getaddrinfo, asyncio.Event(), asyncio.Event()

    async def slowly(*args: Any, **more: Any) -> Any:
        asked.set()
        await go.wait()
        return await resolve(*args, **more)

    monkeypatch.setattr(loop, "getaddrinfo", slowly)
    async with serve([Do.READ]) as server:
        asking = asyncio.create_task(ask(client, server))
        await asked.wait()
        await client.close()
        go.set()
        with pytest.raises(ProviderError, match="client is closed"):
            await asking
        await (await server.visit(0)).gone.wait()
        assert not server.visits[0].requests
