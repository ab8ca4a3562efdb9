"""Encoder for requests of the Responses API: typed items in one list, and nothing stored on the server."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, assert_never

from msgspec import Struct

from yarrow.config.settings import ProviderSettings
from yarrow.message import Image, Message, Opaque, Role, Text, Thinking, ThinkingLevel, ToolCall, ToolSpec
from yarrow.provider.base import CompletionRequest
from yarrow.provider.call_ids import CallIds, IdMapper, derive_ids
from yarrow.provider.encoded_history_cache import SegmentPlace
from yarrow.provider.history_repair import Target, arrange_items, repair_history
from yarrow.provider.openai_models import is_plain_model, is_reasoning_model
from yarrow.provider.request_body import Body, merge_body
from yarrow.provider.responses.items import LOST, decode_call_mark, decode_mark, encode_message, pair_items

MIN_OUTPUT_TOKENS = 16
"""Minimum value of `max_output_tokens`; a lower limit is raised to it."""
MAX_CACHE_KEY_CHARACTERS = 64
"""Maximum characters of `prompt_cache_key`; a longer id is cut."""
ENCRYPTED_CONTENT = "reasoning.encrypted_content"


class ReplayRules(Struct, frozen=True):
    """Parts of a history that a server accepts."""

    accepts: Callable[[str], bool] = lambda _: True
    """Returns whether an encrypted content has not been refused so far."""
    reasoning: bool = True
    """True if reasoning is sent back."""
    is_vendor: bool = False
    """True if the server is the vendor's own: it takes images in results, and its models' fields are known."""


def encode_responses_request(
    request: CompletionRequest,
    target: Target,
    *,
    settings: ProviderSettings,
    rules: ReplayRules,
) -> Body:
    """Return the body of a streaming request.

    The request's values take precedence over the configured ones. The configured body is merged in last, objects
    recursively; null in it removes a field. A tool choice other than `auto` comes from the caller and stays.
    """
    body: Body = {"model": request.model, "input": encode_input(request.messages, target, rules)}
    if request.system.strip():
        body["instructions"] = request.system
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    body |= _make_fields(request, settings, is_vendor=rules.is_vendor)
    body = merge_body(body, settings.extra_body)
    if request.tools and request.tool_choice != "auto":
        body["tool_choice"] = request.tool_choice
    body["stream"] = True
    return body


def _make_fields(request: CompletionRequest, settings: ProviderSettings, *, is_vendor: bool) -> Body:
    may_reason = not (is_vendor and is_plain_model(request.model))
    fields: Body = {"store": False}
    if may_reason:
        fields["include"] = [ENCRYPTED_CONTENT]
    if request.session_id:
        fields["prompt_cache_key"] = request.session_id[:MAX_CACHE_KEY_CHARACTERS]
    thinks = may_reason and request.thinking is not ThinkingLevel.OFF
    if thinks:
        fields["reasoning"] = {"effort": request.thinking.value, "summary": "auto"}
    if limit := request.max_tokens or settings.max_tokens:
        fields["max_output_tokens"] = max(limit, MIN_OUTPUT_TOKENS)
    temperature = settings.temperature if request.temperature is None else request.temperature
    if temperature is not None and not (is_vendor and (thinks or is_reasoning_model(request.model))):
        fields["temperature"] = temperature
    return fields


def _tool(tool: ToolSpec) -> Body:
    """Return a tool; the strict mode would require other schemas."""
    described = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", **described, "strict": False}


def encode_input(history: tuple[Message, ...], target: Target, rules: ReplayRules) -> list[Body]:
    """Return the messages as items."""

    def make_encoder() -> _ItemEncoder:
        return _ItemEncoder(target, rules, _Progress(CallIds(), IdMapper(derive_ids), set()))

    return target.cache.encode(history, (target, rules), make_encoder)


class _Progress(Struct):
    """State of the encoder of a segment, from the segments before it."""

    given_ids: CallIds
    legal_ids: IdMapper
    item_ids: set[str]
    """Ids of items, which the server refuses to see twice."""

    def copy(self) -> "_Progress":
        return _Progress(self.given_ids.copy(), self.legal_ids.copy(), self.item_ids.copy())


class _ItemEncoder:
    def __init__(self, target: Target, rules: ReplayRules, progress: _Progress) -> None:
        self._target = target
        self._rules = rules
        self._progress = progress

    def encode(self, segment: Sequence[Message], place: SegmentPlace) -> list[Body]:
        history = repair_history(segment, self._target, self._progress.given_ids)
        messages = arrange_items(history, place, images_in_results=self._rules.is_vendor)
        return [item for message in messages for item in self._encode_message(message)]

    def copy(self) -> "_ItemEncoder":
        return _ItemEncoder(self._target, self._rules, self._progress.copy())

    def _encode_message(self, message: Message) -> Iterator[Body]:
        match message.role:
            case Role.USER:
                yield {"role": "user", "content": _content(message)}
            case Role.TOOL:
                call_id = self._progress.legal_ids(message.tool_call_id)
                yield {"type": "function_call_output", "call_id": call_id, "output": _content(message)}
            case Role.ASSISTANT:
                for item in pair_items(self._list_items(message), self._progress.item_ids, self._rules.accepts):
                    is_message = item["type"] == "message"
                    yield encode_message(item, is_vendor=self._rules.is_vendor) if is_message else item

    def _list_items(self, message: Message) -> Iterator[Body]:
        """Yield the items of an answer; one whose text is no longer in the message is `LOST`."""
        texts: list[str] = []
        for block in message.content:
            item: Body | None = None
            match block:
                case Text(text):
                    texts.append(text)
                case ToolCall():
                    item = self._call(block)
                case Opaque(data):
                    item = decode_mark(data)
                case Thinking() | Image():
                    pass  # the summary in the reasoning item has the same text
                case _:
                    assert_never(block)
            if item is None or (item["type"] == "reasoning" and not self._rules.reasoning):
                continue
            if item["type"] == "message":
                yield item | {"text": "".join(texts)} if texts else LOST
            else:
                if texts:
                    yield {"type": "message", "text": "".join(texts)}
                yield item
            texts.clear()
        if texts:
            yield {"type": "message", "text": "".join(texts)}

    def _call(self, call: ToolCall) -> Body:
        item: Body = {"type": "function_call", **decode_call_mark(call.opaque)}
        return item | {"call_id": self._progress.legal_ids(call.id), "name": call.name, "arguments": call.arguments}


def _content(message: Message) -> str | list[Body]:
    """Return a plain string if there is no image: not every server takes a list."""
    if not message.images:
        return "\n\n".join([block.text for block in message.content if isinstance(block, Text)])
    parts: list[dict[str, Any]] = []
    for block in message.content:
        if isinstance(block, Text):
            parts.append({"type": "input_text", "text": block.text})
        elif isinstance(block, Image):
            url = f"data:{block.media_type};base64,{block.data}"
            parts.append({"type": "input_image", "image_url": url, "detail": "auto"})
    return parts
