"""Metadata limited to what a real connection carries: lower-case keys, printable text, and bytes for keys in -bin."""

import re
from collections.abc import Iterable
from typing import NamedTuple

MAX_METADATA_BYTES = 8 * 1024
"""Maximum bytes of the metadata that one end sends at once, including the details of a status.

A connection always refuses more than 16 KiB, and sometimes more than this; here the limit is strict.
"""

_ENTRY_BYTES = 32
"""Overhead in bytes that HTTP/2 counts for each entry."""

_KEY = r"[0-9a-z_.-]+"
_TEXT = r"[\x20-\x7e]*"


class Metadatum(NamedTuple):
    """One key and its value; bytes if the key ends in -bin, else text."""

    key: str
    value: str | bytes


Metadata = tuple[Metadatum, ...]


def checked(metadata: Iterable[tuple[str, str | bytes]] | None) -> Metadata:
    """Return the metadata as the other end sees it.

    Raises ValueError for a key or text that HTTP/2 forbids, TypeError for a value of the wrong type.
    """
    return tuple(Metadatum(key, _value(key, value)) for key, value in metadata or ())


def size(metadata: Metadata) -> int:
    """Return the size of metadata in bytes, as counted on a connection."""
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
