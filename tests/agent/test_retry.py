"""Failed model calls are tried again: how often, after how long, and what is left of a failed try."""

import asyncio
from typing import Any

import pytest

from doubles.rig import Rig, call
from yarrow.agent.model_call_recovery import MAX_PAUSES
from yarrow.agent.retry import JITTER, MAX_WAIT_SECONDS, Clock, RetryPolicy
from yarrow.config.settings import CompactionSettings, RetrySettings
from yarrow.errors import Code, ProviderError
from yarrow.event import events as ev
from yarrow.message import StopReason, Text, ThinkingLevel
from yarrow.session.record import Compaction

BUSY = {"error": {"code": "OVERLOADED", "message": "busy", "retryable": True}}
DEFAULT = RetrySettings()


def failing(code: str = "OVERLOADED", **more: Any) -> list[dict[str, Any]]:
    return [{"error": {"code": code, "message": "no", "retryable": True, **more}}]


def scheduled(bodies: list[ev.Body]) -> list[tuple[int, float, Code]]:
    return [(one.attempt, one.delay, one.code) for one in bodies if isinstance(one, ev.RetryScheduled)]


def end(bodies: list[ev.Body]) -> ev.AgentEnd:
    last = bodies[-1]
    assert isinstance(last, ev.AgentEnd)
    return last


async def test_three_retries_after_2_4_and_8_seconds_leave_no_trace() -> None:
    rig = Rig([[BUSY], [BUSY], [BUSY], [{"text": "fine"}]], retry=DEFAULT)
    bodies = await rig.run()
    assert end(bodies).reason is ev.EndReason.COMPLETED
    assert rig.waits == [2, 4, 8]
    assert scheduled(bodies) == [(2, 2, Code.OVERLOADED), (3, 4, Code.OVERLOADED), (4, 8, Code.OVERLOADED)]
    assert [message.text for message in rig.messages] == ["go", "fine"]


async def test_after_the_last_retry_the_run_fails_with_its_error() -> None:
    rig = Rig([[BUSY]] * 5, retry=DEFAULT)
    bodies = await rig.run()
    failure = end(bodies).error
    assert failure is not None
    assert failure.code is Code.OVERLOADED
    assert len(rig.provider.requests) == 4
    assert [message.text for message in rig.messages] == ["go"]


async def test_each_model_call_has_its_own_retries() -> None:
    rig = Rig([[BUSY], [BUSY], [call("echo")], [BUSY], [BUSY], [BUSY], [{"text": "fine"}]], retry=DEFAULT)
    assert end(await rig.run()).reason is ev.EndReason.COMPLETED
    assert rig.waits == [2, 4, 2, 4, 8]


async def test_retries_and_delays_are_configurable() -> None:
    rig = Rig([[BUSY]] * 5, retry=RetrySettings(attempts=1, base_delay=0.5))
    assert end(await rig.run()).reason is ev.EndReason.ERROR
    assert rig.waits == [0.5]


async def test_emitted_text_is_recorded_as_incomplete_and_never_sent() -> None:
    rig = Rig([[{"text": "The answer"}, BUSY], [{"text": "fine"}]], retry=DEFAULT)
    bodies = await rig.run()
    assert end(bodies).reason is ev.EndReason.COMPLETED
    assert [(message.text, message.incomplete) for message in rig.messages] == [
        ("go", False),
        ("The answer", True),
        ("fine", False),
    ]
    # Incomplete messages are omitted when a request is built.
    assert [message.text for message in rig.provider.requests[1].messages if not message.incomplete] == ["go"]
    assert [body.turn for body in bodies if isinstance(body, ev.TurnStart)] == [1, 2]


async def test_thinking_alone_leaves_nothing() -> None:
    rig = Rig([[{"thinking": "hm"}, BUSY], [{"text": "fine"}]], retry=DEFAULT, thinking=ThinkingLevel.MEDIUM)
    await rig.run()
    assert [message.text for message in rig.messages] == ["go", "fine"]


