"""The public rules of generateContent requests, checked as strictly as the strictest model does."""

import binascii
import re
from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any, cast

from yarrow.provider.gemini.request import ALLOWED_KEYWORDS, MEDIA_TYPES, wants_signature

_FIELDS = frozenset({"contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings"})
_KINDS = frozenset({"text", "inlineData", "functionCall", "functionResponse"})
_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}")
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]+|[A-Za-z0-9_-]+)={0,2}")
_MODES = ("AUTO", "ANY", "NONE", "VALIDATED")
_INNER_FIELDS: dict[str, frozenset[str]] = {
    "inlineData": frozenset({"mimeType", "data", "displayName"}),
    "functionCall": frozenset({"name", "args", "id"}),
    "functionResponse": frozenset({"name", "response", "id", "parts"}),
    "generationConfig": frozenset(
        {"temperature", "topP", "topK", "maxOutputTokens", "stopSequences", "seed", "thinkingConfig"}
    ),
    "declaration": frozenset({"name", "description", "parameters", "parametersJsonSchema"}),
    "content": frozenset({"role", "parts"}),
}
MAX_DEPTH = 100
"""Objects and lists inside each other, beyond which the backend does not parse a request."""


def violations(body: Mapping[str, Any], model: str = "") -> list[str]:
    """Return what is wrong with the body of a request for a model, one sentence each; empty when it is legal."""
    return [*_head(body), *_tools(body), *_contents(body, model)]


