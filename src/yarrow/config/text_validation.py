"""Checks that every configured text is UTF-8 and that every configured path begins in a directory that there is."""

from pathlib import Path
from typing import Any, cast

from yarrow.config.layer import KeyPath, format_path
from yarrow.config.type_validation import InvalidValueError

_PATHS = frozenset({"sessionDir", "script", "chatTemplate", "models", "extra", "read", "extensions"})
"""Keys that hold a path or a list of paths, wherever they stand."""
_ANYTHING = frozenset({"extraBody", "headers"})
"""Keys whose value is passed on as it is."""


def check_texts(value: Any, path: KeyPath = ()) -> None:
    """Raise `InvalidValueError` for a text that is not UTF-8, and for a path below the home of an unknown user."""
    match value:
        case dict():
            for key, item in cast("dict[str, Any]", value).items():
                if key not in _ANYTHING:
                    check_texts(item, (*path, key))
        case list():
            for index, item in enumerate(cast("list[Any]", value)):
                check_texts(item, (*path, index))
        case str():
            _check_utf8(value, path)
            if "\0" in value and not _PATHS.isdisjoint(path[-2:]):
                raise InvalidValueError(path, f"{format_path(path)} is {value!r}, which is not a path: it holds a NUL")
            if value.startswith("~") and not _PATHS.isdisjoint(path[-2:]):
                _check_home(value, path)
        case _:
            return


def _check_utf8(text: str, path: KeyPath) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidValueError(
            path, f"{format_path(path)} is {text!r}, which is not UTF-8; write it in UTF-8"
        ) from None


def _check_home(text: str, path: KeyPath) -> None:
    try:
        Path(text).expanduser()
    except RuntimeError:
        home = text.partition("/")[0]
        raise InvalidValueError(
            path,
            f"{format_path(path)} is {text!r}, but there is no home directory {home}; "
            f"write the whole path, or ./{text}",
        ) from None
