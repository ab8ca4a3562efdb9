"""A client whose connection is cut anywhere sees every event of its run once, and a prompt is never run twice."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest

from doubles.house import House, kinds
from doubles.reached import behind
from doubles.relay import Relay, relay
from yarrow.client import event_stream, reconnect_backoff, run_stream
from yarrow.client.permission_prompts import TypedAnswer
from yarrow.client.rpc_errors import parse_rpc_error
from yarrow.client.run_stream import RunResult, follow_run
from yarrow.client.session_lookup import SessionInfo, make_session, read_messages_after
from yarrow.client.stub import make_stub
from yarrow.config.settings import ServiceSettings
from yarrow.event import bus
from yarrow.service.grpc_options import make_client_options
from yarrow.v1 import agent_pb2 as pb

TURNS: list[list[dict[str, Any]]] = [
    [{"text": "Hel"}, {"text": "lo. "}, {"call": {"name": "act", "arguments": {"text": "x"}}}],
    [{"text": "Do"}, {"text": "ne."}],
]
HELD: list[list[dict[str, Any]]] = [[{"text": "one "}, {"wait": "gate"}, {"text": "two"}]]
SECONDS = 30.0


class Seen:
    """A viewer that keeps what it is shown, and calls back before it takes the next event."""

    def __init__(self, before: Callable[[int], None] = lambda _: None) -> None:
        self.events: list[pb.AgentEvent] = []
        self.shown = asyncio.Event()
        self._before = before

    async def show(self, event: pb.AgentEvent, kind: str) -> None:
        assert kind == (event.WhichOneof("event") or "")
        self._before(len(self.events))
        self.events.append(event)
        self.shown.set()

    async def drain(self) -> None:
        """There is always room."""

    async def until(self, count: int) -> None:
        while len(self.events) < count:
            self.shown.clear()
            await asyncio.wait_for(self.shown.wait(), SECONDS)

    @property
    def text(self) -> str:
        return "".join(event.text_delta.text for event in self.events)

    def check_each_once(self) -> None:
        sequences = [event.sequence for event in self.events]
        assert sequences == list(range(sequences[0], sequences[0] + len(sequences)))
        assert kinds(self.events)[0] == "agent_start"
        assert kinds(self.events)[-1] == "agent_end"


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnect_backoff, "BACKOFF_SECONDS", (0.02, 0.05, 0.1))
    monkeypatch.setattr(run_stream, "BUSY_RETRY_SECONDS", 0.02)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path, TURNS * 40)


@asynccontextmanager
async def wired(house: House, folder: Path, **more: Any) -> AsyncGenerator[tuple[Relay, Any]]:
    """A stub whose connection goes through a wire that can be cut."""
    async with (
        behind(house, folder / "run", **more) as door,
        relay(door.address.removeprefix("unix:"), folder / "wire") as wire,
    ):
        options = make_client_options(ServiceSettings())
        async with grpc.aio.insecure_channel(f"unix:{folder / 'wire'}", options=options) as channel:
            yield wire, make_stub(channel, door.token)


async def ready(house: House, stub: Any) -> SessionInfo:
    return await make_session(stub, pb.PromptRequest(cwd=str(house.cwd)))


async def follow_soon(stub: Any, session: SessionInfo, seen: Seen) -> RunResult:
    return await asyncio.wait_for(follow_run(stub, session, pb.PromptRequest(text="go"), viewer=seen), SECONDS)


class Begun(NamedTuple):
    """A client that follows a run which stands still at its gate."""

    wire: Relay
    session: SessionInfo
    seen: Seen
    doing: asyncio.Future[RunResult]

    def lose_service(self) -> None:
        """Close open connections, and refuse further ones."""
        self.wire.is_down = True
        self.wire.cut()

    async def end_unseen(self, house: House) -> None:
        """Let the run end while the client is cut off."""
        self.lose_service()
        await house.open_gate("gate")
        while house.running(self.session.session_id):
            await asyncio.sleep(0.01)


@asynccontextmanager
async def begun(house: House, folder: Path, **more: Any) -> AsyncGenerator[Begun]:
    """Follow a run of `HELD` through a wire, and wait until what stands before its gate was seen."""
    async with wired(house, folder, **more) as (wire, stub):
        session, seen = await ready(house, stub), Seen()
        doing = asyncio.ensure_future(follow_soon(stub, session, seen))
        await seen.until(5)
        yield Begun(wire, session, seen, doing)


async def prompts(stub: Any, session: SessionInfo) -> int:
    """How many prompts the session holds."""
    messages = [one async for one in read_messages_after(stub, session.session_id, "")]
    return sum(message.role == pb.ROLE_USER for message in messages)


async def test_a_disconnection_before_each_event(house: House, tmp_path: Path) -> None:
    async with wired(house, tmp_path) as (wire, stub):
        whole = Seen()
        assert (await follow_soon(stub, await ready(house, stub), whole)).reason == "COMPLETED"
        for place in range(len(whole.events)):
            session, seen = await ready(house, stub), Seen(lambda at, place=place: wire.cut() if at == place else None)
            assert (await follow_soon(stub, session, seen)).reason == "COMPLETED", place
            seen.check_each_once()
            assert kinds(seen.events) == kinds(whole.events)
            assert await prompts(stub, session) == 1
    assert len(house.act.ran) == len(whole.events) + 1


@pytest.mark.parametrize("start", range(0, 40, 10))
async def test_a_disconnection_after_any_byte(house: House, tmp_path: Path, start: int) -> None:
    """Also in the middle of a frame, and between the prompt and its first event: it is repeated and not run twice."""
    async with wired(house, tmp_path) as (wire, stub):
        for after in range(start, 900, 40):
            session, seen = await ready(house, stub), Seen()
            wire.cuts = [after]
            wire.cut()
            outcome = await follow_soon(stub, session, seen)
            assert outcome.reason == "COMPLETED", after
            seen.check_each_once()
            assert seen.text == "Hello. Done."
            assert await prompts(stub, session) == 1


async def test_a_prompt_whose_response_was_lost_is_resent_and_runs_once(tmp_path: Path) -> None:
    house = House(tmp_path, HELD * 2)
    async with wired(house, tmp_path) as (wire, stub):
        session, seen = await ready(house, stub), Seen()
        wire.is_mute = True
        doing = asyncio.ensure_future(follow_soon(stub, session, seen))
        while not house.running(session.session_id):
            await asyncio.sleep(0.01)
        wire.is_mute = False
        wire.cut()
        await seen.until(1)
        await house.open_gate("gate")
        assert (await doing).reason == "COMPLETED"
        seen.check_each_once()
        assert seen.text == "one two"
        assert await prompts(stub, session) == 1


async def test_a_run_that_ended_while_disconnected_is_replayed_completely(tmp_path: Path) -> None:
    house = House(tmp_path, HELD)
    async with begun(house, tmp_path) as one:
        await one.end_unseen(house)
        one.wire.is_down = False
        assert (await one.doing).reason == "COMPLETED"
        one.seen.check_each_once()
        assert one.seen.text == "one two"


async def test_an_end_that_was_dropped_is_synthesized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replay buffer drops the run; a late reader receives a gap and an end, and does not wait."""
    monkeypatch.setattr(bus, "RING_SECONDS", 0.0)
    house = House(tmp_path, HELD)
    async with begun(house, tmp_path) as one:
        await one.end_unseen(house)
        one.wire.is_down = False
        outcome = await one.doing
        assert (outcome.reason, outcome.error_code) == ("ERROR", "UNREACHABLE")
        assert kinds(one.seen.events)[-2:] == ["gap", "agent_end"]


