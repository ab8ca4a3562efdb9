"""The event stream of a session, through a wire that is cut anywhere and over services that are started again."""

import asyncio
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from doubles.house import House, kinds
from doubles.reached import behind
from doubles.relay import Relay, relay
from yarrow.client import reconnect_backoff
from yarrow.client.event_stream import EventStream, StreamCursor
from yarrow.client.reconnect_backoff import ConnectionState
from yarrow.client.stub import make_stub
from yarrow.config.settings import ServiceSettings
from yarrow.service.authentication import load_or_create_token, token_path_for
from yarrow.service.grpc_options import make_client_options
from yarrow.v1 import agent_pb2 as pb

TURNS: list[list[dict[str, Any]]] = [
    [{"text": "Hel"}, {"text": "lo. "}, {"call": {"name": "act", "arguments": {"text": "x"}}}],
    [{"text": "Do"}, {"text": "ne."}],
]
EVENTS = 24
"""At least as many as a session of two runs has."""
SECONDS = 30.0


class Reader:
    """Follows a session, and calls back before each event."""

    def __init__(self, before: Callable[[int], None] = lambda _: None) -> None:
        self.events: list[pb.AgentEvent] = []
        self.states: list[ConnectionState] = []
        self._before = before
        self._changed = asyncio.Event()

    async def follow(self, stub: Any, state: pb.GetStateResponse) -> None:
        cursor = StreamCursor.from_state(state)
        stream = EventStream(stub, cursor, answers_permissions=False, is_patient=True, on_state=self._on_state)
        async with aclosing(stream.follow()) as batches:
            async for batch in batches:
                for event, kind in batch:
                    assert kind == (event.WhichOneof("event") or "")
                    self._before(len(self.events))
                    self.events.append(event)
                    self._changed.set()

    async def until(self, is_seen: Callable[[], bool]) -> None:
        while not is_seen():
            self._changed.clear()
            await asyncio.wait_for(self._changed.wait(), SECONDS)

    def is_complete(self, whole: "Reader") -> bool:
        """True if everything arrived that another reader received."""
        return bool(self.events) and self.events[-1] == whole.events[-1]

    @property
    def sequence(self) -> int:
        """The number of the last event."""
        return max((event.sequence for event in self.events), default=0)

    def _on_state(self, state: ConnectionState) -> None:
        self.states.append(state)
        self._changed.set()


class Door(NamedTuple):
    """The sessions of a folder, behind a wire that can be cut and outlives the services."""

    folder: Path
    wire: Relay
    stub: Any

    @asynccontextmanager
    async def serve(self, turns: list[list[dict[str, Any]]]) -> AsyncGenerator["Service"]:
        """Run a service until the end of the `with`."""
        house = House(self.folder, turns)
        async with behind(house, self.folder / "run") as door, door.channel() as beside:
            self.wire.is_down = False
            yield Service(house, make_stub(beside, door.token))
            self.wire.is_down = True


class Service(NamedTuple):
    """One service, and a stub whose connection is never cut."""

    house: House
    stub: Any

    async def new_session(self) -> pb.GetStateResponse:
        made = await self.stub.NewSession(pb.NewSessionRequest(cwd=str(self.house.cwd)))
        return await self.state(made.session_id)

    async def state(self, session_id: str) -> pb.GetStateResponse:
        return await self.stub.GetState(pb.GetStateRequest(session_id=session_id))

    async def prompt(self, session_id: str) -> int:
        """Run a prompt to its end; return the number of the last event."""
        async for _ in self.stub.Prompt(self.house.prompt(session_id=session_id)):
            pass
        return (await self.state(session_id)).sequence


@asynccontextmanager
async def door_to() -> AsyncGenerator[Door]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        socket = folder / "run" / "yarrow.sock"
        socket.parent.mkdir(mode=0o700)
        token = load_or_create_token(token_path_for(socket))
        options = make_client_options(ServiceSettings())
        async with (
            relay(str(socket), folder / "wire") as wire,
            grpc.aio.insecure_channel(f"unix:{folder / 'wire'}", options=options) as channel,
        ):
            yield Door(folder, wire, make_stub(channel, token))


