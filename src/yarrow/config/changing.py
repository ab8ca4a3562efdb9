"""Changes the user's own configuration file by one value, and leaves every comment in it where it was."""

import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from yarrow.config.check import check_layer
from yarrow.config.comments import blank_comments, without_comments
from yarrow.config.files import LARGEST_FILE, decode, read_data
from yarrow.config.locate import members, skip
from yarrow.config.replacing import locked, replace_file
from yarrow.config.visible import visible
from yarrow.errors import StorageError
from yarrow.platform import system

_MARK = "\ufeff"


def change_file(path: Path, change: Callable[[str], str]) -> None:
    """Put what `change` makes of the text of a configuration file in its place; it is made when it is absent.

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
            mark, text = (_MARK, text[1:]) if text.startswith(_MARK) else ("", text)
            if not without_comments(text).strip():
                text = "\n".join([*text.splitlines(), "{}", ""])
            new = change(text)
            encoded = (mark + new).encode()
            if len(encoded) > LARGEST_FILE:
                raise StorageError(f"{label} is full; take out of it what is not needed")
            check_layer(decode(encoded, label))
            if new != text:
                replace_file(target, encoded, mode=mode)
    except (OSError, RuntimeError) as error:  # a ring of links is a RuntimeError
        reason = error.strerror if isinstance(error, OSError) else error
        raise StorageError(f"{label} cannot be written: {reason}; nothing was kept") from None


def with_value(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text of a configuration file with a value at `path`, in place of the one there if there is one."""
    # Every place in it is the same in the text with comments.
    strict = without_comments(text)
    place = skip(strict, 0)
    for depth, key in enumerate(path):
        inside = members(strict, place)
        last = depth == len(path) - 1
        if key not in inside or (not last and strict[inside[key][1]] != "{"):
            nested: Any = value
            for outer in reversed(path[depth + 1 :]):
                nested = {outer: nested}
            piece = f"{_encoded(key)}: {_encoded(nested)}"
            return insert(text, strict, place, piece=piece)
        place = inside[key][1]
    return text[:place] + _encoded(value) + text[_end(strict, place) :]


def insert(text: str, strict: str, opening: int, *, piece: str) -> str:
    """Return the text with a first member put into the object or list that opens at `opening`."""
    line = text.rfind("\n", 0, opening) + 1
    indent = text[line : len(text) - len(text[line:].lstrip(" \t"))] + "  "
    after = opening + 1
    empty = strict[skip(strict, after)] in "]}"
    rest = text[after:]
    end = "" if empty else ","
    gap = "" if rest.startswith(("\n", "\r")) else f"\n{indent[:-2] if rest[:1] in ('}', ']') else indent}"
    return f"{text[:after]}\n{indent}{piece}{end}{gap}{rest}"


def without_item(text: str, strict: str, opening: int, *, index: int) -> str:
    """Return the text without one item of the list that opens at `opening`; comments stay, an empty line does not."""
    items = members(strict, opening)
    begin = items[index][1]
    end = _end(strict, begin)
    cuts = [(begin, end)]
    # A trailing comma goes with the item that it follows.
    with_commas = blank_comments(text)
    if with_commas[after := skip(with_commas, end)] == ",":
        cuts.append((after, after + 1))
    elif index:
        comma = strict.index(",", _end(strict, items[index - 1][1]))
        cuts.insert(0, (comma, comma + 1))
    for start, stop in reversed(cuts):
        text = text[:start] + text[stop:]
        line = text.rfind("\n", 0, start) + 1
        following = text.find("\n", start) + 1
        if line and following and not text[line:following].strip():
            text = text[:line] + text[following:]
    return text


def _encoded(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _end(strict: str, place: int) -> int:
    """Return where the value that begins at `place` ends."""
    from json import JSONDecoder

    return JSONDecoder().raw_decode(strict, place)[1]


def _mode(path: Path, label: str) -> int:
    """Return the mode of the file. Raises `StorageError` for one that is not this user's."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0o600
    if not stat.S_ISREG(status.st_mode) or not system.is_ours(status):
        raise StorageError(f"{label} is not a file of yours; nothing was kept")
    return stat.S_IMODE(status.st_mode)
