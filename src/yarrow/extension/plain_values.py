"""Copies of extension values as checked values of our own classes."""

from typing import TypeVar

import msgspec
from msgspec import Struct

T = TypeVar("T", bound=Struct)


def copy_plain(value: object, *kinds: type[T]) -> T:
    """Return `value` as a new value of its type in `kinds`; every field is type-checked. Raises TypeError."""
    kind = next((kind for kind in kinds if isinstance(value, kind)), None)
    if kind is None:
        names = ", ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"{type(value).__name__} is none of {names}")
    try:
        copy = msgspec.convert(msgspec.to_builtins(value, builtin_types=(bytes,)), kind)
        msgspec.json.encode(copy)
    except (msgspec.MsgspecError, UnicodeError, TypeError) as error:
        raise TypeError(f"{kind.__name__}: {error}") from None
    return copy
