"""Settings of a project: trusted by the hash of their content, or restricted until they are."""

from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, cast

from msgspec import Struct

from yarrow.config.files import (
    MAX_CONFIG_FILE_BYTES,
    decode_settings,
    find_project_file,
    format_label,
    get_user_directory,
    get_user_file,
    hold_directory_lock,
    read_bytes,
    replace_file,
)
from yarrow.config.settings_source import FileLayer, KeyPath, escape_unprintable, format_path
from yarrow.config.validation import check_layer
from yarrow.errors import ConfigError, StorageError

TRUST_FILE = "trust.json"


class TrustStore(Struct, frozen=True):
    """Trusted hashes: the hexadecimal SHA-256 of a file's bytes, by the key of its path."""

    hashes: dict[str, str]
    notice: str = ""
    """Reason why an existing store could not be used."""


def get_trust_key(path: Path) -> str:
    """Return the key under which a project file is trusted: its path, with symlinks to the project resolved.

    A symlink in place of the file itself is not resolved: trust in one project does not extend to another.
    """
    return str(path.parent.parent.resolve() / path.parent.name / path.name)


def compute_hash(data: bytes) -> str:
    """Return the hexadecimal SHA-256 of a file's bytes."""
    # Imported here because most runs have no project file that was ever trusted.
    from hashlib import sha256

    return sha256(data).hexdigest()


def read_trust_store(directory: Path) -> TrustStore:
    """Read the trust store in the user's directory; a damaged store trusts nothing."""
    path = directory / TRUST_FILE
    label = escape_unprintable(str(path))
    try:
        data = read_bytes(path, label)
    except ConfigError as error:
        return TrustStore({}, f"{error.message}; no project file is trusted")
    if data is None:
        return TrustStore({})
    # Imported here because most users have no store. Unlike msgspec, it preserves non-UTF-8 bytes of a path.
    import json

    try:
        values = json.loads(data)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict) or not all(isinstance(each, str) for each in cast("Any", values).values()):
        return TrustStore({}, f"{label} is damaged; no project file is trusted")
    return TrustStore(cast("dict[str, str]", values))


def grant(directory: Path, key: str, digest: str) -> None:
    """Trust the content of one file. Raises `StorageError`."""
    _change_store(directory, lambda hashes: hashes | {key: digest})


def revoke(directory: Path, key: str) -> None:
    """Revoke the trust in one file. Raises `StorageError`."""
    _change_store(directory, lambda hashes: {each: digest for each, digest in hashes.items() if each != key})


