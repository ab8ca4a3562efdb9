"""Tells messages as text, for a model that sums them up: who said what, which tools were called, what came of it."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, cast

import msgspec

from yarrow.agent.tokens import text_tokens
from yarrow.message import Image, Message, Role, Text, ToolCall

RESULT_CHARACTERS = 2000
"""Of a tool's result; of a longer one the beginning and the end are told."""
ARGUMENT_CHARACTERS = 200
"""Of one argument of a call, likewise."""

_LABEL = re.compile(r"^(?=\[(?:User|Assistant|Call|Result|Error)\b)", re.MULTILINE)


def render_message(message: Message) -> str:
    """Return a message as text with labels, without its thinking; empty when nothing of it is ever sent."""
    if message.incomplete:
        return ""
    if message.role is Role.TOOL:
        label = f"[{'Error' if message.is_error else 'Result'} of {_name(message.tool_name or message.tool_call_id)}]"
        return f"{label} {_said(message, lambda text: shorten(text, RESULT_CHARACTERS))}"
    label = "[User]" if message.role is Role.USER else "[Assistant]"
    said = _said(message, str)
    lines = ([f"{label} {said}"] if said else []) + [f"[Call] {_called(call)}" for call in message.tool_calls]
    return "\n".join(lines)


def shorten(text: str, characters: int) -> str:
    """Return the beginning and the end of a text, and how much is between."""
    if len(text) <= characters:
        return text
    tail = characters // 4
    head = characters - tail
    return f"{text[:head]}[... {len(text) - characters:,} characters left out ...]{text[len(text) - tail :]}"


def truncate_to_budget(text: str, tokens: int) -> str:
    """Return a text shortened until it is estimated at no more than `tokens`, as far as the mark allows."""
    if len(text) <= tokens:  # no character is estimated at more than a token
        return text
    size, characters = text_tokens(text), len(text)
    while size > tokens and characters > 1:
        characters = int(min(characters * tokens / size, characters - 1) * 0.9)
        size = text_tokens(shorten(text, characters))
    return shorten(text, characters)


def drop_middle(entries: Sequence[str], tokens: int) -> list[str]:
    """Return entries estimated at no more than `tokens` together: a quarter from the front, the rest the newest."""
    sizes = [text_tokens(entry) for entry in entries]
    if sum(sizes) <= tokens:
        return list(entries)
    front = _fitting(sizes, tokens // 4)
    back = _fitting(sizes[:front:-1], tokens - tokens // 4)
    newest = list(entries[len(entries) - back :])
    return [*entries[:front], f"[{len(entries) - front - back:,} messages are left out here]", *newest]


def _fitting(sizes: Iterable[int], tokens: int) -> int:
    """Return how many of the first ones fit."""
    count = 0
    for size in sizes:
        tokens -= size
        if tokens < 0:
            break
        count += 1
    return count


def _said(message: Message, cut: Callable[[str], str]) -> str:
    """Return texts and notes of images, with nothing in them that passes for a label of ours."""
    parts = [cut(message.text)] if any(isinstance(one, Text) for one in message.content) else []
    parts += [f"(an image, {block.media_type})" for block in message.content if isinstance(block, Image)]
    return _LABEL.sub(" ", "\n".join(part for part in parts if part.strip()))


def _called(call: ToolCall) -> str:
    try:
        arguments: Any = msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        return f"{_name(call.name)}(...)"
    named = (f"{_name(name)}={_value(value)}" for name, value in cast("dict[str, object]", arguments).items())
    return f"{_name(call.name)}({', '.join(named)})"


def _value(value: object) -> str:
    return shorten(msgspec.json.encode(value).decode(), ARGUMENT_CHARACTERS)


def _name(name: str) -> str:
    return " ".join(shorten(name, 80).split())
