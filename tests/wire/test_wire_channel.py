"""Closing a channel, and its state, over every transport."""

import asyncio
from typing import Any

import grpc
import pytest
from grpc import aio
from wire_transports import STATE, Serve, soon

from yarrow.v1 import agent_pb2 as pb

Code = grpc.StatusCode


async def answer(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
    return pb.GetStateResponse(session_id=request.session_id)


async def test_a_closed_channel_rejects_calls(serve: Serve) -> None:
    peer = await serve(GetState=answer)
    await peer.channel.close()
    await peer.channel.close()
    with pytest.raises(aio.UsageError, match=r"Channel is closed\."):
        await peer.stub.GetState(STATE)
    assert peer.channel.get_state() is grpc.ChannelConnectivity.SHUTDOWN


async def test_closing_cancels_active_calls(serve: Serve) -> None:
    entered, ended = asyncio.Event(), asyncio.Event()

    async def wait(request: pb.GetStateRequest, context: Any) -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.set()
            raise

    peer = await serve(GetState=wait)
    call = peer.stub.GetState(STATE)
    await soon(entered.wait())
    await peer.channel.close()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (await call.code(), await call.details()) == (Code.CANCELLED, "Locally cancelled by application!")
    await soon(ended.wait())


async def test_closing_with_grace_lets_calls_end(serve: Serve) -> None:
    entered = asyncio.Event()

    async def finish(request: pb.GetStateRequest, context: Any) -> pb.GetStateResponse:
        entered.set()
        await asyncio.sleep(0.05)
        return pb.GetStateResponse(session_id="done")

    peer = await serve(GetState=finish)
    call = peer.stub.GetState(STATE)
    await soon(entered.wait())
    await soon(peer.channel.close(10))
    assert (await call).session_id == "done"


async def test_a_channel_becomes_ready(serve: Serve) -> None:
    peer = await serve(GetState=answer)
    await soon(peer.channel.channel_ready())
    assert peer.channel.get_state() is grpc.ChannelConnectivity.READY
    changed = asyncio.create_task(peer.channel.wait_for_state_change(grpc.ChannelConnectivity.READY))
    await asyncio.sleep(0)
    assert not changed.done()
    await peer.channel.wait_for_state_change(grpc.ChannelConnectivity.SHUTDOWN)
    await peer.channel.close()
    await soon(changed)
