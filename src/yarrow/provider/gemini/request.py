"""Encoder for requests of the Gemini API: contents with the metadata of their parts, tools and their schemas."""

import base64
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, assert_never, cast

import msgspec
from msgspec import Struct

from yarrow.config.settings import ProviderSettings
from yarrow.message import Image, Message, Opaque, Role, Text, Thinking, ToolCall, ToolSpec
from yarrow.provider.backend_errors import Backend
from yarrow.provider.base import CompletionRequest
from yarrow.provider.base_urls import GeminiAddress
from yarrow.provider.call_ids import CallIds
from yarrow.provider.encoded_history_cache import SegmentPlace
from yarrow.provider.history_repair import Target, Turn, group_turns, repair_history
from yarrow.provider.request_body import replace_surrogates


class PartMetadata(Struct, frozen=True, rename="camel", omit_defaults=True):
    """The opaque data of a tool call, or of a separate block that signs the text before it or contains a thought."""

    thought_signature: bytes = b""
    id: str = ""
    """For a call: its id from the backend; empty if the id is ours and unknown to the backend."""
    length: int = 0
    """For signed text: its length in characters, at the end of the preceding text block, which may join several texts.
    """
    thought: str | None = None
    """For a signed thought: its text."""


_decode = msgspec.json.Decoder(PartMetadata).decode


def encode_metadata(note: PartMetadata) -> str:
    """Return the note as opaque data; empty if the note is."""
    return "" if note == PartMetadata() else replace_surrogates(msgspec.json.encode(note).decode())


def decode_metadata(opaque: str) -> PartMetadata:
    """Return the note in opaque data; an empty one if the data is not ours."""
    try:
        return _decode(opaque)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return PartMetadata()


WireValue = dict[str, Any]
"""A value that the library accepts; bytes in it are sent as base64."""

MEDIA_TYPES = ("image/png", "image/jpeg", "image/webp")
SKIPPED_SIGNATURE = base64.urlsafe_b64decode("skip_thought_signature_validator")
"""The documented signature for a call that another model made; on the wire it is that word."""
_UNSIGNED_MODEL = re.compile(r"gemini-[12]\b")
_ILLEGAL_START = re.compile(r"[^a-zA-Z_]")


def encode_contents(history: tuple[Message, ...], target: Target) -> list[WireValue]:
    """Return the contents of a request; user and model alternate, and the first and the last are the user's."""
    sees = Target(
        target.provider, target.model, lambda image: image.media_type in MEDIA_TYPES and target.takes_image(image)
    )
    return target.cache.encode(history, target, lambda: _ContentsEncoder(sees, CallIds()))


class _ContentsEncoder:
    def __init__(self, target: Target, ids: CallIds) -> None:
        self._target = target
        self._ids = ids

    def encode(self, segment: Sequence[Message], place: SegmentPlace) -> list[WireValue]:
        result: list[WireValue] = []
        calls: dict[str, WireValue] = {}
        for turn in group_turns(repair_history(segment, self._target, self._ids), place):
            if turn.side == "assistant":
                calls = {}
                parts = [part for one in turn.messages for part in _encode_model_parts(one, self._target, calls)]
                result.append({"role": "model", "parts": _ensure_signature(parts, self._target.model)})
            else:
                result.append({"role": "user", "parts": _encode_user_turn(turn, calls)})
        return result

    def copy(self) -> "_ContentsEncoder":
        return _ContentsEncoder(self._target, self._ids.copy())


