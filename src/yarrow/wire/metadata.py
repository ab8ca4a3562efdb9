"""Metadata that a real connection would carry: lower-case keys, printable text, and bytes where a key ends in -bin."""

import re
from collections.abc import Iterable
from typing import NamedTuple

MAX_METADATA_BYTES = 8 * 1024
"""Bytes of all metadata that one end sends at once, the details of a status among them.

A connection refuses more than 16 KiB always and more than this sometimes; here it is always.
"""

_ENTRY_BYTES = 32
"""What HTTP/2 counts for an entry besides its key and value."""

_KEY = r"[0-9a-z_.-]+"
_TEXT = r"[\x20-\x7e]*"


class Metadatum(NamedTuple):
    """One key and its value; bytes if the key ends in -bin, else text."""

    key: str
    value: str | bytes


Metadata = tuple[Metadatum, ...]


def checked(metadata: Iterable[tuple[str, str | bytes]] | None) -> Metadata:
    """Returns the metadata as the other end will see it.

    Raises ValueError for a key or text that HTTP/2 forbids, TypeError for a value of the wrong type.
    """
    return tuple(Metadatum(key, _value(key, value)) for key, value in metadata or ())


def size(metadata: Metadata) -> int:
    """Returns the bytes that metadata counts for on a connection."""
    return sum(len(key) + len(value) + _ENTRY_BYTES for key, value in metadata)


def _value(key: str, value: str | bytes) -> str | bytes:
    if not re.fullmatch(_KEY, key):
        raise ValueError(f"metadata key {key!r} has a character outside 0-9 a-z _ . -")
    if key.endswith("-bin"):
        if not isinstance(value, bytes):
            raise TypeError(f"metadata value under {key!r} must be bytes, not {type(value).__name__}")
        return value
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    if not re.fullmatch(_TEXT, text):
        raise ValueError(f"metadata value {text!r} under {key!r} is not printable ASCII; end the key in -bin")
    return text