@pytest.mark.parametrize(
    ("code", "tries"),
    [("EMPTY_RESPONSE", 2), ("MALFORMED_TOOL_CALL", 3), ("STREAM_TRUNCATED", 4), ("QUOTA", 1), ("AUTH", 1)],
)
async def test_the_number_of_retries_depends_on_the_failure(code: str, tries: int) -> None:
    is_passing = tries > 3
    script = [[]] * 5 if code == "EMPTY_RESPONSE" else [failing(code, retryable=is_passing)] * 5
    rig = Rig(script, retry=DEFAULT)
    failure = end(await rig.run()).error
    assert failure is not None
    assert failure.code is Code(code)
    assert len(rig.provider.requests) == tries


async def test_an_empty_answer_after_an_overload_has_its_own_retry() -> None:
    rig = Rig([[BUSY], [], [{"text": "fine"}]], retry=DEFAULT)
    assert end(await rig.run()).reason is ev.EndReason.COMPLETED
    assert rig.waits == [2, 4]


async def test_failures_of_any_kind_count_together() -> None:
    rig = Rig([[BUSY], [], [BUSY], failing("SERVER_ERROR"), [{"text": "never"}]], retry=DEFAULT)
    failure = end(await rig.run()).error
    assert failure is not None
    assert failure.code is Code.SERVER_ERROR
    assert len(rig.provider.requests) == 4


async def test_blank_text_does_not_count_as_emitted() -> None:
    rig = Rig([[{"text": " \n"}, BUSY], [{"text": " "}], [{"text": "fine"}]], retry=DEFAULT)
    await rig.run()
    assert [message.text for message in rig.messages] == ["go", "fine"]


async def test_the_delay_is_at_most_a_minute() -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    retries = RetryPolicy(RetrySettings(attempts=2000), Clock(sleep, lambda: 0.0), lambda _: None)
    for _ in range(2000):
        await retries.wait(ProviderError(Code.SERVER_ERROR, "no", retryable=True))
    assert waits[:6] == [2, 4, 8, 16, 32, 60]
    assert waits[-1] == MAX_WAIT_SECONDS


async def test_case_P_24_a_requested_delay_is_respected() -> None:
    rig = Rig([failing("RATE_LIMIT", retry_after=7.5), [{"text": "fine"}]], retry=DEFAULT)
    assert end(await rig.run()).reason is ev.EndReason.COMPLETED
    assert rig.waits == [7.5]


async def test_case_P_24_a_requested_delay_of_a_day_fails_at_once() -> None:
    rig = Rig([failing("RATE_LIMIT", retry_after=86_400.0), [{"text": "fine"}]], retry=DEFAULT)
    failure = end(await rig.run()).error
    assert failure is not None
    assert "86,400 s" in failure.message
    assert rig.waits == []


async def test_case_P_24_an_abort_during_the_delay_takes_effect_at_once() -> None:
    rig = Rig([[BUSY], [{"text": "never"}]], retry=DEFAULT)
    rig.wait_gate = asyncio.Event()
    await rig.start()
    while not rig.waits:
        await asyncio.sleep(0)
    assert rig.agent.abort()
    bodies = await rig.finish()
    assert end(bodies).reason is ev.EndReason.ABORTED
    assert len(rig.provider.requests) == 1


async def test_a_steer_during_the_delay_is_sent_with_the_retry() -> None:
    rig = Rig([[BUSY], [{"text": "fine"}]], retry=DEFAULT)
    rig.wait_gate = asyncio.Event()
    await rig.start()
    while not rig.waits:
        await asyncio.sleep(0)
    await rig.agent.steer((Text("and this"),))
    rig.wait_gate.set()
    assert end(await rig.finish()).reason is ev.EndReason.COMPLETED
    assert [message.text for message in rig.provider.requests[1].messages] == ["go", "and this"]


async def test_failed_attempts_count_as_turns() -> None:
    rig = Rig([[BUSY]] * 5, retry=DEFAULT, max_turns=2)
    failure = end(await rig.run()).error
    assert failure is not None
    assert failure.code is Code.TURN_LIMIT


