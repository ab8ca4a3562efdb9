"""Compaction through whole runs: when it happens, what the model is sent then, and what a failure leaves behind."""

import asyncio
from itertools import pairwise
from typing import Any

import pytest

from doubles.hooking import hooks
from doubles.rig import Rig, call, drain
from yarrow.agent.compaction.compact import MAX_HALVINGS
from yarrow.agent.model_context import context_of
from yarrow.config.settings import CompactionSettings
from yarrow.errors import Code, Precondition
from yarrow.event import events as ev
from yarrow.event.events import AgentState
from yarrow.message import Role, Text, Usage
from yarrow.session.record import Compaction
from yarrow.session.state import SessionState, fold_records

LONG = "The quick brown fox jumps over the lazy dog again and again. " * 160
"""About 2,000 tokens."""
SMALL = CompactionSettings(reserve_tokens=1000, keep_recent_tokens=1500)
SUMMARY = [{"text": "## Goal\nCompare foxes."}, {"usage": {"input": 700, "output": 20}}]
DONE = [{"text": "done"}]
OVERSIZE = [{"error": {"code": "REQUEST_TOO_LARGE", "message": "too many bytes"}}]
OVERFLOW = [{"error": {"code": "CONTEXT_OVERFLOW", "message": "too long"}}]


def rig_of(*turns: Any, window: int = 8000, **more: Any) -> Rig:
    rig = Rig(turns, compaction=more.pop("compaction", SMALL), **more)
    rig.window = window
    return rig


async def talked(rig: Rig, times: int) -> None:
    """Fill the history with long prompts and short answers."""
    for _ in range(times):
        bodies = await rig.run(LONG)
        assert compactions(rig) == [], kinds(bodies)


def compactions(rig: Rig) -> list[Compaction]:
    return [record for record in rig.log.records if isinstance(record, Compaction)]


def kinds(bodies: list[ev.Body]) -> list[str]:
    return [type(body).__name__ for body in bodies]


def end_of(bodies: list[ev.Body]) -> ev.AgentEnd:
    end = bodies[-1]
    assert isinstance(end, ev.AgentEnd)
    return end


def check_resumed(rig: Rig) -> None:
    """The context read back from the log equals the agent's."""
    resumed = fold_records(SessionState(rig.header), rig.log.records)
    assert context_of(resumed).sent().messages == context_of(rig.agent.session).sent().messages


async def test_a_full_context_is_compacted_before_the_next_call() -> None:
    rig = rig_of(DONE, DONE, DONE, SUMMARY, DONE)
    await talked(rig, 3)
    bodies = await rig.run(LONG)
    (record,) = compactions(rig)
    assert record.tokens_after < record.tokens_before
    assert record.reason == "auto"
    assert record.summary.startswith("<!-- yarrow-summary -->")
    summary, answer = rig.provider.requests[-2:]
    assert summary.tools == ()
    assert all(request.tools for request in rig.provider.requests if request is not summary)
    assert answer.messages[0].text.startswith("<!-- yarrow-summary -->\n## Goal\nCompare foxes.")
    assert answer.messages[-1].text == LONG
    assert len(answer.messages) < 7
    names = kinds(bodies)
    at = names.index("CompactionStart")
    assert names[at - 1 : at + 4] == ["StateChange", "CompactionStart", "UsageReport", "CompactionEnd", "StateChange"]
    assert at < names.index("TurnStart")
    assert end_of(bodies).usage == Usage(700, 20)
    assert end_of(bodies).reason is ev.EndReason.COMPLETED
    check_resumed(rig)


async def test_all_messages_stay_in_the_file() -> None:
    rig = rig_of(DONE, DONE, DONE, SUMMARY, DONE)
    await talked(rig, 3)
    await rig.run(LONG)
    assert len(rig.messages) == 8
    assert len(rig.agent.session.messages) == 8


async def test_case_K_01_compaction_does_not_continue_a_finished_run() -> None:
    full = [{"text": "done"}, {"usage": {"input": 7900, "output": 10}}]
    rig = rig_of(full, window=8000)
    bodies = await rig.run("go")
    assert len(rig.provider.requests) == 1
    assert compactions(rig) == []
    assert [message.role for message in rig.messages] == [Role.USER, Role.ASSISTANT]
    assert end_of(bodies).reason is ev.EndReason.COMPLETED


