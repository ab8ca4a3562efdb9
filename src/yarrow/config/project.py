"""What a project's file may set: all but what is the user's alone once it is trusted, else only what is harmless."""

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from msgspec import Struct

from yarrow.config.check import check_layer
from yarrow.config.files import decode, find_project_file, label_of, read_data, user_directory, user_file
from yarrow.config.layer import FileLayer, KeyPath, dotted
from yarrow.config.tighten import tightened
from yarrow.config.trust import hash_of, key_of, read_trusted

HARMLESS = ("thinking", "compaction", "permissions")
"""Keys that a project's file may set though nobody has trusted it; besides them, `dryRun` may be turned on.

Of `permissions` no project's file, trusted or not, may set what is not stricter than what the user's own says.
"""
USERS_ALONE = ("extensions", "sandbox", "sandboxNetwork", "secretFiles", "service", "telemetry")
"""Keys that no project's file may set, trusted or not: what runs with the user's rights, what holds the rest,
what is kept from models, what one service takes, and what others are told."""
NAMED_KEYS = 12
"""Of the keys that are ignored this many are named; of more, only how many."""
KEY_CHARACTERS = 60
"""Of a key that is ignored so much is named."""


class Standing(Enum):
    """Whether the user has trusted a project's file."""

    TRUSTED = "trusted"
    CHANGED = "changed since it was trusted"
    UNTRUSTED = "not trusted"


class Project(Struct, frozen=True):
    """A project's file as it was read, once: what was hashed is what is decoded."""

    key: str
    data: bytes
    layer: FileLayer
    """All that it says, not yet checked."""
    standing: Standing
    notice: str = ""
    """Why it could not be known what is trusted."""


class Applied(Struct, frozen=True):
    """The settings that a project's file is granted, and what a person should be told of the others."""

    layer: FileLayer
    notices: tuple[str, ...]


def read_project(*, home: Path, cwd: Path, environment: Mapping[str, str]) -> Project | None:
    """Return the file of the project that `cwd` lies in; None when there is none. Raises `ConfigError`."""
    path = find_project_file(cwd, home, user_file(home, environment))
    label = label_of(path, home) if path else ""
    data = read_data(path, label) if path else None
    if path is None or data is None:
        return None
    key = key_of(path)
    trusted = read_trusted(user_directory(home, environment))
    return Project(key, data, decode(data, label), standing_of(data, trusted.hashes.get(key)), trusted.notice)


def standing_of(data: bytes, digest: str | None) -> Standing:
    """Return how a file's bytes stand to the hash under which it was trusted, if it was."""
    if digest is None:
        return Standing.UNTRUSTED
    return Standing.TRUSTED if hash_of(data) == digest else Standing.CHANGED


def users_alone(values: Mapping[str, Any]) -> list[KeyPath]:
    """Return the paths of what even a trusted file may not set: the hash of it does not cover what they run."""
    found: list[KeyPath] = [(key,) for key in USERS_ALONE if key in values]
    for name, provider in values.get("providers", {}).items():
        if "apiKeyCommand" in provider:
            found.append(("providers", name, "apiKeyCommand"))
    return found


def apply(project: Project, below: Mapping[str, Any]) -> Applied:
    """Return what a project's file sets as it stands, over the settings `below`.

    Raises `ConfigError` for a wrong value of what it may set.
    """
    applied = _apply_trusted(project) if project.standing is Standing.TRUSTED else _apply_harmless(project)
    kept, ignored = tightened(applied.layer.values, below)
    if not ignored:
        return applied
    layer = applied.layer
    notice = f"{layer.label} is a project's file and can only tighten, so {_ignored(ignored)} there"
    return Applied(FileLayer(layer.label, layer.text, kept), (*applied.notices, notice))


def _apply_trusted(project: Project) -> Applied:
    layer = project.layer
    check_layer(layer)
    denied = users_alone(layer.values)
    values = _without(layer.values, denied)
    notice = f"{layer.label} is a project's file, so {_ignored(denied)} there: only your own file may set that"
    return Applied(FileLayer(layer.label, layer.text, values), (notice,) if denied else ())


def _apply_harmless(project: Project) -> Applied:
    layer = project.layer
    values = {
        key: value for key, value in layer.values.items() if key in HARMLESS or (key == "dryRun" and value is True)
    }
    harmless = FileLayer(layer.label, layer.text, values)
    check_layer(harmless)
    ignored: list[KeyPath] = [(key,) for key in layer.values if key not in values]
    if not ignored:
        return Applied(harmless, ())
    was = "has" if project.standing is Standing.CHANGED else "is"
    notice = (
        f"{layer.label} {was} {project.standing.value}, so {_ignored(ignored)} there; "
        "yarrow trust shows what it would change, and grants it"
    )
    return Applied(harmless, tuple(each for each in (project.notice, notice) if each))


def _without(values: dict[str, Any], paths: list[KeyPath]) -> dict[str, Any]:
    kept = {key: value for key, value in values.items() if (key,) not in paths}
    if "providers" in kept:
        kept["providers"] = {
            name: {key: value for key, value in provider.items() if ("providers", name, key) not in paths}
            for name, provider in kept["providers"].items()
        }
    return kept


def _ignored(paths: list[KeyPath]) -> str:
    """Return that these are ignored, as part of a sentence."""
    named = ", ".join(map(_named, paths[:NAMED_KEYS]))
    more = len(paths) - NAMED_KEYS
    return f"{named}{f' and {more} more' if more > 0 else ''} {'is' if len(paths) == 1 else 'are'} ignored"


def _named(path: KeyPath) -> str:
    text = dotted(path)
    return text if len(text) <= KEY_CHARACTERS else f"{text[:KEY_CHARACTERS]}..."
