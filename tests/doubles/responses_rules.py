"""The public rules of stateless requests of the Responses API, checked as strictly as the vendor does, in its words."""

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

_FIELDS = frozenset(
    {
        *("model", "input", "instructions", "tools", "tool_choice", "reasoning", "include", "store", "stream"),
        *("max_output_tokens", "temperature", "top_p", "prompt_cache_key", "parallel_tool_calls", "metadata", "text"),
        *("service_tier", "truncation", "safety_identifier", "stream_options"),
    }
)
_ITEM_FIELDS: dict[str, frozenset[str]] = {
    "message": frozenset({"type", "id", "role", "status", "content", "phase"}),
    "reasoning": frozenset({"type", "id", "summary", "content", "encrypted_content"}),
    "function_call": frozenset({"type", "id", "call_id", "name", "arguments"}),
    "function_call_output": frozenset({"type", "call_id", "output"}),
}
_PART_FIELDS: dict[str, frozenset[str]] = {
    "input_text": frozenset({"type", "text"}),
    "input_image": frozenset({"type", "image_url", "detail"}),
    "output_text": frozenset({"type", "text", "annotations"}),
    "summary_text": frozenset({"type", "text"}),
    "reasoning_text": frozenset({"type", "text"}),
}
_ID_PREFIXES = {"reasoning": "rs", "message": "msg", "function_call": "fc"}
_TOOL_FIELDS = frozenset({"type", "name", "description", "parameters", "strict"})
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|webp);base64,(.+)", re.DOTALL)
_REASONING_MODELS = ("o1", "o3", "o4", "gpt-5")
MIN_OUTPUT_TOKENS = 16


def violations(body: Mapping[str, Any], *, is_vendor: bool = False) -> list[str]:
    """Return what is wrong with the body of a request, one sentence each; empty when it is legal.

    The vendor's own models refuse more than other servers, and its results may contain images.
    """
    items = list(_dicts(body.get("input")))
    return [
        *_head(body),
        *(_of_model(body) if is_vendor else ()),
        *_tools(body),
        *_items(items, is_vendor=is_vendor),
        *_reasoning(items),
        *_pairs(items),
    ]


def _head(body: Mapping[str, Any]) -> Iterator[str]:
    yield from _extra("", body, _FIELDS)
    if not _text(body.get("model")):
        yield "Missing required parameter: 'model'."
    if body.get("stream") is not True:
        yield "Invalid value: 'stream' is not true."
    if body.get("store") is not False:
        yield "Invalid value: 'store' is not false."
    if "instructions" in body and not _text(body["instructions"]):
        yield "Invalid type for 'instructions': expected a text."
    limit = body.get("max_output_tokens", MIN_OUTPUT_TOKENS)
    if not isinstance(limit, int) or limit < MIN_OUTPUT_TOKENS:
        yield f"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got {limit}."
    temperature = body.get("temperature", 0)
    if not isinstance(temperature, int | float) or not 0 <= temperature <= 2:
        yield "Invalid 'temperature': decimal above maximum value."
    key = body.get("prompt_cache_key", "k")
    if not _text(key) or len(key) > 64:
        yield "Invalid 'prompt_cache_key': string too long."
    if body.get("include", []) not in ([], ["reasoning.encrypted_content"]):
        yield "Invalid value: 'include'."
    reasoning = _dict(body.get("reasoning", {}))
    yield from _extra("reasoning.", reasoning, frozenset({"effort", "summary"}))
    if reasoning.get("effort", "low") not in _EFFORTS:
        yield f"Invalid value: '{reasoning.get('effort')}' of 'reasoning.effort'."
    if reasoning.get("summary", "auto") not in ("auto", "concise", "detailed"):
        yield "Invalid value: 'reasoning.summary'."


def _of_model(body: Mapping[str, Any]) -> Iterator[str]:
    model = str(body.get("model"))
    if model.startswith(_REASONING_MODELS) and "temperature" in body:
        yield "Unsupported parameter: 'temperature' is not supported with this model."
    if model.startswith("gpt-4") and body.get("include"):
        yield "Encrypted content is not supported with this model."
    if model.startswith("gpt-4") and "reasoning" in body:
        yield "Unsupported parameter: 'reasoning.effort' is not supported with this model."