def _encode_model_parts(message: Message, target: Target, calls: dict[str, WireValue]) -> list[WireValue]:
    """Return the parts of a model's message; records the calls, in wire format, by the history's id."""
    own = (message.provider, message.model) == (target.provider, target.model)
    parts: list[WireValue] = []
    for block in message.content:
        match block:
            case Text(text):
                parts.append({"text": replace_surrogates(text)})
            case ToolCall(call_id, name, arguments, opaque=opaque):
                note = decode_metadata(opaque) if own else PartMetadata()
                call = calls[call_id] = {"name": _name(name)}
                if note.id and note.id == call_id:
                    call["id"] = note.id
                part = {"functionCall": call | {"args": msgspec.json.decode(arguments)}}
                parts.append(part | _signature(note))
            case Opaque(data):
                _attach_signature(parts, decode_metadata(data))
            case Thinking() | Image():
                pass  # an unsigned thought is useless to the backend, and models send no images
            case _:
                assert_never(block)
    return parts


def _attach_signature(parts: list[WireValue], note: PartMetadata) -> None:
    """Attach a signature to the part that it arrived with, split off the text that it was joined to."""
    if not note.thought_signature:
        return
    signature = _signature(note)
    if note.thought is not None:
        parts.append({"text": note.thought, "thought": True} | signature)
        return
    signed = ""
    if note.length > 0:
        text = parts[-1].get("text", "") if parts and len(parts[-1]) == 1 else ""
        if len(text) < note.length:
            return  # the text is gone because it was blank
        rest, signed = text[: -note.length], text[-note.length :]
        parts.pop()
        if rest.strip():
            parts.append({"text": rest})
    parts.append({"text": signed} | signature)


def _ensure_signature(parts: list[WireValue], model: str) -> list[WireValue]:
    """Return the parts with the first call signed; newer models refuse unsigned ones."""
    first = next((part for part in parts if "functionCall" in part), None)
    if first is not None and wants_signature(model):
        first.setdefault("thoughtSignature", SKIPPED_SIGNATURE)
    return parts


def wants_signature(model: str) -> bool:
    """Return whether a model refuses an unsigned call in the history."""
    name = model.rpartition("/")[2].lower()
    return name.startswith("gemini") and _UNSIGNED_MODEL.match(name) is None


def _encode_user_turn(turn: Turn, calls: dict[str, WireValue]) -> list[WireValue]:
    """Return the parts of a user's turn: all results, then everything else."""
    results = [message for message in turn.messages if message.role is Role.TOOL]
    others = [message for message in turn.messages if message.role is not Role.TOOL]
    parts: list[WireValue] = [{"functionResponse": calls[one.tool_call_id] | _response(one)} for one in results]
    for result in results:
        if result.images:
            parts.append({"text": f"Images in the result of {calls[result.tool_call_id]['name']}:"})
            parts += map(_image, result.images)
    return [*parts, *_user_parts(others)]


def _response(result: Message) -> WireValue:
    text = "\n\n".join(block.text for block in result.content if isinstance(block, Text))
    return {
        "response": {
            "error" if result.is_error else "output": replace_surrogates(text or "(images follow the results)")
        }
    }


def _user_parts(messages: Iterable[Message]) -> Iterator[WireValue]:
    for message in messages:
        for block in message.content:
            if isinstance(block, Text):
                yield {"text": replace_surrogates(block.text)}
            elif isinstance(block, Image):
                yield _image(block)


def _image(image: Image) -> WireValue:
    return {"inlineData": {"mimeType": image.media_type, "data": base64.b64decode(image.data)}}


def _name(name: str) -> str:
    """Return the name of a call; the backend requires a letter or _ at its start."""
    return f"_{name[:63]}" if _ILLEGAL_START.match(name) else name


def _signature(note: PartMetadata) -> WireValue:
    return {"thoughtSignature": note.thought_signature} if note.thought_signature else {}


class GeminiEndpoint(Struct, frozen=True):
    """Address of the backend, its key and the configured headers."""

    address: GeminiAddress
    backend: Backend
    headers: dict[str, str] = {}


class GeminiRequest(Struct, frozen=True):
    """The arguments of the library's `generate_content_stream`, as plain values."""

    model: str
    contents: list[WireValue]
    config: dict[str, Any]


