"""Edits of single values in the user's own configuration file that preserve its comments."""

import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from yarrow.config.files import MAX_CONFIG_FILE_BYTES, decode_settings, hold_directory_lock, read_bytes, replace_file
from yarrow.config.settings import AllowedCall
from yarrow.config.settings_source import blank_comments, escape_unprintable, find_members, skip_space, to_strict_json
from yarrow.config.validation import check_layer
from yarrow.errors import StorageError
from yarrow.platform import system

_BYTE_ORDER_MARK = "\ufeff"


def change_file(path: Path, change: Callable[[str], str]) -> None:
    """Replace the text of a configuration file by the result of `change`; a missing file is created.

    Raises `StorageError` if the file cannot be written or has another owner, and `ConfigError` if its content is
    invalid; it is then unchanged.
    """
    label = escape_unprintable(str(path))
    try:
        # Keep a symlink and change its target.
        target = path.resolve()
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with hold_directory_lock(target.parent):
            mode = _get_mode(target, label)
            data = read_bytes(target, label)
            if data is not None:
                check_layer(decode_settings(data, label))
            text = "{}\n" if data is None else data.decode()
            mark, text = (_BYTE_ORDER_MARK, text[1:]) if text.startswith(_BYTE_ORDER_MARK) else ("", text)
            if not to_strict_json(text).strip():
                text = "\n".join([*text.splitlines(), "{}", ""])
            new = change(text)
            encoded = (mark + new).encode()
            if len(encoded) > MAX_CONFIG_FILE_BYTES:
                raise StorageError(f"{label} would exceed {MAX_CONFIG_FILE_BYTES} bytes: remove what is not needed")
            check_layer(decode_settings(encoded, label))
            if new != text:
                replace_file(target, encoded, mode=mode)
    except (OSError, RuntimeError) as error:  # a symlink loop is a RuntimeError
        reason = error.strerror if isinstance(error, OSError) else error
        raise StorageError(f"cannot write {label}: {reason}; nothing was saved") from None


def set_value(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text of a configuration file with the value at `path` set or replaced."""
    # Positions are the same in the text with comments.
    strict = to_strict_json(text)
    place = skip_space(strict, 0)
    for depth, key in enumerate(path):
        inside = find_members(strict, place)
        last = depth == len(path) - 1
        if key not in inside or (not last and strict[inside[key][1]] != "{"):
            nested: Any = value
            for outer in reversed(path[depth + 1 :]):
                nested = {outer: nested}
            piece = f"{_encode(key)}: {_encode(nested)}"
            return insert_member(text, strict, place, piece=piece)
        place = inside[key][1]
    return text[:place] + _encode(value) + text[_find_end(strict, place) :]


def insert_member(text: str, strict: str, opening: int, *, piece: str) -> str:
    """Return the text with a new first member in the object or list that opens at `opening`."""
    line = text.rfind("\n", 0, opening) + 1
    indent = text[line : len(text) - len(text[line:].lstrip(" \t"))] + "  "
    after = opening + 1
    empty = strict[skip_space(strict, after)] in "]}"
    rest = text[after:]
    end = "" if empty else ","
    gap = "" if rest.startswith(("\n", "\r")) else f"\n{indent[:-2] if rest[:1] in ('}', ']') else indent}"
    return f"{text[:after]}\n{indent}{piece}{end}{gap}{rest}"


def remove_item(text: str, strict: str, opening: int, *, index: int) -> str:
    """Return the text without one item of the list that opens at `opening`; comments stay, an empty line is removed."""
    items = find_members(strict, opening)
    begin = items[index][1]
    end = _find_end(strict, begin)
    cuts = [(begin, end)]
    # A trailing comma is removed with the item before it.
    with_commas = blank_comments(text)
    if with_commas[after := skip_space(with_commas, end)] == ",":
        cuts.append((after, after + 1))
    elif index:
        comma = strict.index(",", _find_end(strict, items[index - 1][1]))
        cuts.insert(0, (comma, comma + 1))
    for start, stop in reversed(cuts):
        text = text[:start] + text[stop:]
        line = text.rfind("\n", 0, start) + 1
        following = text.find("\n", start) + 1
        if line and following and not text[line:following].strip():
            text = text[:line] + text[following:]
    return text


def _encode(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _find_end(strict: str, place: int) -> int:
    """Return the end of the value that begins at `place`."""
    from json import JSONDecoder

    return JSONDecoder().raw_decode(strict, place)[1]


def _get_mode(path: Path, label: str) -> int:
    """Return the mode of the file, or 0600 if it is missing. Raises `StorageError` if it has another owner."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return 0o600
    if not stat.S_ISREG(status.st_mode) or not system.is_owned(status):
        raise StorageError(f"{label} is not a regular file that you own; nothing was saved")
    return stat.S_IMODE(status.st_mode)


def add_allowed_call(path: Path, call: AllowedCall) -> None:
    """Add a call to `permissions.always` in the file at `path`. Raises as `change_file`."""
    change_file(path, lambda text: add_to_text(text, call))


def add_to_text(text: str, call: AllowedCall) -> str:
    """Return the text of a configuration file with a call added to `permissions.always`, unless it is present."""
    # Positions are the same in the text with comments.
    strict = to_strict_json(text)
    entry = msgspec.json.encode(call).decode()
    root = skip_space(strict, 0)
    top = find_members(strict, root)
    if "permissions" not in top:
        return insert_member(text, strict, root, piece=f'"permissions": {{"always": [{entry}]}}')
    place = top["permissions"][1]
    inner = find_members(strict, place)
    if "always" not in inner:
        return insert_member(text, strict, place, piece=f'"always": [{entry}]')
    place = inner["always"][1]
    present = _parse_list(strict, place)
    return text if msgspec.to_builtins(call) in present else insert_member(text, strict, place, piece=entry)


def remove_allowed_call(path: Path, call: AllowedCall) -> None:
    """Remove a call from `permissions.always` in the file at `path`. Raises as `change_file`."""
    change_file(path, lambda text: remove_from_text(text, call))


def remove_from_text(text: str, call: AllowedCall) -> str:
    """Return the text of a configuration file with every occurrence of a call removed from `permissions.always`."""
    while True:
        strict = to_strict_json(text)
        top = find_members(strict, skip_space(strict, 0))
        inner = find_members(strict, top["permissions"][1]) if "permissions" in top else {}
        present = _parse_list(strict, inner["always"][1]) if "always" in inner else []
        # Fields with their default value may be omitted.
        found = [index for index, one in enumerate(present) if msgspec.convert(one, AllowedCall) == call]
        if not found:
            return text
        text = remove_item(text, strict, inner["always"][1], index=found[-1])


def _parse_list(strict: str, opening: int) -> list[Any]:
    from json import JSONDecoder

    return cast("list[Any]", JSONDecoder().raw_decode(strict, opening)[0])
