"""The rules of Ollama requests find what is wrong, one thing at a time."""

from copy import deepcopy
from typing import Any

import pytest

from doubles.ollama_rules import violations

CALL = {"id": "a", "function": {"name": "ls", "arguments": {}}}
LEGAL: dict[str, Any] = {
    "model": "m",
    "stream": True,
    "think": "low",
    "truncate": False,
    "options": {"num_ctx": 4096, "num_predict": 5, "temperature": 0.5},
    "tools": [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}],
    "messages": [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "", "images": ["AAAA"]},
        {"role": "assistant", "content": "", "thinking": "t", "tool_calls": [CALL]},
        {"role": "tool", "content": "x", "tool_name": "ls", "tool_call_id": "a"},
    ],
}


def test_a_valid_request_passes() -> None:
    assert violations(LEGAL) == []


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("model", "", "model"),
        ("think", "much", "think value"),
        ("truncate", "no", "truncate"),
        ("options.num_ctx", 0, "num_ctx"),
        ("options.num_ctx", "5", "num_ctx"),
        ("options.num_predict", 0, "no answer"),
        ("options.temperature", True, "temperature"),
        ("tools.0.type", "f", "tools[0]"),
        ("tools.0.function.name", "a.b", "tools[0]"),
        ("tools.0.function.parameters", {}, "type object"),
        ("tools.0.function.parameters.properties", {"a": {"properties": {"b": True}}}, "property b"),
        ("messages", [], "no messages"),
        ("messages.0.role", "developer", "does not exist"),
        ("messages.0.content", None, "no text"),
        ("messages.0.content", " ", "blank"),
        ("messages.1.images", ["data:image/png;base64,AAAA"], "base64"),
        ("messages.1.images", [], "blank"),
        ("messages.1.role", "system", "does not lead"),
        ("messages.1.thinking", "t", "calls or thinking"),
        ("messages.2.thinking", 5, "thinking is no text"),
        ("messages.2.tool_calls.0.id", "", "no id"),
        ("messages.2.tool_calls.0.function.name", "a b", "'a b'"),
        ("messages.2.tool_calls.0.function.arguments", "{}", "not an object"),
        ("messages.2.tool_calls", [CALL, CALL | {"id": "b"}], "no result"),
        ("messages.2.tool_calls", [CALL, CALL], "second call"),
        ("messages.3.tool_call_id", "b", "answers no call"),
        ("messages.3.tool_name", "", "names no call"),
        ("messages.3.role", "assistant", "follow each other"),
        ("messages.3.role", "assistant", "ends with the assistant"),
    ],
)
def test_a_request_with_one_error_is_rejected(path: str, value: object, words: str) -> None:
    body = deepcopy(LEGAL)
    *parents, last = path.split(".")
    place: Any = body
    for name in parents:
        place = place[int(name)] if name.isdecimal() else place[name]
    place[int(last) if last.isdecimal() else last] = value
    assert any(words in problem for problem in violations(body)), violations(body)
