"""Encoding of request bodies as JSON that is valid UTF-8 whatever a message contains."""

from collections.abc import Iterable, Mapping
from typing import Any, cast

import msgspec

Body = dict[str, Any]


def merge_body(base: Mapping[str, Any], extra: Mapping[str, Any]) -> Body:
    """Return `base` with `extra` merged over it, objects recursively; null in `extra` removes a field."""
    result = dict(base)
    for name, value in extra.items():
        known = result.get(name)
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict) and isinstance(known, dict):
            result[name] = merge_body(cast("Body", known), cast("Body", value))
        else:
            result[name] = value
    return result


def to_json(body: Body) -> bytes:
    """Return the bytes of a body; a lone surrogate, which JSON cannot encode, becomes U+FFFD."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return msgspec.json.encode(_make_encodable(body))


def _make_encodable(value: object) -> object:
    if isinstance(value, str):
        return replace_surrogates(value)
    if isinstance(value, dict):
        return {_make_encodable(name): _make_encodable(item) for name, item in cast("Body", value).items()}
    if isinstance(value, list):
        return [_make_encodable(item) for item in cast("Iterable[object]", value)]
    return value


def replace_surrogates(text: str) -> str:
    """Return the text with surrogate pairs joined and lone surrogates replaced by U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
