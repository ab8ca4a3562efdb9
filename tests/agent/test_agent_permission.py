"""Questions through the agent's front door: asked on disk first, answered once, never left open."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from agent.permission_requests import asked, results, told
from hypothesis import given, settings
from hypothesis import strategies as st

from doubles.hooking import hooks
from doubles.rig import NOW, ListLog, Rig, call, drain
from yarrow.agent.agent import Agent
from yarrow.agent.exclusive_task import RunningCount
from yarrow.agent.model_context import TokenCounter
from yarrow.agent.permission_broker import MAX_ABSENCE_SECONDS, TIMEOUT, PermissionConfig, PermissionDecision
from yarrow.agent.session_writer import SessionSource, SessionWriter
from yarrow.config.settings import AllowedCall, PermissionMode
from yarrow.errors import Code, NotFound, Precondition, StorageError
from yarrow.event import events as ev
from yarrow.message import Role
from yarrow.session.record import PermissionAnswered, PermissionAsked
from yarrow.session.state import SessionState, fold_records

YES, NO = PermissionDecision("once"), PermissionDecision("no")
ANSWER = [{"text": "done"}]


def rig_of(*turns: list[dict[str, Any]], rules: dict[str, str] | None = None, **more: Any) -> Rig:
    """A rig in which `act` is asked."""
    rig = Rig([*turns, ANSWER], permissions=more.pop("permissions", PermissionMode.ASK), **more)
    rig.consent = PermissionConfig(rules=rules or {})
    return rig


class Clock:
    """A clock whose time the test advances."""

    def __init__(self, rig: Rig) -> None:
        self.seconds: list[float] = []
        self._due: list[tuple[asyncio.TimerHandle, Callable[[], None]]] = []
        rig.agent.questions.later = self._later

    def _later(self, seconds: float, then: Callable[[], None]) -> asyncio.TimerHandle:
        self.seconds.append(seconds)
        handle = asyncio.get_running_loop().call_later(3600, lambda: None)
        self._due.append((handle, then))
        return handle

    @property
    def cancelled(self) -> list[float]:
        """Seconds of waits that were cancelled."""
        return [seconds for seconds, (handle, _) in zip(self.seconds, self._due, strict=True) if handle.cancelled()]

    async def until(self, count: int) -> None:
        """Wait until so many times were asked for."""
        while len(self.seconds) < count:
            await asyncio.sleep(0)

    def strike(self, only: float = 0.0) -> None:
        """Let the time be over that is still waited for, or of that the one of so many seconds."""
        for seconds, (handle, then) in zip(tuple(self.seconds), tuple(self._due), strict=True):
            if not handle.cancelled() and only in (0.0, seconds):
                then()


async def test_yes_runs_the_call() -> None:
    rig = rig_of([call("act", "a", id="c1")])
    with rig.agent.questions.presence.connected():
        await rig.start()
        (question,) = await asked(rig)
        assert (question.tool, question.tool_call_id, question.arguments) == ("act", "c1", '{"text":"a"}')
        assert rig.agent.state is ev.AgentState.EXECUTING
        # On disk before it is emitted.
        assert rig.log.records[-1] == PermissionAsked(
            id=question.request_id, timestamp=NOW, tool_call_id="c1", tool="act", reason=question.reason
        )
        await rig.agent.questions.answer(question.request_id, YES)
        answered = [record for record in rig.log.records if isinstance(record, PermissionAnswered)]
        assert answered == [PermissionAnswered(id=question.request_id, timestamp=NOW, answer="once", by="person")]
        bodies = await rig.finish()
    assert rig.act.ran == ["a"]
    assert told(bodies, ev.PermissionRequest) == [question]
    assert told(bodies, ev.PermissionSettled) == [ev.PermissionSettled(question.request_id, "once", "person")]


@pytest.mark.parametrize(
    ("given_", "text"),
    [
        (NO, "the user denied it"),
        (PermissionDecision("no", "use make instead"), "the user denied it and said: use make instead"),
    ],
)
async def test_a_denial_is_a_result_for_the_model(given_: PermissionDecision, text: str) -> None:
    rig = rig_of([call("act", "a")])
    with rig.agent.questions.presence.connected():
        await rig.start()
        (question,) = await asked(rig)
        await rig.agent.questions.answer(question.request_id, given_)
        await rig.finish()
    (result,) = results(rig)
    assert result.is_error
    assert text in result.text
    assert rig.act.ran == []
    assert rig.provider.requests[1].messages[-1].text == result.text


async def test_case_C_05_without_a_client_it_is_denied_at_once() -> None:
    rig = rig_of([call("act", "a")])
    bodies = await rig.run()
    (question,) = told(bodies, ev.PermissionRequest)
    assert told(bodies, ev.PermissionSettled) == [ev.PermissionSettled(question.request_id, "no", "nobody")]
    (result,) = results(rig)
    assert "no user can be asked" in result.text
    assert rig.act.ran == []
    assert told(bodies, ev.AgentEnd)[0].reason is ev.EndReason.COMPLETED


async def test_it_is_denied_after_the_grace_period_of_the_last_client() -> None:
    rig = rig_of([call("act", "a")], [call("act", "b")])
    clock, presence = Clock(rig), rig.agent.questions.presence
    with presence.connected():
        with presence.connected():
            await rig.start()
            await asked(rig)
            await clock.until(1)
        assert clock.seconds == [TIMEOUT]
    assert clock.seconds == [TIMEOUT, MAX_ABSENCE_SECONDS]
    assert len(rig.agent.questions.pending) == 1
    clock.strike(MAX_ABSENCE_SECONDS)
    assert rig.agent.questions.pending == ()
    bodies = await rig.finish()
    # The second call finds no client and does not wait.
    assert [settled.by for settled in told(bodies, ev.PermissionSettled)] == ["nobody", "nobody"]
    assert all("no user can be asked" in result.text for result in results(rig))
    assert clock.seconds == [TIMEOUT, MAX_ABSENCE_SECONDS, TIMEOUT]


async def test_a_client_that_reconnects_in_time_is_still_asked() -> None:
    rig = rig_of([call("act", "a")])
    clock, presence = Clock(rig), rig.agent.questions.presence
    with presence.connected():
        await rig.start()
        (question,) = await asked(rig)
        await clock.until(1)
    with presence.connected():
        assert clock.cancelled == [MAX_ABSENCE_SECONDS]
        await rig.agent.questions.answer(question.request_id, YES)
        await rig.finish()
    assert rig.act.ran == ["a"]


async def test_a_request_made_during_the_grace_period_waits_too() -> None:
    rig = rig_of([call("act", "a")])
    with rig.agent.questions.presence.connected():
        await rig.start()
    (question,) = await asked(rig)
    await rig.agent.questions.answer(question.request_id, YES)
    await rig.finish()
    assert rig.act.ran == ["a"]


async def test_the_grace_period_ends_with_the_run() -> None:
    rig = rig_of([call("act", "a")], ANSWER, [call("act", "b")])
    clock, presence = Clock(rig), rig.agent.questions.presence
    with presence.connected():
        await rig.start()
        (question,) = await asked(rig)
        await rig.agent.questions.answer(question.request_id, YES)
    await rig.finish()
    assert clock.cancelled == [TIMEOUT, MAX_ABSENCE_SECONDS]
    bodies = await rig.run()
    assert told(bodies, ev.PermissionSettled)[0].by == "nobody"
    assert clock.seconds == [TIMEOUT, MAX_ABSENCE_SECONDS, TIMEOUT]


async def test_an_unanswered_request_times_out() -> None:
    rig = rig_of([call("act", "a")])
    rig.consent = PermissionConfig(timeout=7.0)
    clock = Clock(rig)
    with rig.agent.questions.presence.connected():
        await rig.start()
        (question,) = await asked(rig)
        await clock.until(1)
        clock.strike()
        bodies = await rig.finish()
        assert clock.seconds == [7.0]
        assert told(bodies, ev.PermissionSettled)[0].by == "timeout"
        assert "did not answer in time" in results(rig)[0].text
        with pytest.raises(Precondition):
            await rig.agent.questions.answer(question.request_id, YES)


async def test_an_abort_does_not_wait_for_an_answer() -> None:
    rig = rig_of([call("act", "a", id="c1"), call("act", "b", id="c2")])
    with rig.agent.questions.presence.connected():
        await rig.start()
        (question,) = await asked(rig)
        assert rig.agent.abort()
        bodies = await rig.finish()
        assert told(bodies, ev.PermissionSettled) == [ev.PermissionSettled(question.request_id, "no", "abort")]
        assert told(bodies, ev.AgentEnd)[0].reason is ev.EndReason.ABORTED
        assert [result.tool_call_id for result in results(rig)] == ["c1", "c2"]
        assert [result.text for result in results(rig)] == ["Not run: the run was stopped."] * 2
        with pytest.raises(Precondition):
            await rig.agent.questions.answer(question.request_id, YES)
    assert rig.act.ran == []


async def test_the_first_answer_counts() -> None:
    rig = rig_of([call("act", "a")])
    questions = rig.agent.questions
    with questions.presence.connected():
        await rig.start()
        (question,) = await asked(rig)
        first, same, other = await asyncio.gather(
            questions.answer(question.request_id, YES),
            questions.answer(question.request_id, YES),
            questions.answer(question.request_id, NO),
            return_exceptions=True,
        )
        assert (first, same) == (None, None)
        assert isinstance(other, Precondition)
        await rig.finish()
        await questions.answer(question.request_id, YES)
        with pytest.raises(Precondition, match="already answered: once"):
            await questions.answer(question.request_id, NO)
        with pytest.raises(NotFound) as caught:
            await questions.answer("q0", YES)
        assert caught.value.code is Code.NOT_FOUND
    assert rig.act.ran == ["a"]


async def test_a_session_answer_allows_similar_calls() -> None:
    turns = [call("act", "a")], [call("act", "a"), call("act", "b")]
    rig = rig_of(*turns)
    with rig.agent.questions.presence.connected():
        await rig.start()
        (question,) = await asked(rig)
        await rig.agent.questions.answer(question.request_id, PermissionDecision("session"))
        (other,) = await asked(rig)
        assert other.arguments == '{"text":"b"}'
        await rig.agent.questions.answer(other.request_id, NO)
        await rig.finish()
    assert rig.act.ran == ["a", "a"]


async def test_always_is_stored_before_it_takes_effect() -> None:
    kept: list[AllowedCall] = []
    full = True

    async def keep(one: AllowedCall) -> None:
        if full:
            raise StorageError("the disk is full")
        kept.append(one)

    rig = rig_of([call("act", "a")])
    rig.consent = PermissionConfig(keep=keep)
    with rig.agent.questions.presence.connected():
        await rig.start()
        (question,) = await asked(rig)
        with pytest.raises(StorageError):
            await rig.agent.questions.answer(question.request_id, PermissionDecision("always"))
        assert rig.agent.questions.pending == (question,)
        full = False
        await rig.agent.questions.answer(question.request_id, PermissionDecision("always"))
        await rig.finish()
    assert kept == [AllowedCall("act", '{"text":"a"}', "/")]
    assert rig.act.ran == ["a"]


@pytest.mark.parametrize("fails", [True, False])
async def test_a_timeout_while_an_answer_is_stored(fails: bool) -> None:
    going, gate = asyncio.Event(), asyncio.Event()

    async def keep(one: AllowedCall) -> None:
        going.set()
        await gate.wait()
        if fails:
            raise KeyError("a bug")

    rig = rig_of([call("act", "a")])
    rig.consent = PermissionConfig(keep=keep)
    clock = Clock(rig)
    with rig.agent.questions.presence.connected():
        await rig.start()
        (question,) = await asked(rig)
        answering = asyncio.create_task(rig.agent.questions.answer(question.request_id, PermissionDecision("always")))
        await going.wait()
        clock.strike()
        gate.set()
        if fails:
            with pytest.raises(KeyError):
                await answering
        else:
            await answering
        bodies = await rig.finish()
    assert told(bodies, ev.PermissionSettled)[0].by == ("timeout" if fails else "person")
    assert rig.act.ran == ([] if fails else ["a"])


async def test_several_requests_wait_at_once() -> None:
    rig = rig_of([call("echo", text, id=text) for text in "abc"], rules={"echo": "ask"})
    with rig.agent.questions.presence.connected():
        await rig.start()
        a, b, c = await asked(rig, 3)
        await rig.agent.questions.answer(c.request_id, YES)
        await rig.agent.questions.answer(a.request_id, NO)
        await rig.agent.questions.answer(b.request_id, YES)
        await rig.finish()
    assert [(one.tool_call_id, one.is_error) for one in results(rig)] == [("a", True), ("b", False), ("c", False)]


async def test_a_dry_run_does_not_ask_about_skipped_calls() -> None:
    rig = rig_of([call("act", "a")], dry_run=True)
    bodies = await rig.run()
    assert told(bodies, ev.PermissionRequest) == []
    assert "would do a" in results(rig)[0].text


async def test_calls_that_a_dry_run_executes_are_authorized_as_usual() -> None:
    rig = rig_of([call("echo", "a")], rules={"echo": "deny"}, dry_run=True)
    await rig.run()
    assert "the rule 'echo'" in results(rig)[0].text


async def test_an_invalid_call_is_not_asked_about() -> None:
    rig = rig_of([call("nothing", "a"), {"call": {"name": "act", "arguments": {"texts": 1}}}])
    bodies = await rig.run()
    assert told(bodies, ev.PermissionRequest) == []
    assert all(result.is_error for result in results(rig))


async def test_a_call_refused_by_a_hook_is_not_asked_about() -> None:
    rig = rig_of([call("act", "a")])
    rig.hooks = hooks(BeforeToolCall=lambda payload: payload | {"answer": {"text": "no acting", "isError": True}})
    bodies = await rig.run()
    assert told(bodies, ev.PermissionRequest) == []
    assert results(rig)[0].text == "no acting"


async def test_a_request_that_cannot_be_recorded_runs_nothing() -> None:
    log = ListLog()
    rig = rig_of([call("act", "a")], log=log)
    log.full_after = 2  # the prompt and the answer
    with rig.agent.questions.presence.connected():
        bodies = await rig.run()
    assert told(bodies, ev.AgentEnd)[0].error.code is Code.STORAGE
    assert told(bodies, ev.PermissionRequest) == []
    assert rig.act.ran == []


async def test_an_answer_that_cannot_be_recorded_does_not_count() -> None:
    log = ListLog()
    rig = rig_of([call("act", "a")], log=log)
    log.full_after = 3  # and the question
    with rig.agent.questions.presence.connected():
        await rig.start()
        (question,) = await asked(rig)
        with pytest.raises(StorageError):
            await rig.agent.questions.answer(question.request_id, YES)
        await rig.finish()
    assert rig.act.ran == []


async def test_pending_requests_are_denied_after_a_restart() -> None:
    first = rig_of([call("act", "a", id="c1"), call("act", "b", id="c2")])
    with first.agent.questions.presence.connected():
        await first.start()
        (question,) = await asked(first)
        left = list(first.log.records)  # the service is killed here
        first.agent.abort()
        await first.finish()
    rig = Rig([ANSWER], permissions=PermissionMode.ASK)
    rig.log.records = left
    state = fold_records(SessionState(rig.header), left)
    assert [one.id for one in state.asked] == [question.request_id]
    rig.agent = Agent(
        SessionWriter(SessionSource(rig.log, state, rig._reload), rig.bus, now=lambda: 0.0),
        TokenCounter(),
        RunningCount(),
    )
    bodies = await rig.run("go on")
    assert rig.agent.session.asked == ()
    (notice,) = told(bodies, ev.Notice)
    assert notice.code == "PERMISSION_DENIED"
    (result,) = results(rig)
    assert (result.tool_call_id, result.is_error) == ("c1", True)
    assert "the service stopped" in result.text
    sent = rig.provider.requests[0].messages
    assert [message.role for message in sent][:3] == [Role.USER, Role.ASSISTANT, Role.TOOL]


# ---- any order of things ----

STEPS = st.lists(
    st.sampled_from(["yes", "no", "session", "wrong", "abort", "late", "come", "leave", "step"]), max_size=12
)


@settings(max_examples=60, deadline=None)
@given(STEPS, st.lists(st.sampled_from(["act", "echo"]), min_size=1, max_size=4))
async def test_every_call_has_one_result_and_no_request_stays_open(steps: list[str], names: list[str]) -> None:
    calls = [call(name, str(index), id=f"c{index}") for index, name in enumerate(names)]
    rig = rig_of(calls, rules={"echo": "ask"})
    clock, questions = Clock(rig), rig.agent.questions
    present = [questions.presence.connected()]
    present[0].__enter__()
    yes: set[str] = set()
    await rig.start()
    for step in steps:
        waiting = questions.pending
        match step:
            case "yes" | "no" | "session" if waiting:
                given_ = PermissionDecision("once" if step == "yes" else step)  # type: ignore[arg-type]
                await questions.answer(waiting[0].request_id, given_)
                if step != "no":
                    yes.add(waiting[0].tool_call_id)
            case "wrong":
                with pytest.raises(NotFound):
                    await questions.answer("unknown", YES)
            case "abort":
                rig.agent.abort()
            case "late":
                clock.strike()
            case "come":
                present.append(questions.presence.connected())
                present[-1].__enter__()
            case "leave" if present:
                present.pop().__exit__(None, None, None)
            case _:
                await asyncio.sleep(0)
    while present:
        present.pop().__exit__(None, None, None)
    while rig.agent.busy:
        clock.strike()
        await asyncio.sleep(0)
    await rig.finish()
    ids = [f"c{index}" for index in range(len(names))]
    if any(message.tool_calls and not message.incomplete for message in rig.messages):
        assert [result.tool_call_id for result in results(rig)] == ids
    questioned = [record.id for record in rig.log.records if isinstance(record, PermissionAsked)]
    answered = [record.id for record in rig.log.records if isinstance(record, PermissionAnswered)]
    assert sorted(questioned) == sorted(answered)
    assert questions.pending == rig.agent.session.asked == ()
    ran = {result.tool_call_id for result in results(rig) if not result.is_error}
    assert ran <= yes
    assert await drain(rig.watch) == []
