"""Telemetry of runs: their tree of spans, their metrics, and no content."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from doubles.house import House, play, stub_of
from doubles.measured import Measured
from yarrow.config.settings import CompactionSettings
from yarrow.event import events as ev
from yarrow.event.bus import BUFFER_EVENTS, Bus
from yarrow.v1 import agent_pb2 as pb

USAGE = {"usage": {"input": 10, "output": 5, "cacheRead": 3, "cacheWrite": 2}}
LONG = "The quick brown fox jumps over the lazy dog again and again. " * 160
BUSY = [{"error": {"code": "OVERLOADED", "message": "PRIVATE", "retryable": True}}]


def calls(*named: tuple[str, str]) -> list[dict[str, Any]]:
    return [{"call": {"name": name, "arguments": {"text": text}}} for name, text in named]


async def test_spans_nest_as_run_turn_model_call_and_tools(tmp_path: Path) -> None:
    measured = Measured()
    turns = [[*calls(("echo", "a"), ("echo", "b"), ("act", "c")), USAGE], [{"text": "done"}, USAGE]]
    house = House(tmp_path, turns, watch=measured.reports)
    async with stub_of(house) as stub:
        await play(stub, house.prompt("go", "s1"))
        sessions = measured.points("yarrow.sessions")
    [chat] = {span.name for span in measured.spans if span.name.startswith("chat")}
    assert measured.tree() == {
        "": ["invoke_agent yarrow"],
        "invoke_agent yarrow": ["turn", "turn"],
        "turn": [chat, "execute_tool echo", "execute_tool echo", "execute_tool act", chat],
    }
    first = next(span for span in measured.spans if span.name == chat)
    assert dict(first.attributes or {}) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.request.model": chat.removeprefix("chat "),
        "gen_ai.conversation.id": "s1",
        "gen_ai.response.finish_reasons": ("tool_use",),
        "gen_ai.usage.input_tokens": 15,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 3,
        "gen_ai.usage.cache_creation.input_tokens": 2,
    }
    run = measured.named("invoke_agent yarrow").attributes or {}
    assert (run["yarrow.run.end_reason"], run["gen_ai.usage.input_tokens"]) == ("completed", 30)
    assert [point.value for point in sessions] == [1]
    [runs] = measured.points("yarrow.runs")
    assert (runs.value, dict(runs.attributes)) == (1, {"yarrow.run.end_reason": "completed"})
    tokens = {
        point.attributes["gen_ai.token.type"]: point.sum for point in measured.points("gen_ai.client.token.usage")
    }
    assert tokens == {"input": 30, "output": 10}
    [duration] = measured.points("gen_ai.client.operation.duration")
    assert duration.count == 2


async def test_a_tool_span_lasts_as_long_as_the_tool(tmp_path: Path) -> None:
    measured = Measured()
    house = House(tmp_path, [calls(("act", "c")), [{"text": "done"}]], watch=measured.reports)
    house.act.gate = asyncio.Event()
    async with stub_of(house) as stub:
        playing = asyncio.ensure_future(play(stub, house.prompt("go", "s1")))
        await house.act.started.wait()
        loop = asyncio.get_running_loop()
        loop.call_later(0.05, house.act.gate.set)
        await playing
    span = measured.named("execute_tool act")
    assert span.end_time is not None
    assert span.start_time is not None
    assert 0.04e9 <= span.end_time - span.start_time < 30e9


async def test_a_retry_is_a_span_event_and_a_failure_an_error_type(tmp_path: Path) -> None:
    measured = Measured()
    house = House(tmp_path, [BUSY, [{"text": "fine"}]], watch=measured.reports)
    async with stub_of(house) as stub:
        await play(stub, house.prompt("go"))
    [retry] = measured.named("invoke_agent yarrow").events
    assert (retry.name, dict(retry.attributes or {})) == (
        "retry",
        {"yarrow.retry.attempt": 2, "yarrow.retry.delay": 2.0, "error.type": "OVERLOADED"},
    )
    failed, fine = [span for span in measured.spans if span.name.startswith("chat")]
    assert (failed.attributes or {})["error.type"] == "OVERLOADED"
    assert not failed.status.is_ok
    assert failed.status.description is None
    assert fine.status.is_unset
    kinds = {point.attributes.get("error.type") for point in measured.points("gen_ai.client.operation.duration")}
    assert kinds == {"OVERLOADED", None}


async def test_calls_after_a_fallback_name_its_model(tmp_path: Path) -> None:
    measured = Measured()
    # Both ids play the same script, each with its own position in it.
    house = House(tmp_path, [BUSY, BUSY, BUSY, BUSY], watch=measured.reports, fallback=("other/m2",))
    async with stub_of(house) as stub:
        await play(stub, house.prompt("go", "s1"))
        await house.parts.providers.close()
    [change] = [one for one in measured.named("invoke_agent yarrow").events if one.name == "fallback"]
    assert dict(change.attributes or {}) == {
        "gen_ai.provider.name": "other",
        "gen_ai.request.model": "m2",
        "error.type": "OVERLOADED",
    }
    named = [span.name for span in measured.spans if span.name.startswith("chat")]
    assert named == ["chat scripted"] * 4 + ["chat m2"] * 4


async def test_an_aborted_run_leaves_no_span_open(tmp_path: Path) -> None:
    measured = Measured()
    house = House(tmp_path, [calls(("act", "c"))], watch=measured.reports)
    house.act.gate = asyncio.Event()
    async with stub_of(house) as stub:
        playing = asyncio.ensure_future(play(stub, house.prompt("go", "s1")))
        await house.act.started.wait()
        await stub.Abort(pb.AbortRequest(session_id="s1"))
        await playing
    assert {span.name.partition(" ")[0] for span in measured.spans} == {"invoke_agent", "turn", "chat", "execute_tool"}
    assert (measured.named("invoke_agent yarrow").attributes or {})["yarrow.run.end_reason"] == "aborted"


async def test_a_compaction_is_a_span_of_its_own(tmp_path: Path) -> None:
    measured = Measured()
    compaction = CompactionSettings(reserve_tokens=1000, keep_recent_tokens=1500)
    summary = [{"text": "## Goal\nSUMMARY"}, {"usage": {"input": 5, "output": 2, "cacheRead": 0, "cacheWrite": 0}}]
    turns = [[{"text": "a"}], [{"text": "b"}], summary]
    house = House(tmp_path, turns, watch=measured.reports, compaction=compaction)
    async with stub_of(house) as stub:
        await play(stub, house.prompt(LONG, "s1"))
        await play(stub, house.prompt(LONG, "s1"))
        _ = [one async for one in stub.Compact(pb.CompactRequest(session_id="s1"))]
    span = measured.named("compaction")
    about = span.attributes or {}
    assert span.parent is None
    assert about["yarrow.compaction.reason"] == "manual"
    assert int(str(about["yarrow.compaction.tokens_after"])) < int(str(about["yarrow.compaction.tokens_before"]))
    tokens = {
        point.attributes["gen_ai.token.type"]: point.sum for point in measured.points("gen_ai.client.token.usage")
    }
    assert tokens == {"input": 5, "output": 2}
    assert "SUMMARY" not in measured.everything()


@pytest.mark.parametrize("content", [False, True])
async def test_content_is_exported_only_on_request(tmp_path: Path, *, content: bool) -> None:
    measured = Measured(content=content)
    secrets = ["PROMPT-TEXT", "ARGUMENT-TEXT", "ANSWER-TEXT"]
    turns = [calls(("echo", secrets[1])), [{"text": secrets[2]}], BUSY, [{"text": "x"}]]
    house = House(tmp_path, turns, watch=measured.reports)
    async with stub_of(house) as stub:
        await play(stub, house.prompt(secrets[0], "s1"))
        await play(stub, house.prompt("again", "s1"))
    told = measured.everything()
    assert [secret in told for secret in secrets] == [content] * 3
    assert "PRIVATE" not in told
    assert str(tmp_path) not in told
    if content:
        run = next(span for span in measured.spans if span.name == "invoke_agent yarrow")
        [message] = json.loads(str((run.attributes or {})["gen_ai.input.messages"]))
        assert message == {"role": "user", "parts": [{"type": "text", "content": "PROMPT-TEXT"}]}


async def test_an_invalid_tool_name_is_not_exported(tmp_path: Path) -> None:
    measured = Measured()
    turns = [calls(("rm -rf /home/me", "a")), [{"text": "x"}]]
    house = House(tmp_path, turns, watch=measured.reports)
    async with stub_of(house) as stub:
        await play(stub, house.prompt("go", "s1"))
    assert "/home/me" not in measured.everything()
    assert measured.named("execute_tool _OTHER").status.is_ok is False


async def test_events_lost_by_slow_subscribers_are_counted() -> None:
    measured = Measured()
    bus = Bus("s", observer=measured.reports.make_observer("s", lambda: ("p", "m")))
    subscription = bus.subscribe()
    for _ in range(BUFFER_EVENTS + 7):
        bus.publish(ev.TextDelta("x"))
    await subscription.take()
    [point] = measured.points("yarrow.events.dropped")
    assert point.value == 7


async def test_a_bug_in_telemetry_does_not_affect_the_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    measured = Measured()

    def model() -> tuple[str, str]:
        raise RuntimeError("PRIVATE")

    bus = Bus("s", observer=measured.reports.make_observer("s", model))
    subscription = bus.subscribe()
    for body in (ev.AgentStart("go", "m1"), ev.TurnStart(1), ev.MessageStart("m2")):
        bus.publish(body)
    assert len(await subscription.take()) == 3
    assert [record.getMessage() for record in caplog.records] == [
        "telemetry of a session stopped because of a bug (RuntimeError)"
    ]
