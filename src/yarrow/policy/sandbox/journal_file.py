"""Small JSON files of records in the journal directory, and paths as JSON."""

import base64
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

R = TypeVar("R", bound=Struct)


def read_records(file: Path, kind: type[list[R]], max_bytes: int | None = None) -> list[R]:
    """Return the records in a file; none if it is missing, invalid or longer than `max_bytes`."""
    with suppress(OSError, msgspec.MsgspecError):
        with file.open("rb") as opened:
            data = opened.read(-1 if max_bytes is None else max_bytes + 1)
        if max_bytes is None or len(data) <= max_bytes:
            return msgspec.json.decode(data, type=kind, dec_hook=decode_path)
    return []


def write_records(file: Path, records: Sequence[Struct]) -> None:
    """Replace the records in a file. Raises OSError."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = file.with_name(f"{file.name}.{os.urandom(8).hex()}")
    try:
        beside.write_bytes(msgspec.json.encode(records, enc_hook=encode_path))
        beside.replace(file)
    finally:
        with suppress(OSError):
            beside.unlink(missing_ok=True)


def encode_path(value: object) -> bytes:
    """Return a path as bytes for JSON, because it may not be valid text."""
    if isinstance(value, Path):
        return os.fsencode(value)
    raise NotImplementedError(type(value))


def decode_path(kind: type, value: object) -> Path:
    """Return the path encoded by `encode_path`. Raises TypeError and ValueError for any other value."""
    if kind is not Path:
        raise NotImplementedError(kind)
    if not isinstance(value, str):
        raise TypeError(f"a path is text in base64, not {type(value).__name__}")
    return Path(os.fsdecode(base64.b64decode(value, validate=True)))
