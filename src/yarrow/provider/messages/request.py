"""Encoder for requests of the messages API: content blocks, signed thinking, and tool call ids."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, assert_never

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from yarrow.config.settings import ProviderSettings
from yarrow.message import Image, Message, Opaque, Role, Text, Thinking, ThinkingLevel, ToolCall, ToolSpec
from yarrow.provider.base import CompletionRequest
from yarrow.provider.call_ids import CallIds, IdMapper, derive_ids
from yarrow.provider.encoded_history_cache import SegmentPlace
from yarrow.provider.history_repair import Target, Turn, drop_thinking, group_turns, repair_history
from yarrow.provider.messages.capabilities import EFFORTS, Effort, MessagesCapabilities
from yarrow.provider.request_body import Body, merge_body
from yarrow.provider.stream_framing import decode_json_object

SEPARATOR = '{"type":"apart"}'
"""Opaque data between two separately signed blocks of thinking; it is never sent."""


def encode_signature(signature: str) -> str:
    """Return the opaque data of thinking; empty without a signature."""
    return _text({"signature": signature}) if signature else ""


def encode_hidden_thinking(signature: str) -> str:
    """Return the opaque data of a block of thinking whose text the backend withholds."""
    return _text({"type": "thinking", "thinking": "", "signature": signature})


def encode_redacted_thinking(data: str) -> str:
    """Return the opaque data of a block of encrypted thinking."""
    return _text({"type": "redacted_thinking", "data": data})


def decode_thinking(block: Thinking | Opaque) -> dict[str, Any] | None:
    """Return the block as the backend sent it; None for an unsigned one, which the backend would refuse."""
    match block:
        case Thinking(text, opaque):
            signature = _string(decode_json_object(opaque), "signature")
            return {"type": "thinking", "thinking": text, "signature": signature} if signature.strip() else None
        case Opaque(data):
            fields = decode_json_object(data)
            kind, signature, encrypted = (_string(fields, name) for name in ("type", "signature", "data"))
            if kind == "thinking" and signature.strip():
                return {"type": kind, "thinking": _string(fields, "thinking"), "signature": signature}
            return {"type": kind, "data": encrypted} if kind == "redacted_thinking" and encrypted.strip() else None


def is_thinking_block(block: dict[str, Any]) -> bool:
    """Return whether a block in wire format is thinking, as text or encrypted."""
    return block["type"] in ("thinking", "redacted_thinking")


def get_signature(block: dict[str, Any]) -> str:
    """Return the identity of a block of thinking: its signature or its encrypted data."""
    return str(block.get("signature") or block.get("data"))


def _string(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    return value if isinstance(value, str) else ""


def _text(value: dict[str, str]) -> str:
    return msgspec.json.encode(value).decode()


DEFAULT_MAX_TOKENS = 32_000
"""Default maximum tokens of an answer of a model with a known limit; the format requires a value."""
UNKNOWN_MODEL_MAX_TOKENS = 8_192
"""Default maximum tokens of an answer of an unknown model."""
_CACHE_MARK: Body = {"cache_control": {"type": "ephemeral"}}


def encode_messages_request(
    request: CompletionRequest,
    target: Target,
    *,
    settings: ProviderSettings,
    capabilities: MessagesCapabilities,
    accepts_signature: Callable[[str], bool] = lambda _: True,
) -> Body:
    """Return the body of a streaming request, in values that `to_json` accepts.

    The request's values take precedence over the configured ones. The configured body is merged in last, objects
    recursively; null in it removes a field. A tool choice other than `auto` comes from the caller and stays.
    `accepts_signature` returns whether a signature of thinking has not been refused so far.
    """
    thinking = _ThinkingFilter(_count_unbound(request, capabilities), accepts_signature)
    messages = encode_conversation(request.messages, target, thinking)
    choice = _find_tool_choice(request, messages, capabilities)
    body: Body = {"model": request.model, "messages": messages}
    if request.system.strip():
        body["system"] = [{"type": "text", "text": request.system}]
    if tools := [_tool(tool) for tool in request.tools] or _infer_tools(messages):
        body["tools"] = tools
    if capabilities.style == "budget" and (choice == "any" or not may_think(messages)):
        request = replace(request, thinking=ThinkingLevel.OFF)
    body |= _make_fields(request, settings, capabilities)
    body = merge_body(_add_cache_marks(body), settings.extra_body)
    if choice:
        body["tool_choice"] = {"type": choice}
    body["stream"] = True
    return body


def _count_unbound(request: CompletionRequest, capabilities: MessagesCapabilities) -> int:
    """Return the number of leading messages whose thinking is signed together with a history that has since changed.

    A model with a budget requires the thinking of the current tool turn, and does not sign the preceding history.
    """
    messages, end = request.messages, request.unbound
    if end and capabilities.style == "budget":
        end = min(end, max((at for at, message in enumerate(messages) if message.role is Role.USER), default=0))
    return end


def _make_fields(request: CompletionRequest, settings: ProviderSettings, capabilities: MessagesCapabilities) -> Body:
    limit = max(request.max_tokens, 0) or settings.max_tokens
    if capabilities.max_output:
        limit = min(limit or DEFAULT_MAX_TOKENS, capabilities.max_output)
    if thinking := make_thinking_fields(request.thinking, limit or UNKNOWN_MODEL_MAX_TOKENS, capabilities):
        return thinking
    temperature = settings.temperature if request.temperature is None else request.temperature
    fields: Body = {"max_tokens": limit or UNKNOWN_MODEL_MAX_TOKENS}
    if temperature is not None and capabilities.takes_temperature:
        # Other backends accept up to 2, this one at most 1.
        fields["temperature"] = min(max(temperature, 0.0), 1.0)
    return fields


def _find_tool_choice(request: CompletionRequest, messages: Sequence[Body], capabilities: MessagesCapabilities) -> str:
    """Return the type of the tool choice; empty leaves it to the model and to the configured body."""
    if not request.tools:
        # The tools are only declared because the history contains calls.
        return "none" if _infer_tools(messages) else ""
    match request.tool_choice:
        case "auto":
            return ""
        case "none":
            return "none"
        case "required":
            return "any" if capabilities.takes_forced_choice else ""


def _infer_tools(messages: Sequence[Body]) -> list[Body]:
    """Return the tools that a history calls: the backend accepts no calls in it without a list of tools."""
    calls = [block for message in messages for block in message["content"] if block["type"] == "tool_use"]
    names = dict.fromkeys(call["name"] for call in calls)
    return [{"name": name, "input_schema": {"type": "object"}} for name in names]


def _tool(tool: ToolSpec) -> Body:
    described = {"description": tool.description} if tool.description.strip() else {}
    return {"name": tool.name, **described, "input_schema": tool.parameters}


def _add_cache_marks(body: Body) -> Body:
    """Return the body with the ends of the parts that the next request repeats marked for the backend's cache."""
    *before, last = body["messages"]
    marked = {name: _mark_last_block(body[name]) for name in ("system", "tools") if name in body}
    return body | marked | {"messages": [*before, last | {"content": _mark_last_block(last["content"])}]}


