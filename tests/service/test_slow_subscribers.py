"""Law 8 at the real socket: a slow or dead reader costs one bounded buffer, and receives a gap."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from doubles.house import House, read
from doubles.reached import Door, behind
from yarrow.event.bus import BUFFER_EVENTS
from yarrow.service.event_stream import MAX_BATCH_EVENTS
from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceStub

DELTAS, LENGTH, BREATH = 12_000, 600, 200
"""How many deltas there are, how many letters each has, and after how many the model takes breath."""
ON_THE_WAY = 1_000
"""Events that may be between the service's buffer and a client that does not read: what the socket and HTTP/2 hold."""
OWN = (("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", 1 << 16))
"""Settings of a client with its own connection that buffers at most 64 KiB ahead of its reader."""
SLOW = 50


class Scene(NamedTuple):
    """A service at its socket, one session and a client that keeps up."""

    house: House
    door: Door
    stub: Any
    session: str

    @asynccontextmanager
    async def watch(self, **how: Any) -> AsyncGenerator[Any]:
        """A stream on a connection of its own, which is open when this returns."""
        request = pb.StreamEventsRequest(session_id=self.session, after_sequence=0, **how)
        before = len(await self.dropped())
        async with self.door.channel(*OWN) as channel:
            stub: Any = AgentServiceStub(channel)
            call = stub.StreamEvents(request, metadata=self.door.bearer)
            await self.watching(before + 1)
            yield call
            call.cancel()

    async def play(self) -> int:
        """Run a prompt to its end as fast as it comes; returns the sequence of its last event."""
        request = self.house.prompt("go", self.session, batch=True)
        responses = [response async for response in self.stub.Prompt(request, metadata=self.door.bearer)]
        last = (responses[-1].event, *responses[-1].more)[-1]
        assert last.agent_end.reason == pb.END_REASON_COMPLETED
        return last.sequence

    async def watching(self, count: int) -> None:
        """Wait until so many streams follow the session."""
        async with asyncio.timeout(10):
            while len(await self.dropped()) != count:
                await asyncio.sleep(0.01)

    async def dropped(self) -> list[int]:
        state = await self.stub.GetState(pb.GetStateRequest(session_id=self.session), metadata=self.door.bearer)
        return list(state.dropped)


@asynccontextmanager
async def scene(folder: Path) -> AsyncGenerator[Scene]:
    turn: list[dict[str, Any]] = []
    for number in range(DELTAS):
        turn += [{"text": "x" * LENGTH}] if number % BREATH else [{"delay": 0.001}, {"text": "x" * LENGTH}]
    house = House(folder, [turn, [{"text": "after"}]])
    async with behind(house, folder / "run") as door, door.channel() as channel:
        stub: Any = AgentServiceStub(channel)
        made = await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd)), metadata=door.bearer)
        yield Scene(house, door, stub, made.session_id)


async def test_fifty_slow_readers_use_only_one_buffer_each(tmp_path: Path) -> None:
    async with scene(tmp_path) as played, AsyncExitStack() as stack:
        slow = [await stack.enter_async_context(played.watch()) for _ in range(SLOW)]
        ran = asyncio.ensure_future(played.play())
        # Each reads one event, as one that reads an event a second does for as long as this run goes on.
        assert {(await read(call)).event.sequence for call in slow} == {1}
        last = await asyncio.wait_for(ran, 60)
        dropped = await played.dropped()
        assert len(dropped) == SLOW
        assert min(dropped) >= last - BUFFER_EVENTS - ON_THE_WAY
        assert max(dropped) <= last - BUFFER_EVENTS
        told = await _rest(slow[0], last)
    covered, after = [1], 0
    for event in told:
        lost = range(event.gap.first_sequence, event.gap.last_sequence + 1) if event.HasField("gap") else ()
        after = 0 if lost else after + 1
        covered += lost or [event.sequence]
    assert covered == list(range(1, last + 1)), "what was lost is told, and each event comes once"
    assert after <= BUFFER_EVENTS + MAX_BATCH_EVENTS  # one take may be in the hand of the stream
    assert told[-1].agent_end.reason == pb.END_REASON_COMPLETED


async def test_a_reader_that_never_reads_blocks_no_one(tmp_path: Path) -> None:
    async with scene(tmp_path) as played, played.watch():
        last = await asyncio.wait_for(played.play(), 60)
        [dropped] = await played.dropped()
        assert last - BUFFER_EVENTS - ON_THE_WAY <= dropped <= last - BUFFER_EVENTS
        assert await played.play() > last, "the session is of use while it still does not read"


async def test_a_cancelled_reader_is_removed(tmp_path: Path) -> None:
    async with scene(tmp_path) as played:
        async with played.watch() as slow:
            last = await played.play()
            [dropped] = await played.dropped()
            assert dropped >= last - BUFFER_EVENTS - ON_THE_WAY
            slow.cancel()
            await played.watching(0)
        assert await played.play() > last


async def test_a_batch_stays_within_its_limit(tmp_path: Path) -> None:
    async with scene(tmp_path) as played, played.watch(batch=True) as slow:
        last = await played.play()
        sizes: list[int] = []
        while True:
            response = await read(slow)
            sizes.append(1 + len(response.more))
            if (response.event, *response.more)[-1].sequence >= last:
                break
    assert max(sizes) == MAX_BATCH_EVENTS


async def _rest(call: Any, last: int) -> list[pb.AgentEvent]:
    told: list[pb.AgentEvent] = []
    while not told or told[-1].sequence < last:
        told += [event for event in [(await read(call)).event] if not event.HasField("heartbeat")]
    return told