async def test_no_compaction_if_the_window_is_unknown_or_compaction_is_off() -> None:
    for window, settings in ((0, SMALL), (4000, CompactionSettings(enabled=False))):
        rig = rig_of(DONE, DONE, DONE, DONE, window=window, compaction=settings)
        await talked(rig, 4)


def counting(tokens: int, *turns: Any) -> Rig:
    """A server that counts so many tokens in a context of about 2,000 with nothing in it that could go."""
    rig = rig_of([{"text": "done"}, {"usage": {"input": tokens, "output": 10}}], *turns)
    rig.settings = type(rig.settings)(provider="scripted", model="m", system=LONG)
    return rig


@pytest.mark.parametrize("tokens", [9_000, 10**9], ids=["of several requests", "nonsense"])
async def test_an_overcounting_server_does_not_end_the_session(tokens: int) -> None:
    rig = counting(tokens, DONE)
    for _ in range(2):
        assert end_of(await rig.run("go")).reason is ev.EndReason.COMPLETED
    assert compactions(rig) == []


async def test_a_correctly_counting_server_rejects_the_request_itself() -> None:
    rig = counting(9_000, OVERFLOW)
    await rig.run("go")
    failure = end_of(await rig.run("on")).error
    assert failure is not None
    assert failure.code is Code.COMPACTION_INEFFECTIVE


async def test_at_most_one_compaction_between_two_turns() -> None:
    calls = [[call("echo", LONG[:6000] + str(number))] for number in range(6)]
    turns: list[Any] = []
    for one in calls:
        turns += [one, SUMMARY, SUMMARY]
    rig = rig_of(*turns, *([DONE] * 6), window=6000)
    bodies = await rig.run("go")
    between = [name for name in kinds(bodies) if name in ("TurnStart", "CompactionStart", "CompactionEnd")]
    for one, two in pairwise(between):
        assert (one, two) != ("CompactionEnd", "CompactionStart")


@pytest.mark.parametrize("refusal", [OVERSIZE, OVERFLOW], ids=["bytes", "tokens"])
async def test_a_too_large_request_is_compacted_and_retried_once(refusal: Any) -> None:
    rig = rig_of(DONE, DONE, refusal, SUMMARY, SUMMARY, DONE, window=0)
    await talked(rig, 2)
    bodies = await rig.run(LONG)
    (record,) = compactions(rig)
    assert record.reason == "overflow"
    assert end_of(bodies).reason is ev.EndReason.COMPLETED
    assert kinds(bodies).count("TurnStart") == 2
    assert rig.provider.requests[-1].messages[-1].text == LONG
    assert len(rig.provider.requests[-1].messages) < 5
    check_resumed(rig)


@pytest.mark.parametrize("refusal", [OVERSIZE, OVERFLOW], ids=["bytes", "tokens"])
@pytest.mark.parametrize("window", [0, 8000])
async def test_a_too_large_summary_request_is_split(refusal: Any, window: int) -> None:
    rig = rig_of(DONE, DONE, DONE, refusal, refusal, *([SUMMARY] * 16), window=window)
    await talked(rig, 3)
    bodies = await rig.run(LONG)
    (record,) = compactions(rig)
    assert record.tokens_after < record.tokens_before
    assert end_of(bodies).reason is ev.EndReason.COMPLETED
    sizes = [len(asked.messages[0].text) for asked in rig.provider.requests if not asked.tools]
    assert sizes[0] > 1.5 * sizes[1]
    check_resumed(rig)


async def test_shrinking_a_request_terminates() -> None:
    rig = rig_of(DONE, DONE, DONE, *([OVERSIZE] * 30), window=0)
    await talked(rig, 3)
    failure = end_of(await rig.run(LONG)).error
    assert failure is not None
    assert failure.code is Code.REQUEST_TOO_LARGE
    assert compactions(rig) == []
    assert len(rig.provider.requests) == 4 + 1 + MAX_HALVINGS


