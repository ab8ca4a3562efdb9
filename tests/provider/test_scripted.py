"""The scripted provider plays what is written and refuses requests that break a rule."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from doubles.completions import send
from doubles.conversation import assistant, user
from yarrow.errors import Code, ConfigError, ProviderError
from yarrow.message import Image, Message, Role, StopReason, ToolCall, ToolSpec, Usage
from yarrow.provider.base import (
    CallPiece,
    CompletionRequest,
    ModelEntry,
    StopPiece,
    TextPiece,
    ThinkingPiece,
    UsagePiece,
)
from yarrow.provider.scripted import SCRIPT_ENDED, ScriptedProvider, ScriptInfo, load_script, make_script, parse_script


def playing(*turns: list[dict[str, Any]], **more: Any) -> ScriptedProvider:
    return ScriptedProvider("scripted", "m", script=make_script(turns), **more)


async def test_every_step() -> None:
    turn: list[dict[str, Any]] = [
        {"expect": {"contains": "hi"}},
        {"thinking": "hm"},
        {"delay": 0},
        {"text": "Let me see."},
        {"call": {"name": "read", "arguments": {"path": "x"}, "id": "c1"}},
        {"call": {"name": "read", "arguments": '{"path":', "id": "c2"}},
        {"call": {"name": "read", "arguments": '{"path": 1}', "id": "c3"}},
        {"usage": {"input": 5, "output": 6, "cacheRead": 7}},
    ]
    assert await send(playing(turn)) == [
        ThinkingPiece("hm"),
        TextPiece("Let me see."),
        CallPiece(ToolCall("c1", "read", '{"path":"x"}')),
        CallPiece(ToolCall("c2", "read", invalid_arguments='{"path":')),
        CallPiece(ToolCall("c3", "read", '{"path": 1}')),
        UsagePiece(Usage(5, 6, cache_read=7)),
        StopPiece(StopReason.TOOL_USE),
    ]


async def test_calls_without_an_id_get_different_ones() -> None:
    events = await send(playing([{"call": {"name": "a"}}, {"call": {"name": "b"}}]))
    first, second = [event.call for event in events if isinstance(event, CallPiece)]
    assert (first.arguments, second.arguments) == ("{}", "{}")
    assert first.id
    assert first.id != second.id


async def test_a_stop_step_ends_the_turn() -> None:
    assert await send(playing([{"text": "a"}, {"stop": "max_tokens"}, {"text": "b"}])) == [
        TextPiece("a"),
        StopPiece(StopReason.MAX_TOKENS),
    ]


async def test_an_error_step_ends_the_turn_and_the_next_turn_follows() -> None:
    error = {"code": "CONTEXT_OVERFLOW", "message": "full", "retryable": True, "context_window": 9, "retry_after": 2}
    provider = playing([{"text": "a"}, {"error": error}], [{"text": "b"}])
    with pytest.raises(ProviderError, match="full") as caught:
        await send(provider)
    failed = caught.value
    assert (failed.code, failed.retryable, failed.context_window, failed.retry_after) == (
        Code.CONTEXT_OVERFLOW,
        True,
        9,
        2,
    )
    assert await send(provider) == [TextPiece("b"), StopPiece(StopReason.END_TURN)]
    assert await send(provider) == [TextPiece(SCRIPT_ENDED), StopPiece(StopReason.END_TURN)]


async def test_a_resumed_session_continues_the_script() -> None:
    turns = [[{"text": "one"}], [{"text": "two"}], [{"text": "three"}]]
    provider = playing(*turns)
    history = (user("hi"), assistant("one"), user("hi"))
    assert (await send(provider, *history))[0] == TextPiece("two")
    assert (await send(provider, user("hi")))[0] == TextPiece("three")
    assert len(provider.requests) == 2


async def test_a_wait_step_pauses_the_turn() -> None:
    gate = asyncio.Event()
    provider = playing([{"text": "a"}, {"wait": "go"}, {"text": "b"}], gates={"go": gate})
    events = provider.stream(CompletionRequest(model="m", messages=(user("hi"),)))
    assert await anext(events) == TextPiece("a")
    held = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    assert not held.done()
    provider.gates["go"].set()
    assert await held == TextPiece("b")
    await events.aclose()


TOOL = ToolSpec("read", "Reads.", {"type": "object"})


@pytest.mark.parametrize(
    ("request_", "complaint"),
    [
        (CompletionRequest(model="", messages=(user("hi"),)), "model"),
        (CompletionRequest(model="m", messages=(user("hi"),), tools=(TOOL, TOOL)), "second tool"),
        (CompletionRequest(model="m", messages=(user("hi"),), tools=(ToolSpec("a b", "", {}),)), r"tools\[0\]"),
        (CompletionRequest(model="m", messages=(user("hi"),), temperature=3.0), "temperature"),
        (CompletionRequest(model="m", messages=(user("hi"),), max_tokens=-1), "max_tokens"),
    ],
)
async def test_an_invalid_request_is_rejected(request_: CompletionRequest, complaint: str) -> None:
    provider = playing([{"text": "first"}])
    with pytest.raises(ProviderError, match=complaint) as caught:
        await anext(provider.stream(request_))
    assert caught.value.code is Code.INVALID_REQUEST
    assert provider.requests == [request_]
    assert (await send(provider))[0] == TextPiece("first")


async def test_a_request_that_fails_an_expectation_is_rejected() -> None:
    with pytest.raises(ProviderError, match=r"'bye'.*'hi'") as caught:
        await send(playing([{"expect": {"contains": "bye"}}]))
    assert caught.value.code is Code.INVALID_REQUEST


@pytest.mark.parametrize("sees", [True, False])
async def test_capabilities_set_by_the_script(sees: bool) -> None:
    claims = ScriptInfo(context_window=4096, max_tokens=5, has_tool_call=False, has_images=sees)
    provider = ScriptedProvider("s", "", script=make_script([[{"text": "x"}]], claims))
    info = await provider.info()
    assert (info.name, info.model, info.context_window, info.max_tokens) == ("s", "scripted", 4096, 5)
    assert (info.has_tool_call, info.has_images) == (False, sees)
    assert await provider.list_models() == [ModelEntry("scripted", 4096)]
    picture = Message(id="u", role=Role.USER, content=(Image("image/png", "AAAA"),), timestamp="")
    assert await send(provider, picture)
    await provider.close()


# -- files ---------------------------------------------------------------------------------------------------------


def test_a_script_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"info": {"contextWindow": 5}, "turns": [[{"text": "a"}], []]}))
    script = load_script(path)
    assert (script.info.context_window, len(script.turns)) == (5, 2)
    assert parse_script(b' [[{"text":"a"}],[]]', "x").turns == script.turns


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "script.json: Input data was truncated"),
        ('{"turns":5}', r"script.json: .*\$.turns"),
        ('{"turnz":[]}', "turnz"),
        ('{"turns":[],"info":{"window":5}}', "window"),
        ("[[{}]]", r"script.json, turns\[0\]\[0\]: a step must have exactly one key"),
        ('[[{"text":"a"},{"text":"b","delay":1}]]', r"turns\[0\]\[1\]: a step must have exactly one key"),
        ('[[],[{"txt":"a"}]]', r"turns\[1\]\[0\]: unknown step 'txt'; use one of text, "),
        ('[[{"text":5}]]', r"turns\[0\]\[0\]: .*\$.text"),
        ('[[{"call":{"arguments":{}}}]]', r"turns\[0\]\[0\].call: .*name"),
        ('[[{"stop":"soon"}]]', r"turns\[0\]\[0\]: .*soon"),
        ('[[{"error":{"code":"NO","message":""}}]]', r"turns\[0\]\[0\].error: "),
    ],
)
def test_an_invalid_script_is_reported_with_file_and_position(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "script.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        load_script(path)


def test_a_missing_script_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the script .*none\.json: No such file"):
        load_script(tmp_path / "none.json")