@asynccontextmanager
async def following(one: Reader, stub: Any, state: pb.GetStateResponse) -> AsyncGenerator[None]:
    task = asyncio.create_task(one.follow(stub, state))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() or task.exception() is None


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnect_backoff, "BACKOFF_SECONDS", (0.01, 0.02))


CUTS = st.lists(st.tuples(st.integers(0, EVENTS), st.lists(st.integers(0, 700), max_size=3)), max_size=4)
"""Before which event the wire is cut, and after how many bytes the connections that follow are cut again."""


def cutting(wire: Relay, cuts: list[tuple[int, list[int]]]) -> Callable[[int], None]:
    def cut(count: int) -> None:
        for at, more in cuts:
            if at == count:
                wire.cuts = list(more)
                wire.cut()

    return cut


def check_law(seen: list[pb.AgentEvent], whole: list[pb.AgentEvent]) -> None:
    """Each event comes once and in order, or a gap names its number; each run that begins also ends."""
    numbers: list[int] = []
    for event in seen:
        if event.HasField("gap") and event.gap.last_sequence:
            numbers += range(event.gap.first_sequence, event.gap.last_sequence + 1)
        elif event.sequence:
            numbers.append(event.sequence)
    assert numbers == [event.sequence for event in whole]
    known = {event.sequence: event for event in whole}
    assert all(event == known[event.sequence] for event in seen if event.sequence)
    open_run = ""
    for event in seen:
        if event.HasField("agent_start"):
            assert open_run == ""
            open_run = event.run_id
        elif event.HasField("agent_end"):
            assert event.run_id == open_run
            open_run = ""
    assert open_run == ""


@settings(max_examples=25)
@given(cuts=CUTS, waits=st.booleans())
async def test_the_events_delivered_are_the_events_recorded(cuts: list[tuple[int, list[int]]], *, waits: bool) -> None:
    async with door_to() as door, door.serve(TURNS * 2) as service:
        state = await service.new_session()
        seen, whole = Reader(cutting(door.wire, cuts)), Reader()
        async with following(whole, service.stub, state), following(seen, door.stub, state):
            for _ in range(2):
                last = await service.prompt(state.session_id)
                await whole.until(lambda last=last: whole.sequence == last)
                if waits:
                    # Otherwise the next run may begin while the reader is cut off, and the service drops this one.
                    await seen.until(lambda last=last: seen.sequence == last)
            await seen.until(lambda: seen.is_complete(whole))
    check_law(seen.events, whole.events)
    if waits:
        assert seen.events == whole.events
    # The last cut may come after the last event.
    assert seen.states == (["reconnecting", "connected"] * len(seen.states))[: len(seen.states)]


@settings(max_examples=15)
@given(at=st.integers(0, EVENTS), cuts=CUTS)
async def test_over_a_service_that_is_started_again(at: int, cuts: list[tuple[int, list[int]]]) -> None:
    """The first service sends events up to one, among them an end of the run; the second sends all."""
    async with door_to() as door:
        cut = cutting(door.wire, cuts)
        is_first = True

        def leave(count: int) -> None:
            cut(count)
            if count == at and is_first:
                door.wire.is_down = True
                door.wire.cut()

        seen, first, second = Reader(leave), Reader(), Reader()
        async with door.serve(TURNS) as service:
            state = await service.new_session()
            async with following(first, service.stub, state):
                reading = asyncio.create_task(seen.follow(door.stub, state))
                last = await service.prompt(state.session_id)
                await first.until(lambda: first.sequence == last)
                await seen.until(lambda: len(seen.events) >= min(at, last))
        before, is_first = len(seen.events), False
        async with door.serve(TURNS) as service:
            state = await service.state(state.session_id)
            async with following(second, service.stub, state):
                last = await service.prompt(state.session_id)
                await second.until(lambda: second.sequence == last)
                await seen.until(lambda: seen.is_complete(second))
        reading.cancel()
        await asyncio.wait([reading])
    delivered = seen.events[:before]
    assert delivered == first.events[:before]
    rest = seen.events[before:]
    if delivered and kinds(delivered)[-1] != "agent_end":
        assert kinds(rest[:2]) == ["gap", "agent_end"]
        assert rest[1].run_id == delivered[-1].run_id
        assert rest[1].agent_end.error.code == "UNREACHABLE"
        rest = rest[2:]
    check_law(rest, second.events)
