"""Calls that are allowed always, in the user's own file: added and revoked one by one."""

from pathlib import Path
from typing import Any, cast

import msgspec

from yarrow.config.changing import change_file, insert, without_item
from yarrow.config.comments import without_comments
from yarrow.config.locate import members, skip
from yarrow.config.settings import AllowedCall


def remember(path: Path, call: AllowedCall) -> None:
    """Add a call to `permissions.always` of the file at `path`. Raises as `change_file`."""
    change_file(path, lambda text: with_allowed(text, call))


def with_allowed(text: str, call: AllowedCall) -> str:
    """Return the text of a configuration file with a call added to `permissions.always`, unless it is there."""
    # Every place in it is the same in the text with comments.
    strict = without_comments(text)
    entry = msgspec.json.encode(call).decode()
    root = skip(strict, 0)
    top = members(strict, root)
    if "permissions" not in top:
        return insert(text, strict, root, piece=f'"permissions": {{"always": [{entry}]}}')
    place = top["permissions"][1]
    inner = members(strict, place)
    if "always" not in inner:
        return insert(text, strict, place, piece=f'"always": [{entry}]')
    place = inner["always"][1]
    present = _values(strict, place)
    return text if msgspec.to_builtins(call) in present else insert(text, strict, place, piece=entry)


def forget(path: Path, call: AllowedCall) -> None:
    """Remove a call from `permissions.always` of the file at `path`. Raises as `change_file`."""
    change_file(path, lambda text: without_allowed(text, call))


def without_allowed(text: str, call: AllowedCall) -> str:
    """Return the text of a configuration file without a call in `permissions.always`, however often it is there."""
    while True:
        strict = without_comments(text)
        top = members(strict, skip(strict, 0))
        inner = members(strict, top["permissions"][1]) if "permissions" in top else {}
        present = _values(strict, inner["always"][1]) if "always" in inner else []
        # Fields that have their defaults may be written or not.
        found = [index for index, one in enumerate(present) if msgspec.convert(one, AllowedCall) == call]
        if not found:
            return text
        text = without_item(text, strict, inner["always"][1], index=found[-1])


def _values(strict: str, opening: int) -> list[Any]:
    from json import JSONDecoder

    return cast("list[Any]", JSONDecoder().raw_decode(strict, opening)[0])
