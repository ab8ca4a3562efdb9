"""Keeps a call that was allowed always in the user's own file."""

from pathlib import Path
from typing import Any, cast

import msgspec

from yarrow.config.changing import change_file, insert
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


def _values(strict: str, opening: int) -> list[Any]:
    from json import JSONDecoder

    return cast("list[Any]", JSONDecoder().raw_decode(strict, opening)[0])
