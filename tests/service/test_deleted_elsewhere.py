"""A session that another process deleted: its watchers receive the end, and it no longer exists."""

import asyncio
from pathlib import Path

import grpc
import pytest

from doubles.house import House, play, stub_of
from yarrow.v1 import agent_pb2 as pb


async def test_watchers_receive_the_end_when_the_session_is_next_requested(tmp_path: Path) -> None:
    house, other = House(tmp_path, [[{"text": "one"}]]), House(tmp_path, [])
    async with stub_of(house) as stub, stub_of(other) as elsewhere:
        await play(stub, house.prompt(session_id="s1"))
        watching = stub.StreamEvents(pb.StreamEventsRequest(session_id="s1"))
        await watching.initial_metadata()
        await elsewhere.DeleteSession(pb.DeleteSessionRequest(session_id="s1"))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.GetState(pb.GetStateRequest(session_id="s1"))
        assert refused.value.code() is grpc.StatusCode.NOT_FOUND
        async with asyncio.timeout(20):
            assert await watching.read() is grpc.aio.EOF