async def test_reconnecting_to_a_vanished_service_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnect_backoff, "MAX_OUTAGE_SECONDS", 0.5)
    house = House(tmp_path, HELD)
    async with begun(house, tmp_path) as one:
        one.lose_service()
        with pytest.raises(grpc.aio.AioRpcError) as lost:
            await one.doing
        assert lost.value.code() is grpc.StatusCode.UNAVAILABLE
        assert parse_rpc_error(lost.value).reason == ""
        await house.open_gate("gate")


async def test_a_permanently_silent_connection_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that is silently lost: neither events nor heartbeats nor answers arrive."""
    monkeypatch.setattr(event_stream, "MAX_SILENCE_SECONDS", 0.5)
    monkeypatch.setattr(event_stream, "STATE_TIMEOUT_SECONDS", 0.2)
    monkeypatch.setattr(reconnect_backoff, "MAX_OUTAGE_SECONDS", 0.5)
    house = House(tmp_path, HELD)
    async with begun(house, tmp_path, heartbeat=0.02) as one:
        # Signs of life keep a silent run going for longer than silence is borne.
        await asyncio.wait([one.doing], timeout=1.0)
        assert not one.doing.done()
        one.wire.lose()
        with pytest.raises(grpc.aio.AioRpcError):
            await one.doing
        await house.open_gate("gate")


async def test_several_clients_see_one_run_and_any_may_steer_it_and_abort_it(tmp_path: Path) -> None:
    house = House(tmp_path, [*HELD, [{"text": "three "}, {"wait": "never"}]])
    async with behind(house, tmp_path / "run") as door, door.channel() as first, door.channel() as second:
        one: Any = make_stub(first, door.token)
        two: Any = make_stub(second, door.token)
        session, mine, theirs = await ready(house, one), Seen(), Seen()
        doing = asyncio.ensure_future(follow_soon(one, session, mine))
        await mine.until(5)
        watching = asyncio.ensure_future(watch(two, session, theirs))
        await theirs.until(5)
        await two.Steer(pb.SteerRequest(session_id=session.session_id, text="and this"))
        await house.open_gate("gate")
        while "three" not in mine.text:
            await mine.until(len(mine.events) + 1)
        await two.Abort(pb.AbortRequest(session_id=session.session_id))
        assert (await doing).reason == "ABORTED"
        await watching
        assert theirs.events == mine.events
        mine.check_each_once()
        assert "and this" in str(mine.events)


async def watch(stub: Any, session: SessionInfo, seen: Seen) -> None:
    """Follow a run of another client from its beginning to its end."""
    request = pb.StreamEventsRequest(session_id=session.session_id, after_sequence=0, batch=True)
    async for response in stub.StreamEvents(request):
        for event in (response.event, *response.more):
            await seen.show(event, event.WhichOneof("event") or "")
        if kinds(seen.events)[-1] == "agent_end":
            return


async def test_another_client_answers_a_question(tmp_path: Path) -> None:
    turns: list[list[dict[str, Any]]] = [[{"call": {"name": "act", "arguments": {"text": "x"}}}], [{"text": "done"}]]
    house = House(tmp_path, turns, rules={"act": "ask"})
    async with behind(house, tmp_path / "run") as door, door.channel() as first, door.channel() as second:
        one: Any = make_stub(first, door.token)
        two: Any = make_stub(second, door.token)
        session, seen, person = await ready(house, one), Seen(), Silent()
        request = pb.PromptRequest(text="go")
        doing = asyncio.ensure_future(follow_run(one, session, request, viewer=seen, permission_ui=person))
        await asyncio.wait_for(person.asked.wait(), SECONDS)
        (asked,) = (await two.GetState(pb.GetStateRequest(session_id=session.session_id))).permission_requests
        await two.AnswerPermission(
            pb.AnswerPermissionRequest(
                session_id=session.session_id, request_id=asked.request_id, answer=pb.PERMISSION_ANSWER_ONCE
            )
        )
        assert (await asyncio.wait_for(doing, SECONDS)).reason == "COMPLETED"
        assert house.act.ran == ["x"]


async def test_a_request_waits_for_a_disconnected_client(tmp_path: Path) -> None:
    """The user answers while the service is unreachable; the answer arrives, and the call is made once."""
    turns: list[list[dict[str, Any]]] = [[{"call": {"name": "act", "arguments": {"text": "x"}}}], [{"text": "done"}]]
    house = House(tmp_path, turns, rules={"act": "ask"})
    async with wired(house, tmp_path) as (wire, stub):
        session, seen, person = await ready(house, stub), Seen(), Willing()
        doing = asyncio.ensure_future(
            follow_run(stub, session, pb.PromptRequest(text="go"), viewer=seen, permission_ui=person)
        )
        await asyncio.wait_for(person.asked.wait(), SECONDS)
        wire.is_down = True
        wire.cut()
        while house.watched(session.session_id):
            await asyncio.sleep(0.01)
        person.answers.set()
        await asyncio.sleep(0)
        wire.is_down = False
        outcome = await asyncio.wait_for(doing, SECONDS)
        assert (outcome.reason, outcome.denied) == ("COMPLETED", False)
        assert house.act.ran == ["x"]
        seen.check_each_once()
        settled = [event.permission_settled.by for event in seen.events if event.HasField("permission_settled")]
        assert settled == ["person"]
        assert person.times == 1


class Willing:
    """A user who allows everything, once released."""

    def __init__(self) -> None:
        self.asked, self.answers = asyncio.Event(), asyncio.Event()
        self.times = 0

    async def answer(self, question: str) -> TypedAnswer:
        self.times += 1
        self.asked.set()
        await self.answers.wait()
        return TypedAnswer("yes", is_answer=True)

    def keep(self, text: str) -> bool:
        raise AssertionError(f"nothing was typed but {text!r}")

    def tell(self, text: str) -> None:
        """Show nothing."""


class Silent:
    """A user who is asked and does not answer."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    async def answer(self, question: str) -> TypedAnswer:
        self.asked.set()
        await asyncio.Event().wait()
        return TypedAnswer(question, is_answer=False)

    def keep(self, text: str) -> bool:
        raise AssertionError(f"nothing was typed but {text!r}")

    def tell(self, text: str) -> None:
        """Show nothing."""