def _mark_last_block(blocks: Sequence[Body]) -> list[Body]:
    return [*blocks[:-1], blocks[-1] | _CACHE_MARK]


THINKING_BUDGETS = {
    ThinkingLevel.MINIMAL: 1_024,
    ThinkingLevel.LOW: 4_000,
    ThinkingLevel.MEDIUM: 10_000,
    ThinkingLevel.HIGH: 20_000,
    ThinkingLevel.XHIGH: 32_000,
    ThinkingLevel.MAX: 48_000,
}
"""Thinking budget in tokens."""
MIN_BUDGET = 1_024
"""Minimum budget in tokens that the backend accepts."""
THINKING_TEMPERATURE = 1.0
"""The only temperature that the backend accepts for thinking with a budget."""
_EFFORTS: dict[ThinkingLevel, Effort] = {
    ThinkingLevel.MINIMAL: "low",
    ThinkingLevel.LOW: "low",
    ThinkingLevel.MEDIUM: "medium",
    ThinkingLevel.HIGH: "high",
    ThinkingLevel.XHIGH: "xhigh",
    ThinkingLevel.MAX: "max",
}


def make_thinking_fields(level: ThinkingLevel, limit: int, capabilities: MessagesCapabilities) -> dict[str, Any]:
    """Return the fields of a request with thinking, including `max_tokens`; empty if the model must not think.

    `limit` is the maximum tokens of the answer; one that leaves no room next to a budget is raised by the budget.
    """
    if level is ThinkingLevel.OFF or capabilities.style == "none":
        return {}
    if capabilities.style == "adaptive":
        effort = _find_effort(_EFFORTS[level], capabilities.efforts)
        # Some models would think without showing their thoughts.
        thinking = {"thinking": {"type": "adaptive", "display": "summarized"}, "max_tokens": limit}
        return thinking | ({"output_config": {"effort": effort}} if effort else {})
    budget = THINKING_BUDGETS[level]
    raised = limit if limit > budget else budget + limit
    if capabilities.max_output:
        raised = min(raised, capabilities.max_output)
    if raised <= budget:  # the model's limit is too low: half of it is for thinking
        budget = raised // 2
    if budget < MIN_BUDGET:
        return {}
    fields = {"thinking": {"type": "enabled", "budget_tokens": budget}, "max_tokens": raised}
    return fields | ({"temperature": THINKING_TEMPERATURE} if capabilities.takes_temperature else {})


