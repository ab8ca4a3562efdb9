"""Says of settings that were refused which value it was, what is expected there, and which valid word is near."""

from typing import Any, cast

from msgspec import inspect

from yarrow.config.layer import KeyPath, format_path

NON_SECRET_TYPES = ("true or false", "a whole number", "a number")
"""What is expected of a value that is never a secret."""
MAX_SHOWN_CHARACTERS = 20
"""Of a text in such a place; a longer one may be a key, wherever it was meant to go."""


class InvalidValueError(Exception):
    """A value that cannot stand at `path`; whoever knows its source makes a `ConfigError` of it."""

    def __init__(self, path: KeyPath, message: str) -> None:
        super().__init__(message)
        self.path = path


def check_types(values: dict[str, Any], kind: Any) -> None:
    """Raise the first `InvalidValueError` of `values` as a `kind`; msgspec's message leaves out keys and choices."""
    _check_value(values, inspect.type_info(kind), ())


def find_nearest(word: str, words: list[str]) -> str:
    """Return the one of `words` that `word` was probably meant to be, or an empty text."""
    # Here, since only a mistake needs it.
    from difflib import get_close_matches

    lower = {each.lower(): each for each in words}
    found = get_close_matches(word.lower(), lower, n=1)
    return lower[found[0]] if found else ""


def _check_value(value: Any, kind: inspect.Type, path: KeyPath) -> None:
    match kind:
        case inspect.StructType():
            _check_fields(_expect_object(value, path), kind, path)
        case inspect.DictType():
            for key, item in _expect_object(value, path).items():
                _check_value(item, kind.value_type, (*path, key))
        case inspect.VarTupleType():
            for index, item in enumerate(_expect_list(value, path)):
                _check_value(item, kind.item_type, (*path, index))
        case inspect.UnionType() if value is not None:
            # Every union here is one kind of value, or null.
            _check_value(value, next(each for each in kind.types if not isinstance(each, inspect.NoneType)), path)
        case inspect.EnumType():
            _check_choice(value, [str(each.value) for each in kind.cls], path)
        case inspect.LiteralType():
            _check_choice(value, [str(each) for each in kind.values], path)
        case _:
            _check_scalar(value, kind, path)


def _check_fields(values: dict[str, Any], kind: inspect.StructType, path: KeyPath) -> None:
    known = {field.encode_name: field.type for field in kind.fields}
    for key, item in values.items():
        if key not in known:
            where = f" in {format_path(path)}" if path else ""
            raise InvalidValueError((*path, key), f"unknown key {key!r}{where}; {_suggest_key(key, list(known))}")
        _check_value(item, known[key], (*path, key))


def _check_scalar(value: Any, kind: inspect.Type, path: KeyPath) -> None:
    # To Python a bool is a number; to JSON it is not.
    is_bool = isinstance(value, bool)
    match kind:
        case inspect.BoolType() if not is_bool:
            raise _make_unexpected(value, "true or false", path)
        case inspect.IntType() if is_bool or not isinstance(value, int):
            raise _make_unexpected(value, "a whole number", path)
        case inspect.FloatType() if is_bool or not isinstance(value, int | float):
            raise _make_unexpected(value, "a number", path)
        case inspect.StrType() if not isinstance(value, str):
            raise _make_unexpected(value, "a text", path)
        case _:
            return


def _check_choice(value: Any, words: list[str], path: KeyPath) -> None:
    if not isinstance(value, str):
        raise _make_unexpected(value, f"one of {', '.join(words)}", path)
    if value not in words:
        raise InvalidValueError(path, f"{format_path(path)} cannot be {value!r}; the choices are {', '.join(words)}")


def _suggest_key(key: str, keys: list[str]) -> str:
    near = find_nearest(key, keys)
    return f"did you mean {near!r}?" if near else f"the keys here are {', '.join(keys)}"


def _expect_object(value: Any, path: KeyPath) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _make_unexpected(value, "an object", path)
    return cast("dict[str, Any]", value)


def _expect_list(value: Any, path: KeyPath) -> list[Any]:
    if not isinstance(value, list):
        raise _make_unexpected(value, "a list", path)
    return cast("list[Any]", value)


def _make_unexpected(value: Any, expected: str, path: KeyPath) -> InvalidValueError:
    # A text is told only where no secret can have been meant, which a number or a switch is not.
    match value:
        case None:
            found = "null"
        case bool():
            found = "true" if value else "false"
        case int() | float():
            found = f"the number {value}"
        case str() if expected in NON_SECRET_TYPES and len(value) <= MAX_SHOWN_CHARACTERS:
            found = f"the text {value!r}"
        case str():
            found = "a text"
        case list():
            found = "a list"
        case _:
            found = "an object"
    return InvalidValueError(path, f"{format_path(path)}: expected {expected}, found {found}")
