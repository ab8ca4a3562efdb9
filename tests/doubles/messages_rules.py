"""The public rules of messages requests, checked as strictly as the backend does, and in its words."""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

_FIELDS = frozenset(
    {
        *("model", "max_tokens", "messages", "system", "tools", "tool_choice", "thinking", "output_config"),
        *("temperature", "top_p", "top_k", "stop_sequences", "stream", "metadata", "cache_control", "service_tier"),
    }
)
_BLOCK_FIELDS: dict[str, frozenset[str]] = {
    "text": frozenset({"type", "text", "cache_control", "citations"}),
    "image": frozenset({"type", "source", "cache_control"}),
    "tool_use": frozenset({"type", "id", "name", "input", "cache_control"}),
    "tool_result": frozenset({"type", "tool_use_id", "content", "is_error", "cache_control"}),
    "thinking": frozenset({"type", "thinking", "signature"}),
    "redacted_thinking": frozenset({"type", "data"}),
}
_INNER_FIELDS: dict[str, frozenset[str]] = {
    "thinking": frozenset({"type", "budget_tokens", "display"}),
    "output_config": frozenset({"effort", "format"}),
    "tool_choice": frozenset({"type", "name", "disable_parallel_tool_use"}),
}
_SPOKEN = {
    "user": ("text", "image", "tool_result"),
    "assistant": ("text", "tool_use", "thinking", "redacted_thinking"),
}
_THOUGHTS = ("thinking", "redacted_thinking")
_TOOL_FIELDS = frozenset({"name", "description", "input_schema", "cache_control", "type", "strict"})
_EFFORTS = ("low", "medium", "high", "xhigh", "max")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_PATTERN = "String should match pattern '^[a-zA-Z0-9_-]{1,64}$'"
_MEDIA_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
MAX_MARKS = 4
"""Blocks that may be marked for the cache."""
MIN_BUDGET = 1024