def _head(body: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(body.keys() - _FIELDS):
        yield f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.'
    if _depth(body) > MAX_DEPTH:
        yield "Invalid JSON payload received. Message too deep. Max recursion depth reached."
    config = _dict(body.get("generationConfig"))
    yield from _unknown(config, "generationConfig")
    temperature = config.get("temperature", 0)
    if not isinstance(temperature, int | float) or not 0 <= temperature <= 2:
        yield f"generationConfig.temperature: {temperature!r} is not in the range [0, 2]"
    limit = config.get("maxOutputTokens", 1)
    if not isinstance(limit, int) or limit <= 0:
        yield "generationConfig.maxOutputTokens: must be positive"
    if "thinkingBudget" in _dict(config.get("thinkingConfig")) and "thinkingLevel" in config["thinkingConfig"]:
        yield "generationConfig.thinkingConfig: only one of thinkingBudget and thinkingLevel may be set"
    if "systemInstruction" in body:
        parts = list(_dicts(_dict(body["systemInstruction"]).get("parts")))
        if not parts or not all(_text(part.get("text")) for part in parts):
            yield "systemInstruction: must contain non-empty text"


def _tools(body: Mapping[str, Any]) -> Iterator[str]:
    if "toolConfig" in body:
        if "tools" not in body:
            yield "toolConfig: function calling config is set without function_declarations"
        if _dict(_dict(body["toolConfig"]).get("functionCallingConfig")).get("mode") not in _MODES:
            yield "toolConfig.functionCallingConfig.mode: invalid value"
    names: set[str] = set()
    for tool in _dicts(body.get("tools")):
        declarations = list(_dicts(_field(tool, "functionDeclarations")))
        if not declarations:
            yield "tools.functionDeclarations: at least one is required"
        for declaration in declarations:
            yield from _unknown(declaration, "declaration")
            name = str(declaration.get("name"))
            if not _NAME.fullmatch(name):
                yield f"tools.functionDeclarations: invalid function name {name!r}"
            if name in names:
                yield f"tools.functionDeclarations: Duplicate function declaration found: {name}"
            names.add(name)
            if not _text(declaration.get("description", "x")):
                yield f"tools.functionDeclarations.{name}.description: must be text"
            schema = _field(declaration, "parametersJsonSchema")
            if schema is not None:
                if not _dict(_dict(schema).get("properties")):
                    yield f"tools.functionDeclarations.{name}.parameters: should be non-empty for OBJECT type"
                yield from _schema(schema, name)


def _schema(schema: object, at: str) -> Iterator[str]:
    fields = _dict(schema)
    if fields != schema:
        yield f"{at}: a schema must be an object"
    for word in sorted(fields.keys() - ALLOWED_KEYWORDS):
        yield f'Invalid JSON payload received. Unknown name "{word}" at {at}: Cannot find field.'
    properties = _dict(fields.get("properties"))
    if not properties.keys() >= set(fields.get("required", ())):
        yield f"{at}.required: property is not defined"
    for name, entry in [*properties.items(), *_dict(fields.get("$defs")).items()]:
        yield from _schema(entry, f"{at}.{name}")
    for word in ("anyOf", "oneOf", "prefixItems"):
        for entry in fields.get(word, ()):
            yield from _schema(entry, f"{at}.{word}")
    if "items" in fields:
        yield from _schema(fields["items"], f"{at}.items")


def _contents(body: Mapping[str, Any], model: str) -> Iterator[str]:
    contents = list(_dicts(body.get("contents")))
    if not contents:
        yield "contents is not specified"
    due: list[Mapping[str, Any]] = []
    for at, content in enumerate(contents):
        role = content.get("role")
        parts = list(_dicts(content.get("parts")))
        yield from _unknown(content, "content")
        if role != ("user", "model")[at % 2]:
            yield f"contents[{at}]: roles must alternate between user and model, beginning with user"
        if not parts:
            yield f"contents[{at}].parts: must contain at least one part"
        for part in parts:
            yield from (f"contents[{at}]: {problem}" for problem in _part(part, str(role)))
        if not _answers(due, parts):
            yield (
                f"contents[{at}]: Please ensure that the number of function response parts is equal to the number of "
                "function call parts of the function call turn, that they come first and in the same order."
            )
        due = [_dict(part["functionCall"]) for part in parts if "functionCall" in part]
        first = next((part for part in parts if "functionCall" in part), {"thoughtSignature": ""})
        if wants_signature(model) and "thoughtSignature" not in first:
            yield f"contents[{at}]: Function call is missing a thought_signature in functionCall parts."
    if len(contents) % 2 == 0:
        yield "contents: Please ensure that the conversation ends with a user role"


def _part(part: Mapping[str, Any], role: str) -> Iterator[str]:
    kinds = part.keys() - {"thought", "thoughtSignature"}
    if len(kinds) != 1 or not kinds <= _KINDS:
        yield f"a part must have one of its kinds of data, not {sorted(kinds)}"
        return
    if "thoughtSignature" in part and not (role == "model" and _is_base64(part["thoughtSignature"])):
        yield "Corrupted thought signature."
    [kind] = kinds
    value = part[kind]
    if kind in _INNER_FIELDS:
        yield from _unknown(_dict(value), kind)
    match kind:
        case "text":
            if not _text(value) and not (value == "" and "thoughtSignature" in part):
                yield "a text part is blank"
        case "inlineData":
            if role != "user" or _field(_dict(value), "mimeType") not in MEDIA_TYPES:
                yield "Unsupported MIME type"
            if not _is_base64(_dict(value).get("data")):
                yield "Base64 decoding failed"
        case _:
            if role != ("model" if kind == "functionCall" else "user"):
                yield f"a {kind} part of the {role}"
            if not _NAME.fullmatch(str(_dict(value).get("name"))):
                yield f"{kind}.name: invalid"
            if not isinstance(_dict(value).get("args" if kind == "functionCall" else "response"), dict):
                yield f"{kind}: must hold an object"


def _answers(calls: list[Mapping[str, Any]], parts: list[Mapping[str, Any]]) -> bool:
    """Tell whether the first parts are the responses to the calls, and the only responses."""
    responses = [_dict(part["functionResponse"]) for part in parts if "functionResponse" in part]
    leading = all("functionResponse" in part for part in parts[: len(responses)])
    asked = [(call.get("name"), call.get("id")) for call in calls]
    return leading and asked == [(response.get("name"), response.get("id")) for response in responses]


def _is_base64(value: object) -> bool:
    """Tell whether a value is base64 of either alphabet, as the backend takes both."""
    if not isinstance(value, str) or not _BASE64.fullmatch(value):
        return False
    try:
        return bool(b64decode(value, altchars=b"-_" if {"-", "_"} & {*value} else None, validate=True))
    except binascii.Error:
        return False


def _unknown(fields: Mapping[str, Any], kind: str) -> Iterator[str]:
    known = _INNER_FIELDS[kind]
    for name in sorted(fields.keys() - known - {*map(_snake, known)}):
        yield f'Invalid JSON payload received. Unknown name "{name}" at {kind}: Cannot find field.'


def _depth(value: object) -> int:
    """Return how many objects and lists are inside each other."""
    layer, depth = [value], 0
    while layer := [inner for one in layer for inner in _inside(one)]:
        depth += 1
    return depth


def _inside(value: object) -> Iterator[object]:
    """Give what an object or a list holds, and always something, so that an empty one counts too."""
    if isinstance(value, dict):
        yield from cast("dict[str, object]", value).values()
        yield None
    elif isinstance(value, list):
        yield from cast("list[object]", value)
        yield None


def _field(fields: Mapping[str, Any], name: str) -> Any:
    """Return a field under either of the names that the backend knows it by."""
    return fields.get(name, fields.get(_snake(name)))


def _snake(name: str) -> str:
    return re.sub(r"[A-Z]", lambda found: f"_{found[0].lower()}", name)


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _dict(value: object) -> Mapping[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _dicts(value: object) -> Iterator[Mapping[str, Any]]:
    """Give the entries of a list as objects; what is none is an empty one, and fails every rule."""
    for entry in cast("list[Any]", value) if isinstance(value, list) else []:
        yield _dict(entry)