def _change_store(directory: Path, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
    import json

    label = escape_unprintable(str(directory / TRUST_FILE))
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with hold_directory_lock(directory):
            # Read again because another process may have changed it. The entries of a damaged store were not in effect.
            text = json.dumps(change(read_trust_store(directory).hashes), indent=2, sort_keys=True) + "\n"
            if len(text) > MAX_CONFIG_FILE_BYTES:
                raise StorageError(f"{label} is full; run `yarrow trust revoke` to free space")
            replace_file(directory / TRUST_FILE, text.encode())
    except OSError as error:
        raise StorageError(f"cannot write {label}: {error.strerror}; trust is unchanged") from None


HARMLESS_KEYS = ("thinking", "compaction", "permissions")
"""Keys that an untrusted project file may set; it may also turn `dryRun` on.

No project file, trusted or not, may loosen `permissions` relative to the user's own settings.
"""
USER_ONLY_KEYS = ("extensions", "sandbox", "sandboxNetwork", "secretFiles", "service", "telemetry")
"""Keys that no project file may set, trusted or not.

They control code that runs with the user's rights, the sandbox, the files hidden from models, the limits of the
service, and telemetry.
"""
USER_ONLY_PROVIDER_KEYS = ("apiKeyCommand", "textCalls")
"""The same, of a provider: a program that runs, and whether text of a model becomes a call."""
MAX_NAMED_KEYS = 12
"""Maximum ignored keys that are named; the rest are counted."""
MAX_KEY_CHARACTERS = 60
"""Maximum characters shown of an ignored key."""


class TrustState(Enum):
    """Trust of the user in a project file."""

    TRUSTED = "trusted"
    CHANGED = "changed since it was trusted"
    UNTRUSTED = "not trusted"


class ProjectFile(Struct, frozen=True):
    """A project file, read once, so that the content hashed is the content decoded."""

    key: str
    data: bytes
    layer: FileLayer
    """All its settings, unchecked."""
    trust_state: TrustState
    notice: str = ""
    """Reason why the trust store could not be read."""


class AppliedProject(Struct, frozen=True):
    """Settings accepted from a project file, with notices for the user about the others."""

    layer: FileLayer
    notices: tuple[str, ...]


def read_project(*, home: Path, cwd: Path, environment: Mapping[str, str]) -> ProjectFile | None:
    """Read the file of the project around `cwd`; None if there is none. Raises `ConfigError`."""
    path = find_project_file(cwd, home, get_user_file(home, environment))
    label = format_label(path, home) if path else ""
    data = read_bytes(path, label) if path else None
    if path is None or data is None:
        return None
    key = get_trust_key(path)
    trusted = read_trust_store(get_user_directory(home, environment))
    return ProjectFile(
        key, data, decode_settings(data, label), get_trust_state(data, trusted.hashes.get(key)), trusted.notice
    )


def get_trust_state(data: bytes, digest: str | None) -> TrustState:
    """Compare the bytes of a file with the hash under which it was trusted, if any."""
    if digest is None:
        return TrustState.UNTRUSTED
    return TrustState.TRUSTED if compute_hash(data) == digest else TrustState.CHANGED


def list_user_only(values: Mapping[str, Any]) -> list[KeyPath]:
    """Return the paths that even a trusted file may not set: its hash does not cover what they run."""
    found: list[KeyPath] = [(key,) for key in USER_ONLY_KEYS if key in values]
    for name, provider in values.get("providers", {}).items():
        found += [("providers", name, key) for key in USER_ONLY_PROVIDER_KEYS if key in provider]
    return found


def apply_project(project: ProjectFile, below: Mapping[str, Any]) -> AppliedProject:
    """Return the settings that a project file may apply over the settings `below`.

    Raises `ConfigError` for an invalid value among them.
    """
    applied = _apply_trusted(project) if project.trust_state is TrustState.TRUSTED else _apply_harmless(project)
    kept, ignored = remove_loosened(applied.layer.values, below)
    if not ignored:
        return applied
    layer = applied.layer
    notice = f"{layer.label} is a project's file and can only restrict, so {_format_ignored(ignored)} there"
    return AppliedProject(FileLayer(layer.label, layer.text, kept), (*applied.notices, notice))


def _apply_trusted(project: ProjectFile) -> AppliedProject:
    layer = project.layer
    check_layer(layer)
    denied = list_user_only(layer.values)
    values = _remove(layer.values, denied)
    notice = f"{layer.label} is a project's file, so {_format_ignored(denied)} there; set such keys in your own file"
    return AppliedProject(FileLayer(layer.label, layer.text, values), (notice,) if denied else ())


def _apply_harmless(project: ProjectFile) -> AppliedProject:
    layer = project.layer
    values = {
        key: value for key, value in layer.values.items() if key in HARMLESS_KEYS or (key == "dryRun" and value is True)
    }
    harmless = FileLayer(layer.label, layer.text, values)
    check_layer(harmless)
    ignored: list[KeyPath] = [(key,) for key in layer.values if key not in values]
    if not ignored:
        return AppliedProject(harmless, ())
    was = "has" if project.trust_state is TrustState.CHANGED else "is"
    notice = (
        f"{layer.label} {was} {project.trust_state.value}, so {_format_ignored(ignored)} there; "
        "run `yarrow trust` to review and trust it"
    )
    return AppliedProject(harmless, tuple(each for each in (project.notice, notice) if each))


def _remove(values: dict[str, Any], paths: list[KeyPath]) -> dict[str, Any]:
    kept = {key: value for key, value in values.items() if (key,) not in paths}
    if "providers" in kept:
        kept["providers"] = {
            name: {key: value for key, value in provider.items() if ("providers", name, key) not in paths}
            for name, provider in kept["providers"].items()
        }
    return kept


def _format_ignored(paths: list[KeyPath]) -> str:
    """Return the clause of a notice that these keys are ignored."""
    named = ", ".join(map(_format_key, paths[:MAX_NAMED_KEYS]))
    more = len(paths) - MAX_NAMED_KEYS
    return f"{named}{f' and {more} more' if more > 0 else ''} {'is' if len(paths) == 1 else 'are'} ignored"


def _format_key(path: KeyPath) -> str:
    text = format_path(path)
    return text if len(text) <= MAX_KEY_CHARACTERS else f"{text[:MAX_KEY_CHARACTERS]}..."


STRICTNESS = ("auto", "ask", "plan", "deny")
"""Modes and rule effects, from lenient to strict; `deny` is above `plan`, which still asks about reads elsewhere."""


def remove_loosened(values: dict[str, Any], below: Mapping[str, Any]) -> tuple[dict[str, Any], list[KeyPath]]:
    """Split a project's checked settings into those that loosen nothing, and the paths of the others."""
    values, loosened = _restrict_repository(values, below)
    own: dict[str, Any] = values.get("permissions", {})
    under: Mapping[str, Any] = below.get("permissions", {})
    ignored: list[KeyPath] = [("permissions", key) for key in own if key not in ("mode", "rules")]
    if "mode" in own and _get_rank(own["mode"]) < _get_rank(under.get("mode", "ask")):
        ignored.append(("permissions", "mode"))
    under_rules: Mapping[str, str] = under.get("rules", {})
    rules = {rule: word for rule, word in own.get("rules", {}).items() if _tightens(word, under_rules.get(rule))}
    ignored += [("permissions", "rules", rule) for rule in own.get("rules", {}) if rule not in rules]
    if not ignored:
        return values, loosened
    kept = {key: value for key, value in own.items() if ("permissions", key) not in ignored}
    return {**values, "permissions": {**kept, "rules": rules} if "rules" in own else kept}, [*loosened, *ignored]


def _restrict_repository(values: dict[str, Any], below: Mapping[str, Any]) -> tuple[dict[str, Any], list[KeyPath]]:
    own: dict[str, Any] = values.get("workspace", {})
    if own.get("repository") != "write" or below.get("workspace", {}).get("repository") != "read":
        return values, []
    kept = {key: value for key, value in own.items() if key != "repository"}
    return {**values, "workspace": kept}, [("workspace", "repository")]


def _get_rank(word: str) -> int:
    return STRICTNESS.index(word)


def _tightens(word: str, under: str | None) -> bool:
    """Return whether a project's rule may apply; `auto` only if the settings below allow the same."""
    if word == "auto":
        return under == "auto"
    return under is None or _get_rank(word) >= _get_rank(under)