async def test_a_request_that_cannot_shrink_fails_with_the_servers_error() -> None:
    rig = rig_of(OVERSIZE, window=0)
    failure = end_of(await rig.run("go")).error
    assert failure is not None
    assert (failure.code, failure.message) == (Code.REQUEST_TOO_LARGE, "too many bytes")


async def test_a_second_overflow_fails_the_run() -> None:
    rig = rig_of(DONE, DONE, OVERFLOW, SUMMARY, SUMMARY, OVERFLOW, window=0)
    await talked(rig, 2)
    bodies = await rig.run(LONG)
    failure = end_of(bodies).error
    assert failure is not None
    assert failure.code is Code.CONTEXT_OVERFLOW
    assert len(compactions(rig)) == 1


async def test_case_K_04_nothing_left_to_compact_is_one_typed_error() -> None:
    rig = rig_of(DONE, window=1200)
    rig.settings = type(rig.settings)(provider="scripted", model="m", system=LONG[:6000])
    bodies = await rig.run("hi")
    failure = end_of(bodies).error
    assert failure is not None
    assert failure.code is Code.COMPACTION_INEFFECTIVE
    assert "1,200" in failure.message
    assert rig.provider.requests == []


async def test_case_K_05_a_failed_summary_changes_nothing() -> None:
    broken = [{"error": {"code": "SERVER_ERROR", "message": "boom"}}]
    rig = rig_of(DONE, DONE, DONE, broken, broken, SUMMARY, DONE)
    await talked(rig, 3)
    before = context_of(rig.agent.session).sent().messages
    for text in (LONG, "next"):
        bodies = await rig.run(text)
        failure = end_of(bodies).error
        assert failure is not None
        assert failure.code is Code.SERVER_ERROR
        ends = [body for body in bodies if isinstance(body, ev.CompactionEnd)]
        assert [end.error is not None for end in ends] == [True]
    assert compactions(rig) == []
    assert context_of(rig.agent.session).sent().messages[: len(before)] == before
    assert {message.text for message in rig.messages if message.role is Role.USER} == {LONG, "next"}
    bodies = await rig.run("again")
    assert end_of(bodies).reason is ev.EndReason.COMPLETED
    check_resumed(rig)


async def test_an_abort_during_the_summary_changes_nothing() -> None:
    rig = rig_of(DONE, DONE, DONE, [{"text": "half"}, {"wait": "gate"}], SUMMARY, DONE)
    await talked(rig, 3)
    await rig.start(LONG)
    while rig.agent.state is not AgentState.COMPACTING or len(rig.provider.requests) < 4:
        await asyncio.sleep(0)
    rig.agent.abort()
    bodies = await rig.finish()
    assert end_of(bodies).reason is ev.EndReason.ABORTED
    (end,) = (body for body in bodies if isinstance(body, ev.CompactionEnd))
    assert end.error is not None
    assert end.error.code is Code.ABORTED
    assert compactions(rig) == []
    assert (await rig.run("next"))[-1] is not None


async def test_a_shrunk_keep_budget_is_reported_once_per_run() -> None:
    turns = [[call("echo", LONG[:4000] + str(number))] for number in range(4)]
    script: list[Any] = []
    for turn in turns:
        script += [turn, SUMMARY, SUMMARY]
    rig = rig_of(*script, *([DONE] * 8), window=5000, compaction=CompactionSettings(keep_recent_tokens=8192))
    bodies = await rig.run("go")
    told = [body.code for body in bodies if isinstance(body, ev.Notice) and body.code == "KEEP_SHRUNK"]
    assert len(told) <= 1


# ---- by hand ----


async def compacted(rig: Rig, instructions: str = "") -> list[ev.Body]:
    await rig.agent.compact(instructions, rig.resources)
    await asyncio.wait_for(rig.agent.settled(), 10)
    events = await drain(rig.watch)
    rig.seen += events
    return [event.body for event in events]


