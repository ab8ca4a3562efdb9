"""Clients that go away in every state and in every way: the run goes on, nothing of them stays, others see it all."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from doubles.house import House, kinds
from doubles.reached import Door, behind
from doubles.received import check_stream
from yarrow.config.settings import CompactionSettings
from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceStub

LONG = "The quick brown fox jumps over the lazy dog again and again. " * 160
HELD: dict[str, Any] = {"wait": "gate"}
SCRIPTS: dict[str, list[list[dict[str, Any]]]] = {
    "THINKING": [[HELD, {"text": "x"}]],
    "EXECUTING": [[{"call": {"name": "act", "arguments": {"text": "x"}}}], [{"text": "x"}]],
    "COMPACTING": [[{"text": "a"}], [{"text": "b"}], [{"text": "c"}], [HELD, {"text": "in short"}]],
    "ABORTING": [[HELD]],
    "ERROR": [[{"error": {"code": "AUTH", "message": "no"}}]],
    "IDLE": [[{"text": "x"}]],
}
"""Script of the model until the agent reaches a state, in which it is held where possible."""
REASONS = {"ABORTING": pb.END_REASON_ABORTED, "ERROR": pb.END_REASON_ERROR}
SOON = 20.0


class Client(NamedTuple):
    """A connection of its own."""

    stub: Any
    leave: Callable[[list[Any]], Awaitable[None]]


@asynccontextmanager
async def client_of(door: Door, folder: Path, way: str) -> AsyncGenerator[Client]:
    """A client that leaves by `cancel`: its calls, by `close`: its channel, or by `cut`: its connection is lost."""
    relay = await Relay.to(door.address.removeprefix("unix:"), folder / "relay.sock")
    reached = Door(f"unix:{folder / 'relay.sock'}", door.token, None)
    async with relay, reached.channel() as channel:

        async def leave(calls: list[Any]) -> None:
            match way:
                case "cancel":
                    for call in calls:
                        call.cancel()
                case "close":
                    await channel.close()
                case _:
                    relay.cut()

        yield Client(AgentServiceStub(channel), leave)


class Relay:
    """A socket in front of another one, whose connections can be lost."""

    @classmethod
    async def to(cls, target: str, path: Path) -> "Relay":
        relay = cls()
        relay._target = target
        relay._server = await asyncio.start_unix_server(relay._serve, path)
        return relay

    def __init__(self) -> None:
        self._target = ""
        self._server: asyncio.Server
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with suppress(ConnectionError):
            back, forth = await asyncio.open_unix_connection(self._target)
            self._writers += [writer, forth]
            async with asyncio.TaskGroup() as both:
                both.create_task(_pass_on(reader, forth))
                both.create_task(_pass_on(back, writer))


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.transport.abort()


async def left(client: Client, request: pb.PromptRequest, state: str, metadata: Any) -> None:
    """Have the client prompt and watch, or compact, and leave as soon as it sees the state."""
    if state == "COMPACTING":
        working = client.stub.Compact(pb.CompactRequest(session_id="s"), metadata=metadata)
    else:
        working = client.stub.Prompt(request, metadata=metadata)
    watching = client.stub.StreamEvents(pb.StreamEventsRequest(session_id="s", after_sequence=0), metadata=metadata)
    wanted = pb.AgentState.Value(f"AGENT_STATE_{state}")
    async for response in working:
        change = response.event.state_change
        if change.to == wanted:
            break
        if state == "ABORTING" and change.to == pb.AGENT_STATE_THINKING:
            await client.stub.Abort(pb.AbortRequest(session_id="s"), metadata=metadata)
    else:
        raise AssertionError(f"it never was {state}")
    await client.leave([working, watching])


@pytest.mark.parametrize("way", ["cancel", "close", "cut"])
@pytest.mark.parametrize("state", SCRIPTS)
async def test_a_disconnected_client_leaves_no_resources(tmp_path: Path, state: str, way: str) -> None:
    compaction = CompactionSettings(reserve_tokens=1_000, keep_recent_tokens=1_500)
    house = House(tmp_path, [*SCRIPTS[state], [{"text": "after"}]], compaction=compaction)
    house.act.gate = asyncio.Event()
    async with (
        asyncio.timeout(SOON),
        behind(house, tmp_path / "run") as door,
        door.channel() as channel,
        client_of(door, tmp_path / "run", way) as client,
    ):
        steady: Any = AgentServiceStub(channel)
        await steady.NewSession(pb.NewSessionRequest(session_id="s", cwd=str(house.cwd)), metadata=door.bearer)
        if state == "COMPACTING":
            for _ in range(3):
                await last_of(steady.Prompt(house.prompt(LONG, "s"), metadata=door.bearer))
        watching = steady.StreamEvents(pb.StreamEventsRequest(session_id="s"), metadata=door.bearer)
        await subscribers(steady, door, 1)
        await left(client, house.prompt("go", "s"), state, door.bearer)
        await subscribers(steady, door, 1)
        house.act.gate.set()
        await house.open_gate("gate")
        seen = await until_end(watching)
        check_stream(seen)
        end = seen[-1]
        if state == "COMPACTING":
            assert (end.compaction_end.summary != "", end.compaction_end.HasField("error")) == (True, False)
        else:
            assert end.agent_end.reason == REASONS.get(state, pb.END_REASON_COMPLETED)
        again = await last_of(steady.Prompt(house.prompt("again", "s"), metadata=door.bearer))
        assert again.agent_end.reason == pb.END_REASON_COMPLETED


async def last_of(call: Any) -> pb.AgentEvent:
    return [response.event async for response in call][-1]


async def until_end(call: Any) -> list[pb.AgentEvent]:
    """Events up to the end of a run or a compaction."""
    seen: list[pb.AgentEvent] = []
    async for response in call:
        seen.append(response.event)
        if kinds(seen[-1:])[0] in ("agent_end", "compaction_end"):
            return seen
    raise AssertionError("the stream ended")


async def subscribers(stub: Any, door: Door, count: int) -> None:
    """Wait until so many streams follow the session: GetState counts each."""
    while True:
        state = await stub.GetState(pb.GetStateRequest(session_id="s"), metadata=door.bearer)
        if len(state.dropped) == count:
            return
        await asyncio.sleep(0.01)


def test_every_state_has_a_script() -> None:
    states = {name.removeprefix("AGENT_STATE_") for name in pb.AgentState.keys()}  # noqa: SIM118 (no mapping)
    assert states - {"UNSPECIFIED"} == SCRIPTS.keys()
