"""Many requests, one response: iterables, writes and early ends, over every transport."""

import asyncio
import contextvars
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import grpc
import pytest
from grpc import aio
from wire_transports import Limits, Serve, failure, soon, stopped

from yarrow.v1 import agent_pb2 as pb

Code = grpc.StatusCode
MIXED = "The iterator and read/write APIs may not be mixed on a single RPC."


def chunk(data: bytes) -> pb.ImportSessionRequest:
    return pb.ImportSessionRequest(chunk=data)


async def join(requests: Any, context: Any) -> pb.ImportSessionResponse:
    return pb.ImportSessionResponse(session_id=b"".join([one.chunk async for one in requests]).decode())


async def one_by_one(text: str) -> AsyncGenerator[pb.ImportSessionRequest]:
    for letter in text:
        yield chunk(letter.encode())


def endless(closed: asyncio.Event | None = None, size: int = 1) -> Iterator[pb.ImportSessionRequest]:
    try:
        while True:
            yield chunk(b"x" * size)
    finally:
        if closed is not None:
            closed.set()


@pytest.mark.parametrize("kind", ["async iterable", "iterator", "list", "nothing"])
async def test_requests_may_be_an_iterable(serve: Serve, kind: str) -> None:
    peer = await serve(ImportSession=join)
    requests: Any = {
        "async iterable": one_by_one("abc"),
        "iterator": iter([chunk(b"a"), chunk(b"bc")]),
        "list": [chunk(b"abc")],
        "nothing": (),
    }
    response = await peer.stub.ImportSession(requests[kind])
    assert response.session_id == ("" if kind == "nothing" else "abc")


async def test_an_iterable_runs_in_the_context_of_its_client(serve: Serve) -> None:
    letters = contextvars.ContextVar("letters", default="unset")

    async def send() -> AsyncGenerator[pb.ImportSessionRequest]:
        yield chunk(letters.get().encode())

    peer = await serve(ImportSession=join)
    letters.set("set by the client")
    assert (await peer.stub.ImportSession(send())).session_id == "set by the client"


async def test_many_requests_arrive_in_order(serve: Serve) -> None:
    text = "".join(chr(ord("a") + number % 26) for number in range(1000))
    peer = await serve(ImportSession=join)
    assert (await peer.stub.ImportSession(one_by_one(text))).session_id == text


async def test_requests_can_be_written(serve: Serve) -> None:
    call = (await serve(ImportSession=join)).stub.ImportSession()
    await call.write(chunk(b"a"))
    await call.write(chunk(b"b"))
    await call.done_writing()
    await call.done_writing()
    with pytest.raises(asyncio.InvalidStateError, match="half closed"):
        await call.write(chunk(b"c"))
    assert (await call).session_id == "ab"
    with pytest.raises(asyncio.InvalidStateError, match="RPC already finished"):
        await call.write(chunk(b"c"))
    await call.done_writing()
    assert await call.code() is Code.OK


async def test_an_iterable_and_writes_do_not_mix(serve: Serve) -> None:
    call = (await serve(ImportSession=join)).stub.ImportSession(one_by_one("a"))
    with pytest.raises(aio.UsageError, match=MIXED):
        await call.write(chunk(b"b"))
    with pytest.raises(aio.UsageError, match=MIXED):
        await call.done_writing()
    assert (await call).session_id == "a"


async def test_an_iterable_that_fails_cancels_the_call(serve: Serve) -> None:
    entered, ended = asyncio.Event(), asyncio.Event()

    async def watch(requests: Any, context: Any) -> pb.ImportSessionResponse:
        entered.set()
        try:
            return await join(requests, context)
        finally:
            ended.set()

    async def broken() -> AsyncGenerator[pb.ImportSessionRequest]:
        yield chunk(b"a")
        await entered.wait()
        raise OSError("the file is gone")

    call = (await serve(ImportSession=watch)).stub.ImportSession(broken())
    with pytest.raises(asyncio.CancelledError):
        await soon(call)
    assert await call.code() is Code.CANCELLED
    await soon(ended.wait())


async def test_a_handler_may_answer_before_the_end(serve: Serve) -> None:
    async def first(requests: Any, context: Any) -> pb.ImportSessionResponse:
        async for one in requests:
            return pb.ImportSessionResponse(session_id=one.chunk.decode())
        raise AssertionError

    closed = asyncio.Event()
    call = (await serve(ImportSession=first)).stub.ImportSession(endless(closed))
    assert (await soon(call)).session_id == "x"
    await soon(closed.wait())


async def test_a_handler_may_abort_before_the_end(serve: Serve) -> None:
    async def refuse(requests: Any, context: Any) -> None:
        async for _ in requests:
            await context.abort(Code.INVALID_ARGUMENT, "not a session")

    call = (await serve(ImportSession=refuse)).stub.ImportSession()
    await call.write(chunk(b"a"))
    error = await failure(call)
    assert (error.code(), error.details()) == (Code.INVALID_ARGUMENT, "not a session")
    with pytest.raises(asyncio.InvalidStateError):
        await call.write(chunk(b"b"))


async def test_a_handler_that_reads_nothing_suspends_the_writer(serve: Serve) -> None:
    go = asyncio.Event()
    pulled = list[int]()

    async def later(requests: Any, context: Any) -> pb.ImportSessionResponse:
        await go.wait()
        return pb.ImportSessionResponse(session_id=str(len([one async for one in requests])))

    async def many() -> AsyncGenerator[pb.ImportSessionRequest]:
        for number in range(1000):
            pulled.append(number)
            yield chunk(b"x" * 32768)

    call = (await serve(ImportSession=later)).stub.ImportSession(many())
    assert await stopped(lambda: len(pulled)) < 1000
    go.set()
    assert (await soon(call)).session_id == "1000"


async def test_cancelling_a_suspended_write_cancels_the_call(serve: Serve) -> None:
    written = list[int]()

    async def ignore(requests: Any, context: Any) -> None:
        await asyncio.Event().wait()

    call = (await serve(ImportSession=ignore)).stub.ImportSession()

    async def write_on() -> None:
        for number, one in enumerate(endless(size=32768)):
            written.append(number)
            await call.write(one)

    writing = asyncio.create_task(write_on())
    await stopped(lambda: len(written))
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert await soon(call.code()) is Code.CANCELLED


async def test_cancelling_ends_the_handler_and_the_iterable(serve: Serve) -> None:
    entered, cancelled, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def wait(requests: Any, context: Any) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    call = (await serve(ImportSession=wait)).stub.ImportSession(endless(closed, 32768))
    await soon(entered.wait())
    assert call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await soon(cancelled.wait())
    await soon(closed.wait())


async def test_a_request_over_the_limit_ends_the_call(serve: Serve) -> None:
    small = Limits(into=100)
    peer = await serve(limits=small, ImportSession=join)
    fed = await failure(peer.stub.ImportSession(iter([chunk(b"a"), chunk(b"x" * 101), chunk(b"b")])))
    assert fed.code() is Code.RESOURCE_EXHAUSTED
    assert (fed.details() or "").startswith("CLIENT: Sent message larger than max (103 vs. 100)")
    call = peer.stub.ImportSession()
    await call.write(chunk(b"a"))
    await failure(call.write(chunk(b"x" * 101)))
    assert (await failure(call)).code() is Code.RESOURCE_EXHAUSTED