@pytest.mark.parametrize("chance", [0.0, 0.5, 0.999])
async def test_jitter_only_lengthens_delays(chance: float) -> None:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    retries = RetryPolicy(DEFAULT, Clock(sleep, lambda: chance), lambda _: None)
    for _ in range(3):
        await retries.wait(ProviderError(Code.SERVER_ERROR, "no", retryable=True))
    assert waits == [least * (1 + JITTER * chance) for least in (2, 4, 8)]


async def test_a_failed_summary_is_retried() -> None:
    turns = [[{"text": "word " * 400}], [{"text": "word " * 400}], [BUSY], [{"text": "## Goal\nnotes"}]]
    rig = Rig(turns, retry=DEFAULT, compaction=CompactionSettings(keep_recent_tokens=10))
    rig.window = 8000
    await rig.run("first " + "word " * 400)
    await rig.run("second " + "word " * 400)
    await rig.agent.compact("", rig.resources)
    await rig.agent.settled()
    assert rig.waits == [2]
    assert any(isinstance(record, Compaction) for record in rig.log.records)


async def test_an_empty_summary_is_retried_once() -> None:
    turns = [[{"text": "word " * 400}], [{"text": "word " * 400}], [], [{"text": "## Goal\nnotes"}]]
    rig = Rig(turns, retry=DEFAULT, compaction=CompactionSettings(keep_recent_tokens=10))
    rig.window = 8000
    await rig.run("first " + "word " * 400)
    await rig.run("second " + "word " * 400)
    await rig.agent.compact("", rig.resources)
    await rig.agent.settled()
    assert rig.waits == [2]
    assert any(isinstance(record, Compaction) for record in rig.log.records)


async def test_a_failed_compaction_is_not_retried_as_a_model_call() -> None:
    rig = Rig(
        [[{"text": "word " * 400}], *[[BUSY]] * 20],
        retry=DEFAULT,
        compaction=CompactionSettings(keep_recent_tokens=10, reserve_tokens=100),
    )
    await rig.run("first " + "word " * 400)
    rig.window = 900
    failure = end(await rig.run("second")).error
    assert failure is not None
    assert failure.code is Code.OVERLOADED
    assert rig.waits == [2, 4, 8]


async def test_an_overflowing_summary_is_retried_for_the_reported_window() -> None:
    overflow = failing("CONTEXT_OVERFLOW", retryable=False, context_window=800)
    rig = Rig(
        [[{"text": "word " * 400}], overflow, [{"text": "## Goal\nnotes"}], [{"text": "fine"}]],
        retry=DEFAULT,
        compaction=CompactionSettings(keep_recent_tokens=10, reserve_tokens=100),
    )
    await rig.run("first " + "word " * 400)
    rig.window = 900
    bodies = await rig.run("second")
    assert end(bodies).reason is ev.EndReason.COMPLETED
    assert [body.reason for body in bodies if isinstance(body, ev.CompactionStart)] == ["auto", "overflow"]
    assert [body.turn for body in bodies if isinstance(body, ev.TurnStart)] == [1]
    assert rig.waits == []


async def test_case_P_26_an_unknown_stop_reason_is_reported() -> None:
    rig = Rig([[{"text": "fine"}, {"stop": "other"}]], retry=DEFAULT)
    bodies = await rig.run()
    assert [body.code for body in bodies if isinstance(body, ev.Notice)] == ["STOP_REASON"]
    assert [body.stop_reason for body in bodies if isinstance(body, ev.MessageEnd)] == [StopReason.OTHER]


async def test_case_P_26_a_paused_message_is_sent_back_and_the_turn_continues() -> None:
    rig = Rig([[{"text": "I search"}, {"stop": "pause"}], [{"text": "found"}]], retry=DEFAULT)
    bodies = await rig.run()
    assert end(bodies).reason is ev.EndReason.COMPLETED
    assert [message.text for message in rig.provider.requests[1].messages] == ["go", "I search"]
    assert [message.text for message in rig.messages] == ["go", "I search", "found"]


async def test_case_P_26_endless_pauses_are_bounded() -> None:
    rig = Rig([[{"text": "I search"}, {"stop": "pause"}]] * 30, retry=DEFAULT)
    failure = end(await rig.run()).error
    assert failure is not None
    assert "paused" in failure.message
    assert len(rig.provider.requests) == MAX_PAUSES + 1
