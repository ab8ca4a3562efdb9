"""Always allowed calls in the user's own file, added and revoked one at a time."""

from pathlib import Path
from typing import Any, cast

import msgspec

from yarrow.config.json_edit import change_file, insert_member, remove_item
from yarrow.config.jsonc import find_members, skip_space, to_strict_json
from yarrow.config.settings import AllowedCall


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
