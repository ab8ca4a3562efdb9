"""Reads what must be known of a GGUF file before a server is started with it."""

import struct
from pathlib import Path
from typing import BinaryIO

from yarrow.errors import Code, ProviderError

MAGIC = b"GGUF"
MAX_FIELDS = 10_000
"""Fields of the header that are looked through; a context length behind them is not found."""
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of each type of fixed size."""
_STRING, _ARRAY, _UINT32, _UINT64 = 8, 9, 4, 10
_MAX_STRING = 1 << 26


def read_context_length(path: Path) -> int:
    """Return the tokens of context that a model was trained for, 0 when its file does not say.

    Raises `ProviderError` (PROVIDER_SETUP) when there is no such file or it is not GGUF.
    """
    try:
        with path.open("rb") as file:
            if file.read(4) != MAGIC:
                raise _failed(f"{path} is not a GGUF file: name a model in the GGUF format")
            return _find_context_length(file)
    except OSError as error:
        raise _failed(f"the model {path} cannot be read ({error.strerror}): name the path of a GGUF file") from None
    except (struct.error, ValueError):
        raise _failed(f"{path} is a damaged GGUF file: fetch it again") from None


def _find_context_length(file: BinaryIO) -> int:
    _version, _tensors, fields = struct.unpack("<IQQ", file.read(20))
    for _ in range(min(fields, MAX_FIELDS)):
        name = _string(file)
        kind = _number(file, 4)
        if name.endswith(b".context_length") and kind in (_UINT32, _UINT64):
            return _number(file, _SIZES[kind])
        _skip(file, kind)
    return 0


def _skip(file: BinaryIO, kind: int) -> None:
    if kind == _STRING:
        file.seek(_number(file, 8), 1)
    elif kind == _ARRAY:
        inner, count = _number(file, 4), _number(file, 8)
        if inner in _SIZES:
            file.seek(_SIZES[inner] * count, 1)
        elif inner == _STRING:
            for _ in range(count):
                _skip(file, inner)
        else:
            raise ValueError(f"an array of type {inner}")
    elif kind in _SIZES:
        file.seek(_SIZES[kind], 1)
    else:
        raise ValueError(f"unknown type {kind}")


def _string(file: BinaryIO) -> bytes:
    length = _number(file, 8)
    if length > _MAX_STRING:
        raise ValueError("a string without an end")
    return file.read(length)


def _number(file: BinaryIO, size: int) -> int:
    data = file.read(size)
    if len(data) < size:
        raise ValueError("the file ends too early")
    return int.from_bytes(data, "little")


def _failed(sentence: str) -> ProviderError:
    return ProviderError(Code.PROVIDER_SETUP, sentence)
