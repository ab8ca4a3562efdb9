"""An import rejected while the client still sends: the client receives the reason in any phase."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import grpc
import pytest

from doubles.house import House, reason_of
from doubles.reached import behind
from yarrow.client.stub import make_stub
from yarrow.service import rpc_middleware
from yarrow.v1 import agent_pb2 as pb

if TYPE_CHECKING:
    from yarrow.v1.agent_pb2_grpc import AgentServiceAsyncStub as Stub

S = grpc.StatusCode
PIECE = b"y" * (1 << 20)
PIECES = 12
TIMES = 40
"""Without help one in four received INTERNAL instead."""


@pytest.fixture
async def stub(house: House, tmp_path: Path) -> AsyncGenerator["Stub"]:
    async with behind(house, tmp_path / "run") as door, door.channel() as channel:
        yield cast("Stub", make_stub(channel, door.token))


async def refused(doing: Any) -> tuple[S, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asyncio.wait_for(doing, 20)
    return caught.value.code(), reason_of(caught.value)


async def test_the_error_reaches_a_client_that_still_sends(house: House, stub: "Stub") -> None:
    async def pieces() -> AsyncIterator[pb.ImportSessionRequest]:
        yield pb.ImportSessionRequest(cwd="/nowhere", chunk=PIECE)
        for _ in range(PIECES):
            yield pb.ImportSessionRequest(chunk=PIECE)

    for _ in range(TIMES):
        assert await refused(stub.ImportSession(pieces())) == (S.INVALID_ARGUMENT, "INVALID_ARGUMENT")
    assert not list(house.sessions.rglob("*"))


async def test_the_error_reaches_a_client_that_never_ends_its_stream(
    house: House, stub: "Stub", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rpc_middleware, "MAX_DRAIN_SECONDS", 0.2)

    async def pieces() -> AsyncIterator[pb.ImportSessionRequest]:
        yield pb.ImportSessionRequest(cwd=str(house.cwd), size=1 << 40)
        await asyncio.Event().wait()

    assert await refused(stub.ImportSession(pieces())) == (S.RESOURCE_EXHAUSTED, "TOO_LARGE")
