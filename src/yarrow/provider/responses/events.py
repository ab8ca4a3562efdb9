"""Events of a responses stream, and the items and the response in them."""

from typing import Any

import msgspec
from msgspec import Struct

from yarrow.provider.backend_errors import Backend
from yarrow.provider.base_decoder import UsageAccumulator
from yarrow.provider.stream_framing import decode_leniently


class ResponseEvent(Struct, frozen=True, gc=False):
    """One event of the stream; a field with `Any` has another type in some events."""

    type: str = ""
    object: str | None = None
    """Set if the answer is not a stream but the response itself."""
    item_id: str | None = None
    output_index: int | None = None
    content_index: int | None = None
    summary_index: int | None = None
    delta: Any = None
    text: Any = None
    refusal: Any = None
    arguments: Any = None
    item: msgspec.Raw = msgspec.Raw()
    response: msgspec.Raw = msgspec.Raw()
    error: Any = None


class ItemPart(Struct, frozen=True, gc=False):
    """A part of an item's content or summary."""

    text: str | None = None
    refusal: str | None = None


class OutputItem(Struct, frozen=True, gc=False):
    """An item of the answer: a message, reasoning or a call.

    Some servers send content as text, or arguments as an object.
    """

    type: str = ""
    id: str | None = None
    status: str | None = None
    content: str | list[ItemPart] | None = None
    summary: list[ItemPart] | None = None
    phase: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | dict[str, Any] | None = None

    @property
    def texts(self) -> list[str]:
        """The text of each part of the content, with empty ones."""
        if isinstance(self.content, str):
            return [self.content]
        return [part.text or part.refusal or "" for part in self.content or ()]

    @property
    def summaries(self) -> list[str]:
        """The text of each part of the summary that has one."""
        return [part.text for part in self.summary or () if part.text]

    @property
    def arguments_text(self) -> str:
        """The arguments as JSON text; empty if they are missing."""
        if isinstance(self.arguments, dict):
            return msgspec.json.encode(self.arguments).decode()
        return self.arguments or ""


class InputDetails(Struct, frozen=True, gc=False):
    """Tokens of the prompt that were read from a cache, or written to it."""

    cached_tokens: float | None = None
    cache_write_tokens: float | None = None


class OutputDetails(Struct, frozen=True, gc=False):
    """Tokens of the answer that were spent on reasoning."""

    reasoning_tokens: float | None = None


class ResponseTokens(Struct, frozen=True, gc=False):
    """Token totals; `input_tokens` includes cached ones, `output_tokens` includes reasoning."""

    input_tokens: float | None = None
    output_tokens: float | None = None
    input_tokens_details: InputDetails | None = None
    output_tokens_details: OutputDetails | None = None

    def add_to(self, usage: UsageAccumulator) -> None:
        """Add the figures to the usage of the answer."""
        usage.add("prompt", self.input_tokens)
        usage.add("output", self.output_tokens)
        if self.input_tokens_details is not None:
            usage.add("cache_read", self.input_tokens_details.cached_tokens)
            usage.add("cache_write", self.input_tokens_details.cache_write_tokens)
        if self.output_tokens_details is not None:
            usage.add("thinking", self.output_tokens_details.reasoning_tokens)


class IncompleteDetails(Struct, frozen=True, gc=False):
    """Reason why the answer is incomplete."""

    reason: str | None = None


class FinishedResponse(Struct, frozen=True, gc=False):
    """The response at its end, with all items."""

    status: str | None = None
    error: Any = None
    incomplete_details: IncompleteDetails | None = None
    output: list[msgspec.Raw] | None = None
    usage: ResponseTokens | None = None


class _Kind(Struct, frozen=True, gc=False):
    type: str = ""


# Not strict: a number may be a string, or have a fraction of zero.
_decode_event = msgspec.json.Decoder(ResponseEvent, strict=False).decode
_decode_response = msgspec.json.Decoder(FinishedResponse, strict=False).decode
_decode_item = msgspec.json.Decoder(OutputItem, strict=False).decode
_decode_kind = msgspec.json.Decoder(_Kind).decode


_NOTHING = (b"", b"null")


def parse_event(data: bytes, backend: Backend) -> ResponseEvent:
    """Return the event; MALFORMED_RESPONSE if the data is not a JSON object of the expected shape."""
    try:
        return _decode_event(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return decode_leniently(data, _decode_event, backend=backend, kind="event of a responses stream")


def parse_response(data: bytes, backend: Backend) -> FinishedResponse:
    """Return the response of the last event; without one, no field is set."""
    if data in _NOTHING:
        return FinishedResponse()
    try:
        return _decode_response(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return decode_leniently(data, _decode_response, backend=backend, kind="response")


ITEM_TYPES = ("message", "reasoning", "function_call")


def parse_item(data: bytes, backend: Backend) -> OutputItem | None:
    """Return the item; None for one of a tool that ran on the server, or of a later version."""
    try:
        if data in _NOTHING or _decode_kind(data).type not in ITEM_TYPES:
            return None
        return _decode_item(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return decode_leniently(data, _decode_item, backend=backend, kind="item of a response")
