"""Every way a call ends early, and what each end sees of it, over every transport."""

import asyncio
from typing import Any

import grpc
import pytest
from grpc import aio
from wire_transports import PATIENCE, PROMPT, STATE, Serve, event, failure, sequences, soon

from yarrow.v1 import agent_pb2 as pb

Code = grpc.StatusCode
LOCALLY = "Locally cancelled by application!"


class Slow:
    """Handlers that wait until they are cancelled, and tell how they ended."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.ended = asyncio.Event()
        self.seen = list[Any]()

    async def wait(self) -> None:
        self.entered.set()
        try:
            await asyncio.Event().wait()
        except BaseException as error:
            self.seen.append(type(error))
            await asyncio.sleep(0)  # cleaning up may take its time
            self.seen.append("cleaned up")
            raise
        finally:
            self.ended.set()

    async def answer(self, request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        await self.wait()
        return pb.GetStateResponse()

    async def stream(self, request: pb.PromptRequest, context: Any) -> Any:
        for sequence in range(3):
            yield event(sequence)
        await self.wait()

    async def cancelled(self) -> bool:
        await soon(self.ended.wait())
        return self.seen == [asyncio.CancelledError, "cleaned up"]


async def test_cancelling_at_once_runs_no_handler(serve: Serve) -> None:
    ran = list[str]()

    async def answer(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        ran.append(request.session_id)
        return pb.GetStateResponse()

    peer = await serve(GetState=answer)
    call = peer.stub.GetState(pb.GetStateRequest(session_id="first"))
    assert call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await peer.stub.GetState(pb.GetStateRequest(session_id="second"))
    assert ran == ["second"]


async def test_a_cancelled_call_has_its_status(serve: Serve) -> None:
    slow = Slow()
    call = (await serve(GetState=slow.answer)).stub.GetState(STATE)
    await soon(slow.entered.wait())
    assert call.cancel()
    assert not call.cancel()
    assert call.done()
    assert call.cancelled()
    assert (await call.code(), await call.details()) == (Code.CANCELLED, LOCALLY)
    assert await call.initial_metadata() == await call.trailing_metadata() == aio.Metadata()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await slow.cancelled()


async def test_done_callbacks_run_while_cancelling(serve: Serve) -> None:
    told = list[Any]()
    call = (await serve(Prompt=Slow().stream)).stub.Prompt(PROMPT)
    call.add_done_callback(told.append)
    call.cancel()
    assert told == [call]


async def test_a_finished_call_cannot_be_cancelled(serve: Serve) -> None:
    async def stream(request: pb.PromptRequest, context: Any) -> Any:
        yield event(1)

    call = (await serve(Prompt=stream)).stub.Prompt(PROMPT)
    assert await sequences(call) == [1]
    assert await call.code() is Code.OK
    assert not call.cancel()
    assert not call.cancelled()


async def test_cancelling_a_stream_drops_what_was_not_read(serve: Serve) -> None:
    slow = Slow()
    call = (await serve(Prompt=slow.stream)).stub.Prompt(PROMPT)
    async for one in call:
        assert one.event.sequence == 0
        break
    await soon(slow.entered.wait())
    assert call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sequences(call)
    assert await sequences(call) == []
    assert (await call.code(), await call.details()) == (Code.CANCELLED, LOCALLY)
    assert await slow.cancelled()


async def test_cancelling_ends_a_pending_read(serve: Serve) -> None:
    slow = Slow()
    call = (await serve(Prompt=slow.stream)).stub.Prompt(PROMPT)
    for sequence in range(3):
        assert await call.read() == event(sequence)
    reading = asyncio.ensure_future(call.read())
    await soon(slow.entered.wait())
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(reading)
    assert await slow.cancelled()


async def test_cancelling_the_task_that_awaits_cancels_the_call(serve: Serve) -> None:
    slow = Slow()
    call = (await serve(GetState=slow.answer)).stub.GetState(STATE)

    async def wait() -> None:
        await call

    task = asyncio.create_task(wait())
    await soon(slow.entered.wait())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await call.code() is Code.CANCELLED
    assert await slow.cancelled()


async def test_cancelling_the_task_that_iterates_cancels_the_call(serve: Serve) -> None:
    slow = Slow()
    call = (await serve(Prompt=slow.stream)).stub.Prompt(PROMPT)
    task = asyncio.create_task(sequences(call))
    await soon(slow.entered.wait())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await call.code() is Code.CANCELLED
    assert await slow.cancelled()


async def test_one_of_two_waiting_tasks_cancels_for_both(serve: Serve) -> None:
    slow = Slow()
    call = (await serve(GetState=slow.answer)).stub.GetState(STATE)

    async def wait() -> None:
        await call

    first, second = asyncio.create_task(wait()), asyncio.create_task(wait())
    await soon(slow.entered.wait())
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(second)
    assert await slow.cancelled()


async def test_wait_for_cancels_the_call(serve: Serve) -> None:
    slow = Slow()
    peer = await serve(GetState=slow.answer, Prompt=slow.stream)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(peer.stub.GetState(STATE), 0.3)
    assert await slow.cancelled()


async def test_a_generator_that_is_suspended_in_a_write_is_closed(serve: Serve) -> None:
    closed = asyncio.Event()

    async def stream(request: pb.PromptRequest, context: Any) -> Any:
        try:
            while True:
                yield event(1, "x" * 65536)
        finally:
            closed.set()

    call = (await serve(Prompt=stream)).stub.Prompt(PROMPT)
    await call.read()
    call.cancel()
    await soon(closed.wait())


async def test_output_of_a_handler_after_the_cancellation_is_dropped(serve: Serve) -> None:
    entered, ended = asyncio.Event(), asyncio.Event()
    seen = list[Any]()

    async def stubborn(request: pb.PromptRequest, context: Any) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            try:
                await context.write(event(1))
            except aio.InternalError:
                seen.append("refused")
            ended.set()

    call = (await serve(Prompt=stubborn)).stub.Prompt(PROMPT)
    await soon(entered.wait())
    call.cancel()
    await soon(ended.wait())
    assert seen == ["refused"]


# ---- deadlines ----


async def test_a_deadline_ends_the_call_and_its_handler(serve: Serve) -> None:
    slow = Slow()
    left = list[float]()

    async def answer(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        left.append(context.time_remaining())
        return await slow.answer(request, context)

    call = (await serve(GetState=answer)).stub.GetState(STATE, timeout=0.4)
    remaining = call.time_remaining()
    assert remaining is not None
    assert 0 < remaining <= 0.4
    error = await failure(call)
    assert error.code() is Code.DEADLINE_EXCEEDED
    assert "Deadline Exceeded" in (error.details() or "")
    assert call.time_remaining() == 0
    assert call.done()
    assert not call.cancelled()
    assert await slow.cancelled()
    assert 0 < left[0] <= 0.5


async def test_a_deadline_drops_what_was_not_read(serve: Serve) -> None:
    slow = Slow()
    call = (await serve(Prompt=slow.stream)).stub.Prompt(PROMPT, timeout=0.4)
    assert await soon(call.code()) is Code.DEADLINE_EXCEEDED
    assert (await failure(sequences(call))).code() is Code.DEADLINE_EXCEEDED
    assert await slow.cancelled()


async def test_a_deadline_that_has_passed_runs_no_handler(serve: Serve) -> None:
    ran = list[str]()

    async def answer(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        ran.append(request.session_id)
        return pb.GetStateResponse()

    peer = await serve(GetState=answer)
    error = await failure(peer.stub.GetState(pb.GetStateRequest(session_id="late"), timeout=-1))
    assert error.code() is Code.DEADLINE_EXCEEDED
    await peer.stub.GetState(pb.GetStateRequest(session_id="timely"), timeout=PATIENCE)
    assert ran == ["timely"]


# ---- the handler's callbacks ----


@pytest.mark.parametrize("way", ["return", "raise", "abort", "cancel"])
async def test_a_handlers_callback_runs_after_it_ends(serve: Serve, way: str) -> None:
    slow = Slow()
    over = asyncio.Event()
    told = list[Any]()

    def call_back(context: Any) -> None:
        told.append((context, context.done()))
        over.set()

    async def answer(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        context.add_done_callback(call_back)
        told.append(context)
        if way == "raise":
            raise ValueError(way)
        if way == "abort":
            await context.abort(Code.ABORTED, way)
        if way == "cancel":
            await slow.wait()
        return pb.GetStateResponse()

    call = (await serve(GetState=answer)).stub.GetState(STATE)
    if way == "cancel":
        await soon(slow.entered.wait())
        call.cancel()
    await call.code()
    await soon(over.wait())
    assert told[1:] == [(told[0], way != "cancel")]
