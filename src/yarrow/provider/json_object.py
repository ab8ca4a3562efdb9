"""Tells whether a text is one whole JSON object, as the arguments of a tool call must be."""

from typing import Any

import msgspec

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def is_json_object(text: str) -> bool:
    """Tell whether a text is one whole JSON object, with nothing but white space around it."""
    try:
        _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True