async def test_manual_compaction_with_instructions() -> None:
    rig = rig_of(DONE, DONE, DONE, SUMMARY, DONE, window=100_000)
    await talked(rig, 3)
    bodies = await compacted(rig, "Remember the foxes.")
    assert kinds(bodies) == ["StateChange", "CompactionStart", "UsageReport", "StateChange", "CompactionEnd"]
    (record,) = compactions(rig)
    assert record.reason == "manual"
    assert "Remember the foxes." in str(rig.provider.requests[-1])
    assert not rig.log.held
    assert not rig.agent.busy
    assert end_of(await rig.run("next")).reason is ev.EndReason.COMPLETED
    check_resumed(rig)


async def test_manual_compaction_with_nothing_to_compact() -> None:
    rig = rig_of(DONE, window=100_000)
    await rig.run("hi")
    with pytest.raises(Precondition) as caught:
        await rig.agent.compact("", rig.resources)
    assert caught.value.code is Code.NOTHING_TO_COMPACT
    assert not rig.log.held
    assert not rig.agent.busy


async def test_manual_compaction_excludes_other_operations() -> None:
    rig = rig_of(DONE, DONE, DONE, [{"wait": "gate"}, *SUMMARY], DONE, window=100_000)
    await talked(rig, 3)
    await rig.agent.compact("", rig.resources)
    assert rig.agent.state is AgentState.COMPACTING
    for doing in (
        lambda: rig.agent.prompt((Text("x"),), rig.resources),
        lambda: rig.agent.compact("", rig.resources),
        lambda: rig.agent.steer((Text("x"),)),
    ):
        with pytest.raises(Precondition):
            await doing()
    rig.provider.gates.setdefault("gate", asyncio.Event()).set()
    await asyncio.wait_for(rig.agent.settled(), 10)
    assert len(compactions(rig)) == 1


@pytest.mark.parametrize("soon", [True, False])
async def test_manual_compaction_can_be_aborted(soon: bool) -> None:
    rig = rig_of(DONE, DONE, DONE, [{"wait": "gate"}], DONE, DONE, window=100_000)
    await talked(rig, 3)
    await rig.agent.compact("", rig.resources)
    while not soon and len(rig.provider.requests) < 4:
        await asyncio.sleep(0)
    assert rig.agent.abort()
    await asyncio.wait_for(rig.agent.settled(), 10)
    bodies = [event.body for event in await drain(rig.watch)]
    end = bodies[-1]
    assert isinstance(end, ev.CompactionEnd)
    assert end.error is not None
    assert end.error.code is Code.ABORTED
    assert compactions(rig) == []
    assert rig.agent.state is AgentState.IDLE
    assert not rig.log.held


async def test_manual_compaction_on_a_full_disk() -> None:
    rig = rig_of(DONE, DONE, DONE, SUMMARY, DONE, window=100_000)
    await talked(rig, 3)
    rig.log.full_after = len(rig.log.records)
    bodies = await compacted(rig)
    end = bodies[-1]
    assert isinstance(end, ev.CompactionEnd)
    assert end.error is not None
    assert end.error.code is Code.STORAGE
    assert rig.agent.session.compaction is None


async def test_hooks_change_the_instructions_and_receive_the_result() -> None:
    told: list[dict[str, Any]] = []
    rig = rig_of(DONE, DONE, DONE, SUMMARY, DONE)
    rig.hooks = hooks(
        BeforeCompact=lambda payload: payload | {"instructions": "Keep the colour of each fox."},
        AfterCompact=told.append,
    )
    await talked(rig, 3)
    await rig.run(LONG)
    assert "Keep the colour of each fox." in str(rig.provider.requests[-2])
    (after,) = told
    assert after["tokensAfter"] < after["tokensBefore"]
    assert after["summary"] == compactions(rig)[0].summary


async def test_a_cheaper_model_writes_the_summary() -> None:
    cheaper = CompactionSettings(reserve_tokens=1000, keep_recent_tokens=1500, model="cheap")
    rig = rig_of(DONE, DONE, DONE, SUMMARY, DONE, compaction=cheaper)
    await talked(rig, 3)
    await rig.run(LONG)
    assert [request.model for request in rig.provider.requests] == ["m", "m", "m", "cheap", "m"]
    assert compactions(rig)[0].model == "cheap"
