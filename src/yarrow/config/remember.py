"""Keeps a call that was allowed always in the user's own file, and every comment in it where it was."""

import os
import stat
from pathlib import Path
from typing import Any, cast

import msgspec

from yarrow.config.check import check_layer
from yarrow.config.comments import without_comments
from yarrow.config.files import LARGEST_FILE, decode, read_data
from yarrow.config.locate import members, skip
from yarrow.config.replacing import locked, replace_file
from yarrow.config.settings import AllowedCall
from yarrow.config.visible import visible
from yarrow.errors import StorageError

_MARK = "\ufeff"


def remember(path: Path, call: AllowedCall) -> None:
    """Add a call to `permissions.always` of the file at `path`, which is made when it is absent.

    Raises `StorageError` when it cannot be written or is not this user's, `ConfigError` when what it says is wrong;
    then it is as it was.
    """
    label = visible(str(path))
    try:
        # A link stays one: what it leads to is changed.
        target = path.resolve()
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with locked(target.parent):
            mode = _mode(target, label)
            data = read_data(target, label)
            if data is not None:
                check_layer(decode(data, label))
            text = "{}\n" if data is None else data.decode()
            new = with_allowed(text, call)
            encoded = new.encode()
            if len(encoded) > LARGEST_FILE:
                raise StorageError(f"{label} is full; take out of permissions.always what is not needed")
            check_layer(decode(encoded, label))
            if new != text:
                replace_file(target, encoded, mode=mode)
    except (OSError, RuntimeError) as error:  # a ring of links is a RuntimeError
        reason = error.strerror if isinstance(error, OSError) else error
        raise StorageError(f"{label} cannot be written: {reason}; the answer was not kept") from None


def with_allowed(text: str, call: AllowedCall) -> str:
    """Return the text of a configuration file with a call added to `permissions.always`, unless it is there."""
    mark, text = (_MARK, text[1:]) if text.startswith(_MARK) else ("", text)
    # Every place in it is the same in the text with comments.
    strict = without_comments(text)
    entry = msgspec.json.encode(call).decode()
    root = skip(strict, 0)
    top = members(strict, root)
    if "permissions" not in top:
        return mark + _insert(text, strict, root, piece=f'"permissions": {{"always": [{entry}]}}')
    place = top["permissions"][1]
    inner = members(strict, place)
    if "always" not in inner:
        return mark + _insert(text, strict, place, piece=f'"always": [{entry}]')
    place = inner["always"][1]
    present = _values(strict, place)
    return mark + (text if msgspec.to_builtins(call) in present else _insert(text, strict, place, piece=entry))


def _insert(text: str, strict: str, opening: int, *, piece: str) -> str:
    """Return the text with a first member put into the object or list that opens at `opening`."""
    line = text.rfind("\n", 0, opening) + 1
    indent = text[line : len(text) - len(text[line:].lstrip(" \t"))] + "  "
    after = opening + 1
    empty = strict[skip(strict, after)] in "]}"
    rest = text[after:]
    end = "" if empty else ","
    gap = "" if rest.startswith(("\n", "\r")) else f"\n{indent[:-2] if rest[:1] in ('}', ']') else indent}"
    return f"{text[:after]}\n{indent}{piece}{end}{gap}{rest}"


def _values(strict: str, opening: int) -> list[Any]:
    from json import JSONDecoder

    return cast("list[Any]", JSONDecoder().raw_decode(strict, opening)[0])


def _mode(path: Path, label: str) -> int:
    """Return the mode of the file. Raises `StorageError` for one that is not this user's."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0o600
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        raise StorageError(f"{label} is not a file of yours; the answer was not kept")
    return stat.S_IMODE(status.st_mode)