def encode_gemini_request(request: CompletionRequest, target: Target, settings: ProviderSettings) -> GeminiRequest:
    """Return the arguments for the library; the request's values take precedence over the configured ones.

    The configured body is merged in last, objects recursively. Thinking is not configured: the model decides how much
    is needed.
    """
    config: dict[str, Any] = {
        # One call of ours is one request: only the agent runs tools and continues answers.
        "automatic_function_calling": {"disable": True},
        "automatic_continuation": False,
    }
    if request.system.strip():
        config["system_instruction"] = {"parts": [{"text": replace_surrogates(request.system)}]}
    if request.tools:
        config["tools"] = [{"function_declarations": [_tool(tool) for tool in request.tools]}]
        if mode := {"auto": "", "none": "NONE", "required": "ANY"}[request.tool_choice]:
            config["tool_config"] = {"function_calling_config": {"mode": mode}}
    if limit := max(request.max_tokens, 0) or settings.max_tokens:
        config["max_output_tokens"] = limit
    temperature = settings.temperature if request.temperature is None else request.temperature
    if temperature is not None:
        config["temperature"] = min(max(temperature, 0.0), 2.0)
    if settings.extra_body:
        config["http_options"] = {"extra_body": settings.extra_body}
    return GeminiRequest(request.model, encode_contents(request.messages, target), config)


def _tool(tool: ToolSpec) -> WireValue:
    declared: WireValue = {"name": tool.name}
    if tool.description.strip():
        declared["description"] = replace_surrogates(tool.description)
    schema = reduce_schema(tool.parameters)
    # An object without properties is refused; a tool without parameters is not.
    return declared | ({"parameters_json_schema": schema} if schema.get("properties") else {})


_PLAIN = frozenset({"type", "title", "description", "minItems", "maxItems", "minimum", "maximum", "$ref"})
"""Keywords whose value is copied unchanged."""
_ONE = frozenset({"items"})
_LIST = frozenset({"anyOf", "oneOf", "prefixItems"})
_NAMED = frozenset({"properties", "$defs"})
_FORMATS = ("date-time", "float", "double", "int32", "int64")
ALLOWED_KEYWORDS = _PLAIN | _ONE | _LIST | _NAMED | {"enum", "format", "required"}
"""All keywords that may remain in a schema, at any depth."""

Schema = dict[str, Any]


def reduce_schema(schema: object) -> Schema:
    """Return a copy of a schema with only `ALLOWED_KEYWORDS`.

    The lost limits are checked by the tool anyway. A constant becomes an enum of one value.
    """
    given: dict[str, object] = _object(schema)
    result: Schema = {}
    for word, value in given.items():
        if word in _PLAIN or (word == "format" and value in _FORMATS):
            result[word] = value
        elif word in _ONE:
            result[word] = reduce_schema(value)
        elif word in _LIST and _array(value):
            result[word] = [reduce_schema(entry) for entry in _array(value)]
        elif word in _NAMED and _object(value):
            result[word] = {name: reduce_schema(entry) for name, entry in _object(value).items()}
    if values := _values(given):
        result["enum"] = values
    if required := _required(given, result):
        result["required"] = required
    return result


def _values(schema: Schema) -> list[str]:
    """Return the enum values; the backend supports only strings, so with any other value the result is empty."""
    values = [schema["const"]] if "const" in schema else _array(schema.get("enum"))
    texts = [value for value in values if isinstance(value, str) and value]
    return texts if len(texts) == len(values) else []


def _required(schema: Schema, result: Schema) -> list[str]:
    """Return the required properties that exist."""
    known = _object(result.get("properties"))
    return [name for name in _array(schema.get("required")) if isinstance(name, str) and name in known]


def _object(value: object) -> Schema:
    """Return an object of the schema; true and false, also valid schemas, become an empty one."""
    return cast("Schema", value) if isinstance(value, dict) else {}


def _array(value: object) -> list[object]:
    return cast("list[object]", value) if isinstance(value, list) else []
