"""The checker of chat-completions requests refuses what a real server refuses."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from yarrow.provider.chat_request_rules import violations

Body = dict[str, Any]


def call(call_id: str) -> Body:
    return {"id": call_id, "type": "function", "function": {"name": "read", "arguments": "{}"}}


LEGAL: Body = {
    "model": "m",
    "stream": True,
    "temperature": 1.0,
    "max_tokens": 5,
    "tools": [{"type": "function", "function": {"name": "read", "description": "", "parameters": {"type": "object"}}}],
    "tool_choice": "auto",
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "tool_calls": [call("a"), call("b")]},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
            ],
        },
    ],
}


def test_a_valid_body_passes() -> None:
    assert violations(LEGAL) == []


def message(position: int, **fields: Any) -> Callable[[Body], object]:
    return lambda body: body["messages"][position].update(fields)


def calls(*entries: object) -> Callable[[Body], object]:
    return message(2, tool_calls=list(entries))


def tool(**fields: Any) -> Callable[[Body], object]:
    return lambda body: body["tools"][0]["function"].update(fields)


def put(**fields: Any) -> Callable[[Body], object]:
    return lambda body: body.update(fields)


def function(**fields: Any) -> Body:
    return call("a") | {"function": {"name": "read", "arguments": "{}"} | fields}


ILLEGAL: list[tuple[Callable[[Body], object], str]] = [
    (put(model=""), "model"),
    (put(stream=False), "stream"),
    (put(temperature=3), "temperature"),
    (put(temperature="hot"), "temperature"),
    (put(max_tokens=0), "max_tokens"),
    (put(max_completion_tokens=5), "both"),
    (lambda body: body.pop("tools"), "tool_choice"),
    (put(tools=[]), "tools"),
    (lambda body: body["tools"].append(body["tools"][0]), "second tool"),
    (lambda body: body["tools"].append("read"), "tools[1]"),
    (tool(name="a b"), "tools[0]"),
    (tool(description=None), "description"),
    (tool(parameters={"type": "string"}), "parameters"),
    (put(messages=[]), "messages"),
    (put(messages="hi"), "messages"),
    (message(1, role="developer"), "role"),
    (message(1, content=" \n"), "blank"),
    (message(1, content=None), "neither a text nor a list"),
    (message(1, content=[]), "neither a text nor a list"),
    (message(1, content=[{"type": "text", "text": ""}]), "blank"),
    (message(1, content=[{"type": "image_url", "image_url": {"url": "http://x/y.png"}}]), "data URL"),
    (message(1, content=[{"type": "audio"}]), "audio"),
    (message(1, tool_calls=[call("z")]), "user message has tool calls"),
    (message(0, content=""), "blank"),
    (lambda body: body["messages"].append({"role": "system", "content": "s"}), "does not lead"),
    (lambda body: body["messages"].pop(1), "begin with the user"),
    (lambda body: body["messages"].append({"role": "assistant", "content": "x"}), "ends with the assistant"),
    (lambda body: body["messages"].append({"role": "user", "content": "x"}), "two user messages"),
    (lambda body: body["messages"][2].pop("tool_calls"), "neither content nor calls"),
    (message(2, content=""), "blank"),
    (calls(), "tool_calls"),
    (calls(call("a"), call("b"), call("c")), "have no result"),
    (calls(call("b"), call("a")), "out of order"),
    (calls(call("a"), call("a")), "second call has the id a"),
    (calls(call("a"), call("")), "no id"),
    (calls(call("a") | {"type": "x"}), "type function"),
    (calls(function(name="a.b")), "a.b"),
    (calls(function(arguments={})), "JSON object"),
    (calls(function(arguments="[]")), "JSON object"),
    (message(3, content=""), "blank"),
    (message(3, tool_call_id=""), "names no call"),
    (lambda body: body["messages"].pop(4), "have no result"),
    (lambda body: body["messages"].append({"role": "tool", "tool_call_id": "a", "content": "x"}), "answers no call"),
    (lambda body: body["messages"].__delitem__(slice(4, 6)), "the calls b have no result"),
]


@pytest.mark.parametrize(("change", "expected"), ILLEGAL, ids=[f"{n}-{text}" for n, (_, text) in enumerate(ILLEGAL)])
def test_an_invalid_body_is_rejected(change: Callable[[Body], object], expected: str) -> None:
    body = copy.deepcopy(LEGAL)
    change(body)
    assert any(expected in problem for problem in violations(body)), violations(body)
