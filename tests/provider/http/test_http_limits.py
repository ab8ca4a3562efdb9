"""Silence has limits, each named in its error; slowness on our side has none, and a slow reader slows the server."""

import asyncio

import pytest
from byte_script_server import ByteServer, Do, answer, chunked, serve, turns

from yarrow.errors import Code, ProviderError
from yarrow.provider.http.client import HttpClient, Request, Timeouts

HALF = chunked(b"first", end=b"")
BIG = 32 * 1024 * 1024


async def ask(client: HttpClient, server: ByteServer, timeouts: Timeouts, body: bytes = b"") -> bytes:
    async with client.send(Request("POST", server.url, body=body, timeouts=timeouts)) as response:
        return b"".join([piece async for piece in response])


async def stalled(client: HttpClient, timeouts: Timeouts, *script: bytes | Do, body: bytes = b"") -> ProviderError:
    async with serve(script) as server:
        with pytest.raises(ProviderError) as caught:
            await ask(client, server, timeouts, body)
        assert (caught.value.code, caught.value.retryable) == (Code.STREAM_STALLED, True)
        assert f"127.0.0.1:{server.port}" in caught.value.message
        if Do.STALL not in script:
            await server.visits[0].gone.wait()
    return caught.value


@pytest.mark.parametrize("script", [(), (b"HTTP/1.1 100 Continue\r\n\r\n",), (b"\r\n",)])
async def test_no_answer_in_time(client: HttpClient, script: tuple[bytes, ...]) -> None:
    error = await stalled(client, Timeouts(first_byte=0.05, idle=None), Do.READ, *script)
    assert "0.05 s" in error.message
    assert "firstByteTimeout" in error.message


@pytest.mark.parametrize("cut", [1, 20, len(HALF) - 7, len(HALF)])
async def test_silence_in_the_middle_of_an_answer(client: HttpClient, cut: int) -> None:
    error = await stalled(client, Timeouts(first_byte=None, idle=0.05), Do.READ, HALF[:cut])
    assert "0.05 s" in error.message
    assert "idleTimeout" in error.message


async def test_a_server_that_takes_no_request(client: HttpClient) -> None:
    error = await stalled(client, Timeouts(write=0.05, first_byte=None), Do.STALL, body=bytes(BIG))
    assert "nothing more of the request for 0.05 s" in error.message


async def test_no_limit_waits(client: HttpClient) -> None:
    async with serve([Do.READ, (later := asyncio.Event()), HALF, (end := asyncio.Event()), b"0\r\n\r\n"]) as server:
        loop = asyncio.get_running_loop()
        loop.call_later(0.1, later.set)
        loop.call_later(0.2, end.set)
        assert await ask(client, server, Timeouts(write=0.02, first_byte=None, idle=None)) == b"first"


async def test_each_byte_starts_the_idle_clock_again(client: HttpClient) -> None:
    steps = [asyncio.Event() for _ in range(8)]
    for number, step in enumerate(steps, 1):
        asyncio.get_running_loop().call_later(number * 0.1, step.set)
    comments = [part for step in steps for part in (step, b"2\r\n:\n\r\n")]
    async with serve([Do.READ, HALF, *comments, b"0\r\n\r\n"]) as server:
        assert await ask(client, server, Timeouts(idle=0.5)) == b"first" + b":\n" * 8


async def test_an_interim_response_starts_the_first_byte_clock_again(client: HttpClient) -> None:
    steps = [asyncio.Event() for _ in range(8)]
    for number, step in enumerate(steps, 1):
        asyncio.get_running_loop().call_later(number * 0.1, step.set)
    interim = [part for step in steps for part in (step, b"HTTP/1.1 102 Processing\r\n\r\n")]
    async with serve([Do.READ, *interim, answer(b"late")]) as server:
        assert await ask(client, server, Timeouts(first_byte=0.5, idle=0.05)) == b"late"


async def test_the_write_limit_is_on_standstill_not_on_size(client: HttpClient) -> None:
    body = bytes(BIG)
    async with serve([Do.READ, answer(b"thanks")]) as server:
        asking = asyncio.create_task(ask(client, server, Timeouts(write=0.2), body))
        transport = (await server.visit(0)).writer.transport
        assert isinstance(transport, asyncio.Transport)
        # The server reads for a moment every 0.1 s: ten times the limit in all, never a standstill of the limit.
        for _ in range(10):
            transport.pause_reading()
            await asyncio.sleep(0.05)
            transport.resume_reading()
            await turns()
        assert await asking == b"thanks"
        assert server.visits[0].requests[0].endswith(body)


async def test_an_early_answer_ends_the_writing_and_the_connection(client: HttpClient) -> None:
    early = answer(b"too large", status=b"413 No")
    async with serve([early, Do.STALL], [Do.READ, answer(b"ok")]) as server:
        assert await ask(client, server, Timeouts(), bytes(BIG)) == b"too large"
        assert await ask(client, server, Timeouts()) == b"ok"
        assert len(server.visits) == 2


async def test_a_reader_that_does_not_read_stops_the_server_and_no_clock_runs(client: HttpClient) -> None:
    body = bytes(BIG)
    async with serve([Do.READ, answer(body), Do.READ, answer(b"again")]) as server:
        async with client.send(Request("GET", server.url, timeouts=Timeouts(idle=0.05))) as response:
            transport = server.visits[0].writer.transport
            unsent = -1
            while unsent != (unsent := transport.get_write_buffer_size()):
                await turns(50)
            assert unsent > BIG // 2, "kernel buffers and ours hold the rest"
            await asyncio.sleep(0.15)  # three times the limit, which is not ours to break
            assert await response.read(BIG) == body
        assert await ask(client, server, Timeouts()) == b"again"
        assert len(server.visits) == 1


async def test_a_large_body_flows_while_it_is_read(client: HttpClient) -> None:
    chunk = bytes(range(256)) * 64
    async with serve([Do.READ, chunked(*[chunk] * 512)]) as server:
        assert await ask(client, server, Timeouts()) == chunk * 512