def _tools(body: Mapping[str, Any]) -> Iterator[str]:
    if "tools" not in body:
        if "tool_choice" in body:
            yield "Tool choice 'tool_choice' must be specified with 'tools'."
        return
    if body.get("tool_choice", "auto") not in ("auto", "none", "required"):
        yield "Invalid value: 'tool_choice'."
    names: set[str] = set()
    for at, tool in enumerate(_dicts(body["tools"])):
        yield from _extra(f"tools[{at}].", tool, _TOOL_FIELDS)
        name = str(tool.get("name"))
        if tool.get("type") != "function" or not _ID.fullmatch(name):
            yield f"Invalid 'tools[{at}].name': string does not match pattern."
        if name in names:
            yield f"Invalid 'tools[{at}].name': duplicate."
        names.add(name)
        if tool.get("strict") is not False or not isinstance(tool.get("description", ""), str):
            yield f"Invalid schema for function '{name}': strict mode is not meant."
        if _dict(tool.get("parameters")).get("type") != "object":
            yield f"Invalid schema for function '{name}': schema must be of type object."


def _items(items: Sequence[Mapping[str, Any]], *, is_vendor: bool) -> Iterator[str]:
    if not items:
        yield "One of 'input' or 'previous_response_id' must be provided."
    for at, item in enumerate(items):
        if "type" not in item:
            yield from (f"input[{at}].{problem}" for problem in _short_message(item))
            if item.get("role") == "assistant" and not is_vendor:
                yield "Cannot determine type of 'item'"  # llama.cpp
            continue
        kind = str(item["type"])
        if kind not in _ITEM_FIELDS:
            yield f"Invalid value: '{kind}' of 'input[{at}].type'."
            continue
        yield from _extra(f"input[{at}].", item, _ITEM_FIELDS[kind])
        yield from (f"input[{at}].{problem}" for problem in _item(kind, item, is_vendor=is_vendor))


def _short_message(item: Mapping[str, Any]) -> Iterator[str]:
    yield from _extra("", item, frozenset({"role", "content", "phase"}))
    role, content = item.get("role"), item.get("content")
    if role not in ("user", "assistant"):
        yield f"role: Invalid value: '{role}'."
    if item.get("phase", "commentary") not in ("commentary", "final_answer") or ("phase" in item and role == "user"):
        yield "phase: Invalid value."
    if isinstance(content, str):
        if not content.strip():
            yield "content: must not be empty."
    elif role == "assistant":
        yield "content: Invalid type: expected a text."
    else:
        yield from _parts(content, ("input_text", "input_image"))


def _item(kind: str, item: Mapping[str, Any], *, is_vendor: bool) -> Iterator[str]:
    if kind in _ID_PREFIXES and "id" in item:
        found = str(item["id"])
        if not _ID.fullmatch(found) or not found.startswith(f"{_ID_PREFIXES[kind]}_"):
            yield f"id: Invalid '{found}'. Expected an ID that begins with '{_ID_PREFIXES[kind]}'."
    match kind:
        case "message":
            if item.get("role") != "assistant" or item.get("status") != "completed":
                yield "Missing required parameter of an output message."
            if is_vendor and "id" not in item:
                yield "Missing required parameter: 'id'."
            yield from _parts(item.get("content"), ("output_text",))
        case "reasoning":
            if not isinstance(item.get("summary"), list):
                yield "summary: Missing required parameter: 'summary'."
            else:
                yield from _texts(item["summary"], "summary_text")
            yield from _texts(item.get("content", []), "reasoning_text")
            if not _text(item.get("encrypted_content")) and not item.get("content"):
                yield f"Item with id '{item.get('id')}' not found. Items are not persisted when `store` is false."
        case "function_call":
            yield from _call_id(item)
            if not isinstance(item.get("name"), str) or not _ID.fullmatch(item["name"]):
                yield "name: string does not match pattern."
            if not _is_object(item.get("arguments")):
                yield "arguments: is not the text of an object."
        case _:
            yield from _call_id(item)
            output = item.get("output")
            if isinstance(output, str):
                if not output:
                    yield "output: must not be empty."
            elif not is_vendor:
                yield "output: Output of tool call should be 'Input text'."
            else:
                yield from _parts(output, ("input_text", "input_image"))


