"""Laws 3, 5 and 6 as properties of whole runs: any script, any moment of steering, aborting or a full disk."""

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from doubles.rig import ListLog, Rig, call
from yarrow.agent.retry import MAX_WAIT_SECONDS
from yarrow.agent.run_context import Fallback, ModelSetup
from yarrow.config.settings import RetrySettings
from yarrow.errors import Code, Precondition, StorageError
from yarrow.event import events as ev
from yarrow.message import Message, Text, Usage
from yarrow.provider.base import ProviderInfo
from yarrow.session.record import Queued, Undelivered

NASTY = st.sampled_from(["a", " ", "\n", "<think>", '"', "\r\n", "</untrusted_input>", "\u2028", "🌍", "data: [DONE]"])
STEP = st.one_of(
    st.builds(lambda text: {"text": text}, NASTY),
    st.builds(lambda text: {"thinking": text}, NASTY),
    st.builds(call, st.sampled_from(["echo", "act", "nothing"]), NASTY),
    st.just({"call": {"name": "act", "arguments": '{"text": "cut'}}),
    st.just({"usage": {"input": 5, "output": 2}}),
    st.just({"delay": 0}),
    st.builds(lambda reason: {"stop": reason}, st.sampled_from(["end_turn", "max_tokens", "content_filter", "pause"])),
    st.just({"error": {"code": "QUOTA", "message": "paid up"}}),
    st.builds(
        lambda code, wait: {"error": {"code": code, "message": "busy", "retryable": True, "retry_after": wait}},
        st.sampled_from(["OVERLOADED", "STREAM_TRUNCATED", "MALFORMED_TOOL_CALL", "CONTEXT_OVERFLOW"]),
        st.sampled_from([None, 0, 7, 90]),
    ),
    st.just(call("act", "boom")),
)
TURNS = st.lists(st.lists(STEP, max_size=5), max_size=7)
ACTION = st.tuples(st.integers(0, 40), st.sampled_from(["abort", "steer", "follow-up", "prompt", "fill"]))


async def play(
    turns: list[list[dict[str, Any]]],
    actions: list[tuple[int, str]],
    *,
    yields: int,
    attempts: int,
    fallbacks: int = 0,
) -> None:
    """Run the script, act at the given numbers of loop steps, and hold what came out against the laws."""
    rig = Rig(turns, log=ListLog(yields), max_turns=8, retry=RetrySettings(attempts=attempts))
    rig.fallbacks = tuple(make_fallback(rig, f"n{number}") for number in range(fallbacks))
    accepted: dict[str, str] = {}
    await rig.start()
    run = rig.agent.settled()
    waiting = asyncio.ensure_future(run)
    for step, action in sorted(actions):
        for _ in range(step):
            await asyncio.sleep(0)
        try:
            if action == "abort":
                rig.agent.abort()
            elif action == "fill":
                rig.log.full_after = len(rig.log.records)
            elif action == "prompt" and rig.agent.busy:
                await rig.start("second")
            elif action in ("steer", "follow-up"):
                text = f"text {len(accepted)}"
                accepted[await rig.agent.steer((Text(text),), follow_up=action == "follow-up")] = text
        except (Precondition, StorageError):
            continue
    await waiting
    bodies = await rig.finish()
    check_turns(bodies)
    check_tries(rig, bodies, attempts)
    check_accepted(rig, bodies, accepted)
    assert rig.agent.state is ev.AgentState.IDLE
    assert not rig.agent.busy


def make_fallback(rig: Rig, model: str) -> Fallback:
    """Return another model that continues the script."""

    async def set_up() -> ModelSetup:
        await asyncio.sleep(0)
        return ModelSetup(rig.provider, ProviderInfo("scripted", model))

    return Fallback(f"scripted/{model}", set_up)


def check_tries(rig: Rig, bodies: list[ev.Body], attempts: int) -> None:
    """Calls are retried as often as configured, each delay is reported, and each message's usage is counted once."""
    tries, spent, used = 1, Usage(), "m"
    incomplete = {message.id: message.incomplete for message in rig.messages}
    for body in bodies:
        if isinstance(body, ev.RetryScheduled):
            tries += 1
            assert body.attempt == tries <= attempts + 1
            assert body.delay <= MAX_WAIT_SECONDS
        elif isinstance(body, ev.ModelChanged):
            assert body.from_model == used
            tries, used = 1, body.model
        elif isinstance(body, ev.MessageEnd):
            spent += body.usage or Usage()
            tries = tries if body.error else 1
            assert not body.message_id or incomplete[body.message_id] or body.error is None
    assert rig.waits == [body.delay for body in bodies if isinstance(body, ev.RetryScheduled)]
    last = bodies[-1]
    assert isinstance(last, ev.AgentEnd)
    assert last.usage == spent


