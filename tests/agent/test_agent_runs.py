"""Runs through the agent's public interface: events, records and requests to the model."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from doubles.rig import ListLog, Rig, call
from yarrow.agent import message_builder
from yarrow.config.settings import ServiceSettings
from yarrow.errors import Code, LimitExceeded, Precondition, StorageError
from yarrow.event import events as ev
from yarrow.message import Role, StopReason, Text, Thinking, ThinkingLevel
from yarrow.provider.base import CompletionRequest, ProviderEvent, TextPiece
from yarrow.provider.scripted import ScriptedProvider, make_script
from yarrow.session.record import Queued, Undelivered

LIMITS = ServiceSettings()


def end(bodies: list[ev.Body]) -> ev.AgentEnd:
    last = bodies[-1]
    assert isinstance(last, ev.AgentEnd)
    return last


def of_kind(bodies: list[ev.Body], kind: type) -> list[Any]:
    return [body for body in bodies if isinstance(body, kind)]


async def test_a_plain_answer() -> None:
    rig = Rig([[{"text": "Hel"}, {"text": "lo"}, {"usage": {"input": 3, "output": 2}}]])
    bodies = await rig.run("hi")
    assert [body.text for body in of_kind(bodies, ev.TextDelta)] == ["Hel", "lo"]
    assert end(bodies).reason is ev.EndReason.COMPLETED
    assert (end(bodies).usage.input, end(bodies).usage.output) == (3, 2)
    user, answer = rig.messages
    assert (user.role, user.text) == (Role.USER, "hi")
    assert (answer.role, answer.text, answer.stop_reason) == (Role.ASSISTANT, "Hello", StopReason.END_TURN)
    assert answer.content == (Text("Hello"),)
    assert (answer.provider, answer.model) == ("scripted", "m")


async def test_call_result_answer() -> None:
    rig = Rig([[{"text": "Look."}, call("echo", "a", id="c1")], [{"expect": {"contains": "a"}}, {"text": "done"}]])
    bodies = await rig.run()
    kinds = [type(body).__name__ for body in bodies if not isinstance(body, ev.StateChange)]
    assert kinds == [
        "AgentStart", "TurnStart", "MessageStart", "TextDelta", "ToolCallEvent", "MessageEnd", "ToolDelta",
        "ToolOutput", "TurnEnd", "TurnStart", "MessageStart", "TextDelta", "MessageEnd", "TurnEnd", "AgentEnd",
    ]  # fmt: skip
    assert [message.role for message in rig.messages] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    result = rig.messages[2]
    assert (result.tool_call_id, result.tool_name, result.text, result.is_error) == ("c1", "echo", "a", False)
    first = rig.provider.requests[0]
    assert (first.system, first.model, [tool.name for tool in first.tools]) == ("be good", "m", ["echo", "act"])


async def test_read_only_calls_run_in_parallel_and_are_emitted_in_order() -> None:
    rig = Rig([[call("echo", text, id=text) for text in "abc"], [{"text": "ok"}]])
    bodies = await rig.run()
    assert [body.tool_call_id for body in of_kind(bodies, ev.ToolOutput)] == ["a", "b", "c"]
    assert [message.tool_call_id for message in rig.messages if message.role is Role.TOOL] == ["a", "b", "c"]


async def test_writing_calls_run_sequentially() -> None:
    rig = Rig([[call("act", "1"), call("echo", "2"), call("act", "3")], [{"text": "ok"}]])
    bodies = await rig.run()
    assert rig.act.ran == ["1", "3"]
    assert [body.text for body in of_kind(bodies, ev.ToolOutput)] == ["did 1", "2", "did 3"]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        (call("act", "boom"), "the tool broke"),
        (call("act", "fail"), "do something else"),
        (call("nothing"), "nothing"),
        ({"call": {"name": "act", "arguments": {"text": 5}}}, "text"),
        ({"call": {"name": "act", "arguments": '{"text": "rm -rf build && ec'}}, "JSON"),
    ],
)
async def test_errors_the_model_can_correct_are_error_results(step: dict[str, Any], expected: str) -> None:
    rig = Rig([[step], [{"text": "ok"}]])
    bodies = await rig.run()
    (output,) = of_kind(bodies, ev.ToolOutput)
    assert output.is_error
    assert expected in output.text
    assert end(bodies).reason is ev.EndReason.COMPLETED


async def test_dry_run_skips_writing_calls_and_previews_them() -> None:
    rig = Rig([[call("act", "x"), call("echo", "y")], [{"text": "ok"}]], dry_run=True)
    bodies = await rig.run()
    act, echo = of_kind(bodies, ev.ToolOutput)
    assert "would do x" in act.text
    assert act.diff == "-a\n+b\n"
    assert echo.text == "y"
    assert rig.act.ran == []


async def test_thinking_is_emitted_only_when_it_is_on() -> None:
    turns = [[{"thinking": "hm"}, {"text": "42"}]]
    off, on = Rig(turns), Rig(turns, thinking=ThinkingLevel.MEDIUM)
    assert of_kind(await off.run(), ev.ThinkingDelta) == []
    assert off.messages[-1].content == (Text("42"),)
    assert of_kind(await on.run(), ev.ThinkingDelta) == [ev.ThinkingDelta("hm")]
    assert on.messages[-1].content == (Thinking("hm"), Text("42"))


async def test_a_model_without_tools_is_offered_none() -> None:
    rig = Rig([[{"text": "ok"}]])
    rig.has_tool_call = False
    bodies = await rig.run()
    assert rig.provider.requests[0].tools == ()
    assert [notice.code for notice in of_kind(bodies, ev.Notice)] == ["NO_TOOLS"]


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ([], Code.EMPTY_RESPONSE),
        ([{"text": " \n"}], Code.EMPTY_RESPONSE),
        ([{"stop": "max_tokens"}], Code.OUTPUT_LIMIT),
        ([{"text": "x"}, {"stop": "content_filter"}], Code.CONTENT_FILTER),
        ([{"stop": "context_window"}], Code.CONTEXT_OVERFLOW),
        ([{"error": {"code": "OVERLOADED", "message": "busy", "retryable": True}}], Code.OVERLOADED),
    ],
)
async def test_law_5_a_turn_without_text_or_calls_is_a_typed_error(steps: list[dict[str, Any]], code: Code) -> None:
    rig = Rig([steps, [{"text": "fine"}]])
    bodies = await rig.run()
    assert end(bodies).reason is ev.EndReason.ERROR
    failure = end(bodies).error
    assert failure is not None
    assert failure.code is code
    assert of_kind(bodies, ev.MessageEnd)[0].error == failure
    assert end(await rig.run("again")).reason is ev.EndReason.COMPLETED


async def test_a_stream_without_a_stop_is_not_an_answer() -> None:
    class BreaksOff(ScriptedProvider):
        async def stream(self, request: CompletionRequest) -> AsyncGenerator[ProviderEvent]:
            yield TextPiece("The answer is ")

    rig = Rig([])
    rig.provider = BreaksOff("scripted", "m", script=make_script([]))
    bodies = await rig.run()
    failure = end(bodies).error
    assert failure is not None
    assert failure.code is Code.STREAM_TRUNCATED
    assert rig.messages[-1].incomplete


async def test_a_request_names_its_session() -> None:
    rig = Rig([[{"text": "ok"}]])
    await rig.run()
    assert [request.session_id for request in rig.provider.requests] == [rig.agent.session.header.id]


async def test_an_endless_answer_is_truncated_and_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(message_builder, "MAX_ANSWER_CHARACTERS", 10)
    rig = Rig([[{"text": "12345"}] * 100, [{"text": "ok"}]])
    bodies = await rig.run()
    failure = end(bodies).error
    assert failure is not None
    assert failure.code is Code.OUTPUT_LIMIT
    assert rig.messages[-1].text == "1234512345"
    assert rig.messages[-1].incomplete
    assert end(await rig.run("again")).reason is ev.EndReason.COMPLETED


async def test_a_failure_after_text_records_the_text_but_never_sends_it() -> None:
    rig = Rig([[{"text": "Half an ans"}, {"error": {"code": "SERVER_ERROR", "message": "gone"}}], [{"text": "ok"}]])
    await rig.run()
    assert rig.messages[-1].incomplete
    assert rig.messages[-1].text == "Half an ans"
    await rig.run("again")
    assert "Half an ans" not in str(
        [message for message in rig.provider.requests[1].messages if not message.incomplete]
    )


async def test_a_failure_before_text_leaves_nothing_in_the_history() -> None:
    rig = Rig([[{"error": {"code": "SERVER_ERROR", "message": "gone"}}]])
    bodies = await rig.run()
    assert [message.role for message in rig.messages] == [Role.USER]
    assert of_kind(bodies, ev.MessageEnd)[0].message_id == ""


async def test_calls_of_a_truncated_message_are_answered_but_not_run() -> None:
    rig = Rig([[call("act", "x"), {"error": {"code": "SERVER_ERROR", "message": "gone"}}], [{"text": "ok"}]])
    bodies = await rig.run()
    (output,) = of_kind(bodies, ev.ToolOutput)
    assert output.is_error
    assert rig.act.ran == []
    assert end(await rig.run("again")).reason is ev.EndReason.COMPLETED


@pytest.mark.parametrize("stop", ["max_tokens", "context_window"])
async def test_case_RA_18_a_run_whose_last_answer_was_truncated_fails(stop: str) -> None:
    rig = Rig([[{"text": "long"}, {"stop": stop}], [{"text": "er"}]])
    ended = end(await rig.run())
    assert (ended.reason, ended.error and ended.error.code) == (ev.EndReason.ERROR, "OUTPUT_LIMIT")
    assert end(await rig.run("the rest?")).reason is ev.EndReason.COMPLETED
    assert [message.text for message in rig.messages if message.role is Role.ASSISTANT] == ["long", "er"]


@pytest.mark.parametrize("steps", [[{"text": "long"}, {"stop": "max_tokens"}], [{"stop": "max_tokens"}]])
@pytest.mark.parametrize(("reads_only", "advice"), [(False, "raise maxTokens"), (True, "use a larger model")])
async def test_a_truncated_answer_says_what_to_do(steps: list[dict[str, Any]], reads_only: bool, advice: str) -> None:
    rig = Rig([steps])
    rig.reads_only = reads_only
    failure = end(await rig.run()).error
    assert failure is not None
    assert failure.code is Code.OUTPUT_LIMIT
    assert f": {advice}" in failure.message


async def test_a_truncated_answer_followed_by_another_does_not_fail_the_run() -> None:
    rig = Rig([[{"text": "on "}, call("act", "x"), {"stop": "max_tokens"}], [{"text": "done"}]])
    assert end(await rig.run()).reason is ev.EndReason.COMPLETED


SENTENCE = "I will start now. "
ANSWERS = {
    "fenced data": "```\n" + "0.0, " * 10_000 + "\n```\n",
    "a rule": "-" * 100_000,
    "numbered lines": "".join(f"line {n}\n" for n in range(9_000)),
    "base64 of zeros": "A" * 100_000,
    "a few repeats": "word " * 2_000,
}


def pieces(text: str, size: int) -> list[dict[str, str]]:
    return [{"text": text[at : at + size]} for at in range(0, len(text), size)]


@pytest.mark.parametrize("size", [1_000, 37, 20_000])
@pytest.mark.parametrize("kind", ["text", "thinking"])
async def test_case_RA_17_endlessly_repeated_text_ends_the_run(kind: str, size: int) -> None:
    spoken = [{kind: one["text"]} for one in pieces("Let me see. " + SENTENCE * 40_000, size)]
    rig = Rig([[*spoken, {"text": "x"}]])
    bodies = await rig.run()
    assert end(bodies).reason is ev.EndReason.LOOP_DETECTED
    said = sum(len(one.text) for one in bodies if isinstance(one, ev.TextDelta | ev.ThinkingDelta))
    assert said < 50_000


@pytest.mark.parametrize("name", list(ANSWERS))
async def test_tables_code_and_similar_lines_do_not_count_as_repetition(name: str) -> None:
    rig = Rig([pieces(ANSWERS[name], 611)])
    assert end(await rig.run()).reason is ev.EndReason.COMPLETED


async def test_the_turn_limit_ends_the_run() -> None:
    rig = Rig([[call("act", str(n))] for n in range(5)], max_turns=3)
    bodies = await rig.run()
    assert end(bodies).reason is ev.EndReason.TURN_LIMIT
    assert rig.act.ran == ["0", "1", "2"]


async def test_the_same_call_with_the_same_result_is_detected_as_a_loop() -> None:
    rig = Rig([[call("act", "x")] for _ in range(9)])
    bodies = await rig.run()
    texts = [output.text for output in of_kind(bodies, ev.ToolOutput)]
    assert ["same call" in text for text in texts] == [False, False, True, True, True]
    assert end(bodies).reason is ev.EndReason.LOOP_DETECTED


async def test_other_results_or_arguments_reset_the_loop_count() -> None:
    rig = Rig([[call("act", "x")], [call("act", "x")], [call("act", "y")], [call("act", "x")], [{"text": "ok"}]])
    bodies = await rig.run()
    assert not any("same call" in output.text for output in of_kind(bodies, ev.ToolOutput))


async def test_a_steer_is_delivered_after_the_tools_before_the_next_model_call() -> None:
    rig = Rig([[call("act", "1"), call("act", "2")], [{"expect": {"contains": "use B"}}, {"text": "ok"}]])
    rig.act.gate = asyncio.Event()
    await rig.start()
    await rig.act.started.wait()
    message_id = await rig.agent.steer((Text("use B"),))
    rig.act.gate.set()
    bodies = await rig.finish()
    assert rig.act.ran == ["1", "2"]
    assert [turn.delivered for turn in of_kind(bodies, ev.TurnStart)] == [(), (ev.QueuedText(message_id, "use B"),)]
    queued = next(record for record in rig.log.records if isinstance(record, Queued))
    assert queued.id == message_id == rig.messages[-2].id
    assert of_kind(bodies, ev.QueueUpdate)[-1] == ev.QueueUpdate((), ())


async def test_a_steer_during_the_last_turn_is_answered() -> None:
    rig = Rig([[{"wait": "w"}, {"text": "a"}], [{"expect": {"contains": "more"}}, {"text": "b"}]])
    await rig.start()
    await rig.agent.steer((Text("more"),))
    rig.provider.gates.setdefault("w", asyncio.Event()).set()
    bodies = await rig.finish()
    assert [delta.text for delta in of_kind(bodies, ev.TextDelta)] == ["a", "b"]


async def test_follow_ups_are_delivered_one_at_a_time_when_the_run_would_end() -> None:
    rig = Rig([[{"wait": "w"}, {"text": "a"}], [{"text": "b"}], [{"text": "c"}]])
    await rig.start()
    for text in ("one", "two"):
        await rig.agent.steer((Text(text),), follow_up=True)
    rig.provider.gates.setdefault("w", asyncio.Event()).set()
    bodies = await rig.finish()
    delivered = [[one.text for one in turn.delivered] for turn in of_kind(bodies, ev.TurnStart)]
    assert delivered == [[], ["one"], ["two"]]


async def test_texts_are_rejected_without_an_active_run() -> None:
    rig = Rig([[{"text": "a"}]])
    with pytest.raises(Precondition) as refused:
        await rig.agent.steer((Text("x"),))
    assert refused.value.code is Code.NOT_RUNNING
    await rig.run()
    with pytest.raises(Precondition):
        await rig.agent.steer((Text("x"),), follow_up=True)


async def test_queued_texts_are_bounded() -> None:
    rig = Rig([[{"wait": "w"}, {"text": "a"}]])
    await rig.start()
    for number in range(LIMITS.queued_texts):
        await rig.agent.steer((Text(str(number)),), follow_up=True)
    with pytest.raises(LimitExceeded):
        await rig.agent.steer((Text("one too many"),))
    rig.agent.abort()
    assert len(end(await rig.finish()).undelivered) == LIMITS.queued_texts


async def test_a_second_prompt_is_rejected_during_a_run() -> None:
    rig = Rig([[{"wait": "w"}, {"text": "a"}]])
    await rig.start()
    with pytest.raises(Precondition) as refused:
        await rig.start("two")
    assert refused.value.code is Code.BUSY
    rig.agent.abort()
    await rig.finish()


async def test_abort_while_the_model_streams() -> None:
    rig = Rig([[{"text": "Hel"}, {"wait": "w"}], [{"text": "ok"}]])
    await rig.start()
    while not rig.watch.buffer or not isinstance(rig.watch.buffer[-1].body, ev.TextDelta):
        await asyncio.sleep(0)
    assert rig.agent.abort()
    assert rig.agent.abort()
    bodies = await rig.finish()
    assert end(bodies).reason is ev.EndReason.ABORTED
    assert rig.messages[-1].incomplete
    assert not rig.agent.abort()
    assert end(await rig.run("and now?")).reason is ev.EndReason.COMPLETED


async def test_case_A_01_abort_while_a_tool_runs() -> None:
    rig = Rig([[call("act", "1"), call("act", "2")], [{"expect": {"contains": "and now?"}}, {"text": "ok"}]])
    rig.act.gate = asyncio.Event()
    await rig.start()
    await rig.act.started.wait()
    rig.agent.abort()
    bodies = await rig.finish()
    assert end(bodies).reason is ev.EndReason.ABORTED
    outputs = of_kind(bodies, ev.ToolOutput)
    assert all(output.is_error for output in outputs)
    texts = ["Interrupted. Changes made so far were kept.", "Not run: the run was stopped."]
    assert [output.text for output in outputs] == texts
    assert rig.act.ran == []
    assert end(await rig.run("and now?")).reason is ev.EndReason.COMPLETED


async def test_abort_returns_queued_texts() -> None:
    rig = Rig([[call("act", "1")]])
    rig.act.gate = asyncio.Event()
    await rig.start()
    await rig.act.started.wait()
    steer = await rig.agent.steer((Text("s"),))
    follow_up = await rig.agent.steer((Text("f"),), follow_up=True)
    rig.agent.abort()
    with pytest.raises(Precondition):
        await rig.agent.steer((Text("late"),))
    bodies = await rig.finish()
    assert [one.message_id for one in end(bodies).undelivered] == [steer, follow_up]
    assert [record.id for record in rig.log.records if isinstance(record, Undelivered)] == [steer, follow_up]


async def test_abort_before_the_first_step() -> None:
    rig = Rig([[{"text": "a"}], [{"text": "b"}]])
    await rig.start()
    assert rig.agent.abort()
    assert end(await rig.finish()).reason is ev.EndReason.ABORTED
    assert end(await rig.run()).reason is ev.EndReason.COMPLETED


async def test_a_full_disk_ends_the_run_with_a_typed_error() -> None:
    log = ListLog()
    log.full_after = 1
    rig = Rig([[{"text": "a"}]], log=log)
    bodies = await rig.run()
    failure = end(bodies).error
    assert failure is not None
    assert failure.code is Code.STORAGE
    log.full_after = 0
    log.records.clear()
    with pytest.raises(StorageError):
        await rig.start("not accepted")
    assert rig.agent.state is ev.AgentState.IDLE
    assert not log.held


async def test_a_disk_error_at_the_very_end_leaves_the_session_idle() -> None:
    log = ListLog()
    log.full_at_release = True
    rig = Rig([[{"text": "a"}], [{"text": "b"}]], log=log)
    failure = end(await rig.run()).error
    assert failure is not None
    assert failure.code is Code.STORAGE
    log.full_at_release = False
    assert end(await rig.run("again")).reason is ev.EndReason.COMPLETED


async def test_a_steer_that_cannot_be_recorded_is_rejected() -> None:
    log = ListLog()
    rig = Rig([[{"wait": "w"}, {"text": "a"}]], log=log)
    await rig.start()
    log.full_after = 1
    with pytest.raises(StorageError):
        await rig.agent.steer((Text("x"),))
    log.full_after = None
    rig.provider.gates.setdefault("w", asyncio.Event()).set()
    assert end(await rig.finish()).undelivered == ()


async def test_a_bug_ends_the_run_with_an_id(caplog: pytest.LogCaptureFixture) -> None:
    rig = Rig([[{"text": "a"}]])
    rig.provider = None  # type: ignore[assignment]
    bodies = await rig.run()
    failure = end(bodies).error
    assert failure is not None
    assert failure.code is Code.INTERNAL
    assert "Traceback" not in failure.message
    assert rig.seen[0].run_id in caplog.text
