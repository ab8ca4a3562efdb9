"""Each rule of messages requests rejects its violation."""

from collections.abc import Callable
from typing import Any

import pytest

from doubles.messages_rules import violations

Body = dict[str, Any]


def body(*messages: Body, **more: Any) -> Body:
    return {"model": "m", "max_tokens": 9, "stream": True, "messages": list(messages) or [user(text())]} | more


def user(*blocks: Body) -> Body:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Body) -> Body:
    return {"role": "assistant", "content": list(blocks)}


def text(words: str = "x", **more: Any) -> Body:
    return {"type": "text", "text": words, **more}


def call(call_id: str = "a", **more: Any) -> Body:
    return {"type": "tool_use", "id": call_id, "name": "ls", "input": {}, **more}


def result(call_id: str = "a", content: Any = "ok", **more: Any) -> Body:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


def image(data: str = "AAAA", media_type: str = "image/png") -> Body:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def thought(signature: str = "s") -> Body:
    return {"type": "thinking", "thinking": "t", "signature": signature}


LS: Body = {"name": "ls", "input_schema": {"type": "object"}}
BUDGET: Body = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000}
MARK: Body = {"cache_control": {"type": "ephemeral"}}
loop: Callable[..., Body] = lambda *blocks, **more: body(  # noqa: E731 - a row reads best in one line
    user(text()), assistant(*(blocks or [call()])), user(result()), tools=[LS], **more
)

LEGAL = [
    body(),
    loop(),
    loop(thought(), call(), **BUDGET),
    body(user(text()), assistant(text()), user(text(), image()), system="s", temperature=1, **BUDGET),
    body(
        user(text()),
        assistant(thought(), call()),
        user(result()),
        assistant(call("b")),
        user(result("b")),
        tools=[LS],
        **BUDGET,
    ),
    body(thinking={"type": "adaptive", "display": "summarized"}, output_config={"effort": "max"}),
    body(user(*[text(**MARK)] * 4)),
]


@pytest.mark.parametrize("legal", LEGAL)
def test_valid_bodies_pass(legal: Body) -> None:
    assert violations(legal) == []


ILLEGAL = [
    (body(seed=1), "seed: Extra inputs"),
    (body(model=" "), "model"),
    (body(stream=False), "stream"),
    (body(max_tokens=None), "max_tokens: Field required"),
    (body(max_tokens=0), "max_tokens: Input"),
    (body(temperature=1.1), "temperature: range"),
    (body(temperature=0.5, **BUDGET), "`temperature` may only be set to 1"),
    (body(temperature=0.5, thinking={"type": "adaptive"}), "`temperature` may only be set to 1"),
    (body(thinking={"type": "on"}), "thinking: Input tag"),
    (body(thinking={"type": "enabled", "budget_tokens": 1023}), "greater than or equal to 1024"),
    (body(**BUDGET | {"max_tokens": 1024}), "must be greater than `thinking.budget_tokens`"),
    (body(tools=[LS], tool_choice={"type": "any"}, **BUDGET), "forces tool use"),
    (body(output_config={"effort": "huge"}), "output_config.effort"),
    (loop(**BUDGET), "messages.1.content.0.type: Expected `thinking`"),
    (
        body(
            user(text()),
            assistant(thought(), call()),
            user(result(), text()),
            assistant(call("b")),
            user(result("b")),
            tools=[LS],
            **BUDGET,
        ),
        "messages.3.content.0.type: Expected `thinking`",
    ),
    (body(user(text()), assistant(call()), user(result())), "must define tools"),
    (body(tool_choice={"type": "none"}), "tool_choice: may only"),
    (body(tools=[LS], tool_choice={"type": "required"}), "tool_choice: Input tag"),
    (body(tools=[LS, LS]), "Tool names must be unique"),
    (body(tools=[LS | {"name": "a.b"}]), "tools.0.name"),
    (body(tools=[LS | {"parameters": {}}]), "tools.0.parameters: Extra"),
    (body(tools=[LS | {"description": None}]), "tools.0.description"),
    (body(tools=[LS | {"input_schema": {}}]), "tools.0.input_schema"),
    (body(system=""), "system.0"),
    (body(system=[text(" ")]), "system.0"),
    (body(messages=[]), "at least one message"),
    (body(assistant(text()), user(text())), "first message"),
    (body(user(text()), assistant(text())), "prefill"),
    (body(user(text()), user(text())), "alternate"),
    (body({"role": "system", "content": [text()]}), "role"),
    (body(user(text()) | {"name": "n"}), "role"),
    (body(user()), "non-empty content"),
    (body(user(text(" "))), "non-whitespace"),
    (body(user(text(opaque="o"))), "text.opaque: Extra"),
    (body(user(thought())), "Input tag 'thinking'"),
    (body(user({"type": "audio"})), "Input tag 'audio'"),
    (body(user(image(media_type="image/bmp"))), "media_type"),
    (body(user(image(data="A"))), "Invalid base64"),
    (body(user(image(data=""))), "image cannot be empty"),
    (loop(call(name="a.b")), "tool_use.name"),
    (loop(call(input="{}")), "tool_use.input"),
    (loop(thought(""), call()), "Invalid `signature`"),
    (loop({"type": "redacted_thinking", "data": ""}, call()), "redacted_thinking"),
    (loop(call(), thought()), "cannot be `thinking`"),
    (body(user(text()), assistant(call("a.b")), user(result("a.b")), tools=[LS]), "tool_use.id"),
    (body(user(text()), assistant(call()), user(result(content=[])), tools=[LS]), "tool_result.content"),
    (body(user(text()), assistant(call()), user(result(content=[thought()])), tools=[LS]), "tool_result.content"),
    (body(user(text()), assistant(call()), user(result(content=[image()], is_error=True)), tools=[LS]), "is_error"),
    (body(user(text()), assistant(call()), user(text()), tools=[LS]), "without `tool_result`"),
    (body(user(text()), assistant(call()), user(text(), result()), tools=[LS]), "before any other content"),
    (body(user(text()), assistant(call(), call("b")), user(result("b"), result()), tools=[LS]), "unexpected"),
    (body(user(text()), assistant(text()), user(result()), tools=[LS]), "unexpected"),
    (body(user(text()), assistant(call(), call()), user(result(), result()), tools=[LS]), "must be unique"),
    (loop() | {"messages": [*loop()["messages"], *loop()["messages"][1:]]}, "must be unique"),
    (body(user(text()), assistant(call()), tools=[LS]), "`tool_use` ids were found"),
    (body(user(*[text(**MARK)] * 4), system=[text(**MARK)]), "A maximum of 4"),
    (body(user(text(cache_control={"type": "ever"}))), "cache_control.type"),
    (body(cache_control=MARK["cache_control"], system=[text(**MARK)] * 4), "A maximum of 4"),
]


@pytest.mark.parametrize(("illegal", "sentence"), ILLEGAL, ids=lambda value: value if isinstance(value, str) else "")
def test_invalid_bodies_are_rejected(illegal: Body, sentence: str) -> None:
    assert any(sentence in found for found in violations(illegal)), violations(illegal)