def may_think(messages: Sequence[dict[str, Any]]) -> bool:
    """Return whether a request with these messages may set a budget.

    It may not during a tool turn that started without thinking: with a budget, the answer to the user must begin with
    thinking that the backend signed.
    """
    following: dict[str, Any] | None = None
    for message in reversed(messages):
        if message["role"] == "user":
            results = [block["type"] == "tool_result" for block in message["content"]]
            if not all(results) and following is not None and not is_thinking_block(following["content"][0]):
                return False
            if not any(results):
                return True
        following = message
    return True


def _find_effort(wanted: Effort, efforts: Sequence[Effort]) -> Effort | None:
    """Return the effort, or the next lower one that the model supports, or its lowest."""
    reach = EFFORTS.index(wanted)
    lower: list[Effort] = [level for level in efforts if EFFORTS.index(level) <= reach]
    if lower:
        return lower[-1]
    return efforts[0] if efforts else None


WireBlock = dict[str, Any]


class _ThinkingFilter(Struct, frozen=True):
    """Thinking that a request must not contain."""

    unbound: int
    """Number of leading messages whose thinking is dropped."""
    accepts_signature: Callable[[str], bool]
    """Returns False for a refused signature."""


def encode_conversation(history: tuple[Message, ...], target: Target, thinking: _ThinkingFilter) -> list[WireBlock]:
    """Return the messages in wire format."""

    def make_encoder() -> _ConversationEncoder:
        return _ConversationEncoder(target, thinking, _Progress(CallIds(), IdMapper(derive_ids)))

    return target.cache.encode(history, (target, thinking), make_encoder)


class _Progress(Struct):
    """State of the encoder of a segment, from the segments before it."""

    given_ids: CallIds
    legal_ids: IdMapper
    count: int = 0
    """Number of messages."""

    def copy(self) -> "_Progress":
        return _Progress(self.given_ids.copy(), self.legal_ids.copy(), self.count)


class _ConversationEncoder:
    def __init__(self, target: Target, thinking: _ThinkingFilter, progress: _Progress) -> None:
        self._target = target
        self._thinking = thinking
        self._progress = progress

    def encode(self, segment: Sequence[Message], place: SegmentPlace) -> list[WireBlock]:
        unbound = max(self._thinking.unbound - self._progress.count, 0)
        self._progress.count += len(segment)
        bound = (*map(drop_thinking, segment[:unbound]), *segment[unbound:])
        history = repair_history(bound, self._target, self._progress.given_ids)
        return [self._encode_turn(turn) for turn in group_turns(history, place)]

    def copy(self) -> "_ConversationEncoder":
        return _ConversationEncoder(self._target, self._thinking, self._progress.copy())

    def _encode_turn(self, turn: Turn) -> WireBlock:
        blocks = [block for message in turn.messages for block in _blocks(message, self._progress.legal_ids)]
        if turn.side == "assistant":
            accepts = self._thinking.accepts_signature
            blocks = _drop_trailing_thinking(
                [block for block in blocks if not is_thinking_block(block) or accepts(get_signature(block))]
            )
        else:
            blocks.sort(key=lambda block: block["type"] != "tool_result")
        return {"role": turn.side, "content": blocks}


def _blocks(message: Message, legal_id: Callable[[str], str]) -> Iterator[WireBlock]:
    if message.role is Role.TOOL:
        yield from _result(message, legal_id)
        return
    for block in message.content:
        match block:
            case Text(text):
                yield {"type": "text", "text": text}
            case Image():
                yield _image(block)
            case ToolCall(call_id, name, arguments):
                # As raw text, so that numbers keep their digits and caches see the same bytes.
                yield {"type": "tool_use", "id": legal_id(call_id), "name": name, "input": msgspec.Raw(arguments)}
            case Thinking() | Opaque():
                signed = decode_thinking(block)
                if signed is not None:
                    yield signed
            case _:
                assert_never(block)


def _result(message: Message, legal_id: Callable[[str], str]) -> Iterator[WireBlock]:
    """Yield a result, followed by the images that an error must not contain."""
    texts = [{"type": "text", "text": block.text} for block in message.content if isinstance(block, Text)]
    images = [_image(image) for image in message.images]
    result: WireBlock = {"type": "tool_result", "tool_use_id": legal_id(message.tool_call_id)}
    if not message.is_error:
        yield result | {"content": texts + images}
        return
    yield result | {"content": texts or [{"type": "text", "text": "(images follow the results)"}], "is_error": True}
    yield from images


def _image(image: Image) -> WireBlock:
    return {"type": "image", "source": {"type": "base64", "media_type": image.media_type, "data": image.data}}


def _drop_trailing_thinking(blocks: list[WireBlock]) -> list[WireBlock]:
    """Return the blocks without trailing thinking, which led to nothing and would be refused."""
    end = len(blocks)
    while is_thinking_block(blocks[end - 1]):
        end -= 1
    return blocks[:end]
