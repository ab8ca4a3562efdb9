"""Silence has limits, each named in its error; slowness on our side has none, and a slow reader slows the server."""

import asyncio
from typing import Protocol

import pytest
from byte_script_server import ByteServer, Do, answer, chunked, serve, turns

from yarrow.errors import Code, ProviderError
from yarrow.provider.http.client import HttpClient, HttpRequest, Timeouts

HALF = chunked(b"first", end=b"")
BIG = 32 * 1024 * 1024


class Clock(Protocol):
    """See conftest.py."""

    async def advance(self, seconds: float) -> None: ...


async def ask(client: HttpClient, server: ByteServer, timeouts: Timeouts, body: bytes = b"") -> bytes:
    async with client.send(HttpRequest("POST", server.url, body=body, timeouts=timeouts)) as response:
        return b"".join([piece async for piece in response])


async def stalled(asking: asyncio.Task[bytes], clock: Clock, limit: float, words: str) -> None:
    """The limit, and nothing less, ends the request with an error that says so."""
    await clock.advance(limit - 5)
    assert not asking.done()
    await clock.advance(10)
    with pytest.raises(ProviderError, match=f"127.0.0.1:[0-9]+ .* (for|within) {limit:g} s.*{words}") as caught:
        await asking
    assert (caught.value.code, caught.value.retryable) == (Code.STREAM_STALLED, True)


@pytest.mark.parametrize("script", [(), (b"HTTP/1.1 100 Continue\r\n\r\n",), (b"\r\n",)])
async def test_an_answer_timeout_is_reported(client: HttpClient, clock: Clock, script: tuple[bytes, ...]) -> None:
    async with serve([Do.READ, *script]) as server:
        asking = asyncio.create_task(ask(client, server, Timeouts()))
        await (await server.visit(0)).asked.wait()
        await stalled(asking, clock, 300, "firstByteTimeout")
        await server.visits[0].gone.wait()


@pytest.mark.parametrize("cut", [1, 20, len(HALF) - 7, len(HALF)])
async def test_silence_within_an_answer_times_out(client: HttpClient, clock: Clock, cut: int) -> None:
    async with serve([Do.READ, HALF[:cut]]) as server:
        asking = asyncio.create_task(ask(client, server, Timeouts()))
        await (await server.visit(0)).asked.wait()
        await stalled(asking, clock, 120, "idleTimeout")
        await server.visits[0].gone.wait()


async def test_a_server_that_does_not_read_the_request(client: HttpClient, clock: Clock) -> None:
    async with serve([Do.STALL]) as server:
        asking = asyncio.create_task(ask(client, server, Timeouts(first_byte=None), bytes(BIG)))
        await server.visit(0)
        await stalled(asking, clock, 30, "")


async def test_an_early_answer_is_timed_as_an_answer(client: HttpClient, clock: Clock) -> None:
    async with serve([HALF, Do.READ]) as server:
        asking = asyncio.create_task(ask(client, server, Timeouts(first_byte=None), bytes(BIG)))
        await (await server.visit(0)).asked.wait()
        await stalled(asking, clock, 120, "idleTimeout")


async def test_no_timeout_waits_indefinitely(client: HttpClient, clock: Clock) -> None:
    answers, ends = asyncio.Event(), asyncio.Event()
    async with serve([Do.READ, answers, HALF, ends, b"0\r\n\r\n"]) as server:
        asking = asyncio.create_task(ask(client, server, Timeouts(first_byte=None, idle=None)))
        await (await server.visit(0)).asked.wait()
        for event in (answers, ends):
            await clock.advance(100_000)
            event.set()
        assert await asking == b"first"


@pytest.mark.parametrize(
    ("timeouts", "begin", "life", "end", "body"),
    [
        (Timeouts(idle=100), HALF, [b"2\r\n:\n\r\n"], b"0\r\n\r\n", b"first" + b":\n" * 8),
        (Timeouts(idle=100), b"", [bytes([byte]) for byte in b"HTTP/1.1"], b" 204 OK\r\n\r\n", b""),
        (Timeouts(first_byte=100, idle=1), b"", [b"HTTP/1.1 102 Proc", b"essing\r\n\r\n"], answer(b"late"), b"late"),
    ],
    ids=["comments", "head byte by byte", "interim responses"],
)
async def test_each_received_byte_restarts_the_timeout(
    client: HttpClient, clock: Clock, timeouts: Timeouts, begin: bytes, life: list[bytes], end: bytes, body: bytes
) -> None:
    beats = [asyncio.Event() for _ in range(8)]
    pulse = [[beat, life[number]] if len(life) == 8 else [beat, *life] for number, beat in enumerate(beats)]
    async with serve([Do.READ, *([begin] if begin else []), *(step for beat in pulse for step in beat), end]) as server:
        asking = asyncio.create_task(ask(client, server, timeouts))
        await (await server.visit(0)).asked.wait()
        for beat in beats:
            await clock.advance(60)
            beat.set()
        assert await asking == body


async def test_the_write_timeout_measures_stalls_not_size(client: HttpClient, clock: Clock) -> None:
    taken = asyncio.Event()
    async with serve([taken, answer(b"thanks")]) as server:
        asking = asyncio.create_task(ask(client, server, Timeouts(), bytes(BIG)))
        visit = await server.visit(0)
        for _ in range(15):
            await clock.advance(20)
            await visit.reader.readexactly(BIG // 16)
        taken.set()
        assert await asking == b"thanks"


async def test_an_early_answer_stops_the_upload_and_closes_the_connection(client: HttpClient) -> None:
    early = answer(b"too large", status=b"413 No")
    async with serve([early, Do.STALL], [Do.READ, answer(b"ok")]) as server:
        assert await ask(client, server, Timeouts(), bytes(BIG)) == b"too large"
        assert await ask(client, server, Timeouts()) == b"ok"
        assert len(server.visits) == 2


async def test_a_paused_reader_pauses_the_server_without_a_timeout(client: HttpClient, clock: Clock) -> None:
    body = bytes(BIG)
    async with serve([Do.READ, answer(body), Do.READ, answer(b"again")]) as server:
        async with client.send(HttpRequest("GET", server.url)) as response:
            transport = server.visits[0].writer.transport
            unsent = -1
            while unsent != (unsent := transport.get_write_buffer_size()):
                await turns(50)
            assert unsent > BIG // 2, "kernel buffers and ours hold the rest"
            for _ in range(3):
                await clock.advance(100)
            assert await response.read(BIG) == body
        assert await ask(client, server, Timeouts()) == b"again"
        assert len(server.visits) == 1


async def test_a_large_body_streams_while_it_is_read(client: HttpClient) -> None:
    chunk = bytes(range(256)) * 64
    async with serve([Do.READ, chunked(*[chunk] * 512)]) as server:
        assert await ask(client, server, Timeouts()) == chunk * 512