def violations(body: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the body of a request, one sentence each; empty when it is legal."""
    messages = list(_dicts(body.get("messages")))
    return [
        *_head(body),
        *_thinking(body, messages),
        *_tools(body, messages),
        *_system(body.get("system", "x")),
        *_messages(messages),
        *_marks(body),
    ]


def _head(body: Mapping[str, Any]) -> Iterator[str]:
    yield from _extra("", body, _FIELDS)
    for name, known in _INNER_FIELDS.items():
        yield from _extra(f"{name}.", _dict(body.get(name)), known)
    if not _text(body.get("model")):
        yield "model: String should have at least 1 character"
    limit = body.get("max_tokens")
    if not isinstance(limit, int):
        yield "max_tokens: Field required"
    elif limit < 1:
        yield "max_tokens: Input should be greater than or equal to 1"
    if body.get("stream") is not True:
        yield "stream: Input should be true"
    temperature = body.get("temperature", 0)
    if not isinstance(temperature, int | float) or not 0 <= temperature <= 1:
        yield "temperature: range: 0..1"


def _thinking(body: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    effort = _dict(body.get("output_config", {"effort": "low"})).get("effort")
    if effort not in _EFFORTS:
        yield "output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'"
    if "thinking" not in body:
        return
    thinking = _dict(body["thinking"])
    kind, budget = thinking.get("type"), thinking.get("budget_tokens")
    if kind not in ("enabled", "disabled", "adaptive"):
        yield f"thinking: Input tag '{kind}' found using 'type' does not match any of the expected tags"
    if kind in ("enabled", "adaptive") and body.get("temperature", 1) != 1:
        yield "`temperature` may only be set to 1 when thinking is enabled"
    if kind != "enabled":
        return
    limit = body.get("max_tokens")
    if not isinstance(budget, int) or budget < MIN_BUDGET:
        yield "thinking.enabled.budget_tokens: Input should be greater than or equal to 1024"
    elif isinstance(limit, int) and limit <= budget:
        yield "`max_tokens` must be greater than `thinking.budget_tokens`"
    if _dict(body.get("tool_choice")).get("type") in ("any", "tool"):
        yield "Thinking may not be enabled when tool_choice forces tool use."
    yield from _unthought(messages)


def _unthought(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Look through the tool calls that still run for a turn that does not begin with thinking."""
    kinds = [[str(block.get("type")) for block in _dicts(message.get("content"))] for message in messages]
    asked = [at for at, of in enumerate(kinds) if messages[at].get("role") == "user" and "tool_result" not in of]
    for at in range(asked[-1] if asked else 0, len(messages) - 1):
        answers_user = messages[at].get("role") == "user" and any(kind != "tool_result" for kind in kinds[at])
        if answers_user and kinds[at + 1][:1] not in (["thinking"], ["redacted_thinking"]):
            first = next(iter(kinds[at + 1]), "nothing")
            yield (
                f"messages.{at + 1}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{first}`. "
                "When `thinking` is enabled, a final `assistant` message must start with a thinking block"
            )


def _tools(body: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    used = {block.get("type") for message in messages for block in _dicts(message.get("content"))}
    if "tools" not in body:
        if used & {"tool_use", "tool_result"}:
            yield "Requests which include `tool_use` or `tool_result` blocks must define tools"
        if "tool_choice" in body:
            yield "tool_choice: may only be specified while providing tools"
        return
    choice = _dict(body.get("tool_choice", {"type": "auto"}))
    if choice.get("type") not in ("auto", "any", "none", "tool"):
        yield f"tool_choice: Input tag '{choice.get('type')}' does not match any of the expected tags"
    names: set[str] = set()
    for at, tool in enumerate(_dicts(body["tools"])):
        name = str(tool.get("name"))
        if not _NAME.fullmatch(name):
            yield f"tools.{at}.name: {_PATTERN}"
        if name in names:
            yield "tools: Tool names must be unique."
        names.add(name)
        yield from _extra(f"tools.{at}.", tool, _TOOL_FIELDS)
        if not isinstance(tool.get("description", ""), str):
            yield f"tools.{at}.description: Input should be a valid string"
        if _dict(tool.get("input_schema")).get("type") != "object":
            yield f"tools.{at}.input_schema.type: Field required"


def _system(system: object) -> Iterator[str]:
    blocks = [{"type": "text", "text": system}] if isinstance(system, str) else list(_dicts(system))
    for at, block in enumerate(blocks):
        if block.get("type") != "text" or not _text(block.get("text")):
            yield f"system.{at}: text content blocks must be non-empty"


def _messages(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    if not messages:
        yield "messages: at least one message is required"
        return
    roles = [str(message.get("role")) for message in messages]
    if roles[0] != "user":
        yield 'messages: first message must use the "user" role'
    if roles[-1] == "assistant":
        yield "This model does not support assistant message prefill. The conversation must end with a user message."
    if any(before == after for before, after in pairwise(roles)):
        yield 'messages: roles must alternate between "user" and "assistant"'
    for at, message in enumerate(messages):
        for problem in _message(message):
            yield f"messages.{at}.{problem}"
    yield from _pairs(messages)


def _message(message: Mapping[str, Any]) -> Iterator[str]:
    role = str(message.get("role"))
    if role not in _SPOKEN or sorted(message) != ["content", "role"]:
        yield "role: a message is the content of a user or of an assistant"
    blocks = list(_dicts(message.get("content")))
    if not blocks:
        yield "content: all messages must have non-empty content"
    for at, block in enumerate(blocks):
        if block.get("type") not in _SPOKEN.get(role, ()):
            yield f"content.{at}: Input tag '{block.get('type')}' does not match any of the expected tags"
        for problem in _block(block):
            yield f"content.{at}.{problem}"
    kinds = [block.get("type") for block in blocks]
    if role == "assistant" and kinds and kinds[-1] in _THOUGHTS:
        yield f"content: The final block in an assistant message cannot be `{kinds[-1]}`."


def _block(block: Mapping[str, Any]) -> Iterator[str]:
    kind = str(block.get("type"))
    if kind in _BLOCK_FIELDS:
        yield from _extra(f"{kind}.", block, _BLOCK_FIELDS[kind])
    match kind:
        case "text":
            if not _text(block.get("text")):
                yield "text: text content blocks must contain non-whitespace text"
        case "image":
            yield from _source(_dict(block.get("source")))
        case "tool_use":
            yield from (f"tool_use.{name}: {_PATTERN}" for name in ("id", "name") if not _named(block.get(name)))
            if not isinstance(block.get("input"), dict):
                yield "tool_use.input: Input should be a valid dictionary"
        case "tool_result":
            if not _named(block.get("tool_use_id")):
                yield f"tool_result.tool_use_id: {_PATTERN}"
            yield from _result(block)
        case "thinking":
            if not isinstance(block.get("thinking"), str) or not _text(block.get("signature")):
                yield "thinking: Invalid `signature` in `thinking` block"
        case "redacted_thinking":
            if not _text(block.get("data")):
                yield "redacted_thinking: Invalid `data` in `redacted_thinking` block"
        case _:
            pass  # told by the message


def _result(block: Mapping[str, Any]) -> Iterator[str]:
    content = block.get("content")
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else list(_dicts(content))
    if not parts:
        yield "tool_result.content: content must not be empty"
    for part in parts:
        if part.get("type") not in ("text", "image"):
            yield f"tool_result.content: Input tag '{part.get('type')}' does not match any of the expected tags"
        if part.get("type") != "text" and block.get("is_error"):
            yield 'tool_result: all content must be type "text" if "is_error" is true'
        yield from (f"tool_result.content.{problem}" for problem in _block(part))


def _source(source: Mapping[str, Any]) -> Iterator[str]:
    yield from _extra("image.source.base64.", source, frozenset({"type", "media_type", "data"}))
    if source.get("type") != "base64" or source.get("media_type") not in _MEDIA_TYPES:
        yield "image.source.base64.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"
    try:
        if not base64.b64decode(str(source.get("data")), validate=True):
            yield "image.source.base64.data: image cannot be empty"
    except binascii.Error:
        yield "image.source.base64.data: Invalid base64 data"


def _pairs(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Check that the results of an assistant's calls stand at the beginning of the next message, in call order."""
    seen: set[str] = set()
    due: list[str] = []
    for at, message in enumerate(messages):
        blocks = list(_dicts(message.get("content")))
        answered = [str(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"]
        if answered != due:
            missing = [call_id for call_id in due if call_id not in answered]
            yield (
                f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing)}"
                if missing
                else f"messages.{at}: unexpected `tool_use_id` found in `tool_result` blocks: {', '.join(answered)}"
            )
        if any(block.get("type") != "tool_result" for block in blocks[: len(answered)]):
            yield f"messages.{at}: `tool_result` blocks must come before any other content"
        due = [str(block.get("id")) for block in blocks if block.get("type") == "tool_use"]
        if len({*due}) < len(due) or seen & {*due}:
            yield f"messages.{at}: `tool_use` ids must be unique"
        seen |= {*due}
    if due:
        yield f"`tool_use` ids were found without `tool_result` blocks immediately after: {', '.join(due)}"


def _marks(body: Mapping[str, Any]) -> Iterator[str]:
    blocks = [body, *_dicts(body.get("system")), *_dicts(body.get("tools"))]
    blocks += [block for message in _dicts(body.get("messages")) for block in _dicts(message.get("content"))]
    marks = [_dict(block["cache_control"]) for block in blocks if "cache_control" in block]
    if len(marks) > MAX_MARKS:
        yield f"A maximum of {MAX_MARKS} blocks with cache_control may be provided. Found {len(marks)}."
    if any(mark.get("type") != "ephemeral" for mark in marks):
        yield "cache_control.type: Input should be 'ephemeral'"


def _extra(at: str, fields: Mapping[str, Any], known: frozenset[str]) -> Iterator[str]:
    for name in sorted(fields.keys() - known):
        yield f"{at}{name}: Extra inputs are not permitted"


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _named(value: object) -> bool:
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def _dict(value: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _dicts(value: object) -> Iterator[Mapping[str, Any]]:
    """Give the entries of a list as objects; what is none is an empty one, and fails every rule."""
    for entry in cast("list[Any]", value) if isinstance(value, list) else []:
        yield _dict(entry)