def _call_id(item: Mapping[str, Any]) -> Iterator[str]:
    if not isinstance(item.get("call_id"), str) or not _ID.fullmatch(item["call_id"]):
        yield "call_id: string too long, or with other characters than letters, numbers, underscores, or dashes."


def _parts(content: object, kinds: Sequence[str]) -> Iterator[str]:
    parts = list(_dicts(content))
    if not parts:
        yield "content: must be a list with parts."
    for part in parts:
        kind = str(part.get("type"))
        if kind not in kinds:
            yield f"content: Invalid value: '{kind}'. Supported values are: {', '.join(kinds)}."
            continue
        yield from _extra(f"content.{kind}.", part, _PART_FIELDS[kind])
        if kind == "input_image":
            yield from _image(part)
        elif not _text(part.get("text")):
            yield f"content.{kind}: text must not be empty."
        if kind == "output_text" and part.get("annotations") != []:
            yield "content.output_text.annotations: Missing required parameter."


def _texts(parts: object, kind: str) -> Iterator[str]:
    for part in _dicts(parts):
        yield from _extra(f"{kind}.", part, _PART_FIELDS[kind])
        if part.get("type") != kind or not isinstance(part.get("text"), str):
            yield f"{kind}: Invalid value."


def _image(part: Mapping[str, Any]) -> Iterator[str]:
    found = _IMAGE.fullmatch(str(part.get("image_url")))
    try:
        if found is None or not base64.b64decode(found[1], validate=True):
            yield "image_url: Expected a base64-encoded data URL with an image MIME type."
    except binascii.Error:
        yield "image_url: The image data you provided does not represent a valid image."
    if part.get("detail") != "auto":
        yield "detail: Missing required parameter."


def _reasoning(items: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Check that reasoning leads to something, and that what it leads to does not come without it."""
    given: set[str] = set()
    is_open = has_reasoning = False
    for item in items:
        kind, found = item.get("type"), item.get("id")
        is_answer = kind in _ID_PREFIXES or item.get("role") == "assistant"
        if is_open and not is_answer:
            yield "Item of type 'reasoning' was provided without its required following item."
        if not is_answer:
            is_open = has_reasoning = False
            continue
        if isinstance(found, str):
            if found in given:
                yield f"Duplicate item found with id {found}. Remove duplicate items from your input and try again."
            given.add(found)
            if kind != "reasoning" and not has_reasoning:
                yield f"Item '{found}' of type '{kind}' was provided without its required 'reasoning' item."
        is_open = kind == "reasoning"
        has_reasoning = has_reasoning or is_open
    if is_open:
        yield "Item of type 'reasoning' was provided without its required following item."


def _pairs(items: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Check that the results of calls follow them in order, before anything else; some templates require that."""
    due: list[str] = []
    seen: set[str] = set()
    for at, item in enumerate(items):
        kind, call_id = item.get("type"), str(item.get("call_id"))
        if kind == "function_call_output":
            if call_id not in due:
                yield f"No tool call found for function call output with call_id {call_id}."
            elif call_id != due.pop(0):
                yield f"input[{at}]: the outputs are in another order than the calls."
            continue
        if due and (item.get("role") == "user" or (items[at - 1].get("type") == "function_call_output")):
            yield f"No tool output found for function call {due[0]}."
            due = []
        if kind == "function_call":
            if call_id in seen:
                yield f"input[{at}].call_id: {call_id} is not unique."
            seen.add(call_id)
            due.append(call_id)
    if due:
        yield f"No tool output found for function call {due[0]}."
    last = items[-1] if items else {}
    if last.get("role") == "assistant" or last.get("type") in _ID_PREFIXES:
        yield "The last item is an answer; nothing is left to answer."


def _extra(place: str, fields: Mapping[str, Any], known: frozenset[str]) -> Iterator[str]:
    yield from (f"Unknown parameter: '{place}{name}'." for name in fields if name not in known)


def _is_object(arguments: object) -> bool:
    try:
        return isinstance(arguments, str) and isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _dict(value: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _dicts(value: object) -> Iterator[Mapping[str, Any]]:
    """Give the entries of a list as objects; what is none is an empty one, and fails every rule."""
    for entry in cast("list[Any]", value) if isinstance(value, list) else []:
        yield _dict(entry)