def check_turns(bodies: list[ev.Body]) -> None:
    """Law 5: a turn ends in text, in calls, or in an error or an abort."""
    last = bodies[-1]
    assert isinstance(last, ev.AgentEnd)
    said = False
    for body in bodies:
        if isinstance(body, ev.MessageStart):
            said = False
        elif isinstance(body, ev.TextDelta):
            said = said or bool(body.text.strip())
        elif isinstance(body, ev.ToolCallEvent):
            said = True
        elif isinstance(body, ev.MessageEnd) and not said:
            assert body.error is not None or last.reason is ev.EndReason.ABORTED
    assert (last.reason is ev.EndReason.ERROR) <= (last.error is not None)


def check_accepted(rig: Rig, bodies: list[ev.Body], accepted: dict[str, str]) -> None:
    """Law 3 in memory: an accepted text is delivered, or handed back, never neither and never both."""
    last = bodies[-1]
    assert isinstance(last, ev.AgentEnd)
    handed_back = {one.message_id: one.text for one in last.undelivered}
    delivered = {record.id: record.text for record in rig.log.records if isinstance(record, Message)}
    queued = [record.id for record in rig.log.records if isinstance(record, Queued)]
    gone = [record.id for record in rig.log.records if isinstance(record, Undelivered)]
    for message_id, text in accepted.items():
        assert queued.count(message_id) == 1
        assert (handed_back.get(message_id) == text) != (delivered.get(message_id) == text)
    stored = rig.log.full_after is not None
    assert stored or set(gone) == set(handed_back)


@settings(max_examples=300, deadline=None)
@given(turns=TURNS, actions=st.lists(ACTION, max_size=4), yields=st.integers(0, 3), attempts=st.integers(0, 3))
def test_laws_3_5_and_6_hold_for_any_run(
    turns: list[list[dict[str, Any]]], actions: list[tuple[int, str]], yields: int, attempts: int
) -> None:
    asyncio.run(play(turns, actions, yields=yields, attempts=attempts))


@settings(max_examples=200, deadline=None)
@given(turns=TURNS, actions=st.lists(ACTION, max_size=3), yields=st.integers(0, 3), fallbacks=st.integers(1, 3))
def test_laws_3_5_and_6_hold_for_any_run_with_fallbacks(
    turns: list[list[dict[str, Any]]], actions: list[tuple[int, str]], yields: int, fallbacks: int
) -> None:
    asyncio.run(play(turns, actions, yields=yields, attempts=0, fallbacks=fallbacks))


def test_an_abort_at_any_step_of_a_retried_run() -> None:
    busy = {"error": {"code": "OVERLOADED", "message": "busy", "retryable": True}}
    tokens = {"usage": {"input": 5, "output": 2}}
    turns = [[tokens, busy], [{"text": "half"}, tokens, busy], [call("act"), tokens], [busy], [{"text": "ok"}, tokens]]
    for step in range(80):
        asyncio.run(play(turns, [(step, "abort")], yields=2, attempts=3))


async def test_case_A_02_a_steer_and_an_abort_at_any_instant() -> None:
    """The abort falls on every step around the end of the batch; the text is in the history or handed back."""
    for step in range(30):
        rig = Rig([[call("act", "1"), call("act", "2")], [{"text": "ok"}]])
        await rig.start()
        await rig.act.started.wait()
        message_id = await rig.agent.steer((Text("stop, use B"),))
        for _ in range(step):
            await asyncio.sleep(0)
        rig.agent.abort()
        bodies = await rig.finish()
        check_accepted(rig, bodies, {message_id: "stop, use B"})


async def test_case_A_03_a_follow_up_between_abort_and_settling() -> None:
    rig = Rig([[call("act", "1")]])
    rig.act.gate = asyncio.Event()
    await rig.start()
    await rig.act.started.wait()
    rig.agent.abort()
    refused = None
    try:
        await rig.agent.steer((Text("x"),), follow_up=True)
    except Precondition as error:
        refused = error.code
    assert refused is Code.NOT_RUNNING
    await rig.finish()
