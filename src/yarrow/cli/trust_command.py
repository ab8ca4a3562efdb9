"""`yarrow trust`: shows what a project's settings would change, and grants or revokes trust in them."""

import json
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from yarrow.cli.exit_codes import ExitCode
from yarrow.cli.path_arguments import home_directory, nearest_directory
from yarrow.cli.standard_streams import print_error, write_stdout
from yarrow.config.files import format_label, get_user_directory, list_project_files, read_bytes
from yarrow.config.project_trust import (
    ProjectFile,
    TrustState,
    compute_hash,
    get_trust_key,
    get_trust_state,
    grant,
    list_user_only,
    read_project,
    read_trust_store,
    revoke,
)
from yarrow.config.secret_mask import mask_secrets
from yarrow.config.settings import Settings
from yarrow.config.settings_merge import LoadedSettings, load_with_project, merge_layers
from yarrow.config.settings_source import escape_unprintable, format_path, get_value, has_value, list_leaves
from yarrow.errors import ConfigError, UsageError
from yarrow.platform import system

SHORT_HASH_DIGITS = 12
"""Digits shown of a hash."""
_NO_TRUSTED = "No trusted project settings. To trust a project's file: yarrow trust grant\n"
_NO_PROJECT = "No project settings found (.yarrow/config.json)"
_SENSITIVE = (
    r"\.(?:baseUrl|headers|apiKeyEnv|extraBody|script|models|chatTemplate)\b|^  (?:sessionDir|workspace|bash)\b"
)
_SENSITIVE_HEADING = (
    "Security-relevant changes (where your code and keys are sent, and what can be read and written):\n"
)
MAX_LINES = 100
"""Maximum entries shown per kind; the rest are counted."""
_MASKED_KEYS = frozenset({"headers"})
"""Keys whose values stay masked in the project's own settings; a body added to requests is shown for review."""


def run_trust(words: Sequence[str]) -> int:
    """Show, grant, revoke or list trust. Raises `UsageError`, `ConfigError` and `StorageError`."""
    home = home_directory()
    cwd = nearest_directory(home)
    match tuple(words):
        case ():
            return _show_and_ask(home, cwd)
        case ("grant",):
            project = read_project(home=home, cwd=cwd, environment=os.environ)
            if project is None:
                raise UsageError(f"{_NO_PROJECT}: run this in the project's directory")
            write_stdout(_format_report(project, home))
            return _grant(project, home)
        case ("revoke",):
            return _revoke(home, cwd)
        case ("list",):
            return _list(home)
        case _:
            raise UsageError(f"unexpected argument {' '.join(words)!r}; usage: yarrow trust [grant|revoke|list]")


def _show_and_ask(home: Path, cwd: Path) -> int:
    project = read_project(home=home, cwd=cwd, environment=os.environ)
    if project is None:
        return write_stdout(f"{_NO_PROJECT}\n")
    write_stdout(_format_report(project, home))
    if project.trust_state is TrustState.TRUSTED:
        return write_stdout("To revoke the trust: yarrow trust revoke\n")
    if not (os.isatty(0) and os.isatty(1)):
        return write_stdout("To trust this file as it is now: yarrow trust grant\n")
    # Input typed before the question is not an answer to it.
    system.flush_input(0)
    write_stdout("Trust this file as it is now? [y/N] ")
    if sys.stdin.buffer.readline().strip().lower() in (b"y", b"yes"):
        return _grant(project, home)
    return write_stdout("Nothing changed.\n")


def _grant(project: ProjectFile, home: Path) -> int:
    grant(get_user_directory(home, os.environ), project.key, compute_hash(project.data))
    return write_stdout("Trusted until its content changes.\n")


def _revoke(home: Path, cwd: Path) -> int:
    directory = get_user_directory(home, os.environ)
    hashes = read_trust_store(directory).hashes
    # Looked up only by path, since a trusted file may be missing or unreadable by now.
    for path in list_project_files(cwd, home):
        if (key := get_trust_key(path)) in hashes:
            revoke(directory, key)
            return write_stdout(f"{format_label(path, home)} is no longer trusted.\n")
        if path.exists():
            break
    return write_stdout("No trusted project settings here.\n")


def _list(home: Path) -> int:
    trusted = read_trust_store(get_user_directory(home, os.environ))
    if trusted.notice:
        print_error(trusted.notice, ExitCode.DONE)
    lines = [
        f"{escape_unprintable(digest[:SHORT_HASH_DIGITS]):{SHORT_HASH_DIGITS}}  "
        f"{escape_unprintable(key)}{_describe_state(key, digest)}\n"
        for key, digest in trusted.hashes.items()
    ]
    return write_stdout("".join(lines) or _NO_TRUSTED)


def _describe_state(key: str, digest: str) -> str:
    try:
        data = read_bytes(Path(key), escape_unprintable(key))
    except ConfigError:
        return " (cannot be read)"
    if data is None:
        return " (missing)"
    return " (changed)" if get_trust_state(data, digest) is TrustState.CHANGED else ""


def _format_report(project: ProjectFile, home: Path) -> str:
    """Return a description of a project's file and of what trusting it would change."""
    if project.notice:
        print_error(project.notice, ExitCode.DONE)
    standings = (TrustState.UNTRUSTED, TrustState.TRUSTED)
    # Other variables are ignored: a value that one overrides today would take effect once it is unset.
    environment = {name: text for name, text in os.environ.items() if name in ("YARROW_CONFIG", "YARROW_HOME")}
    present, granted = (
        load_with_project(
            msgspec.structs.replace(project, trust_state=each), home=home, environment=environment, overrides={}
        )
        for each in standings
    )
    head = (
        f"{project.layer.label}\nsha256 {compute_hash(project.data)[:SHORT_HASH_DIGITS]}, {project.trust_state.value}\n"
    )
    ignored = [
        f"  {format_path(path)} is ignored: only your own settings can set it  {project.layer.get_origin(path)}\n"
        for path in list_user_only(project.layer.values)
    ]
    changes = _list_changes(present, granted)
    what = "Trusting it changes:\n" if changes else "Trusting it changes nothing.\n"
    # Sensitive changes come last, where they are seen however long the file is.
    weighty = [line for line in changes if re.search(_SENSITIVE, line.partition(":")[0])]
    others = [line for line in changes if line not in weighty]
    heading = [_SENSITIVE_HEADING] if weighty and others else []
    return "".join([head, what, *_cap_lines(others), *heading, *_cap_lines(weighty), *_cap_lines(ignored)])


def _cap_lines(lines: list[str]) -> list[str]:
    left = len(lines) - MAX_LINES
    return lines if left <= 0 else [*lines[:MAX_LINES], f"  and {left:,} more: read the file before you trust it\n"]


def _list_changes(present: LoadedSettings, granted: LoadedSettings) -> list[str]:
    """Return a line for each value that changes if the project's file is trusted."""
    before, after = merge_layers(present.layers), merge_layers(granted.layers)
    defaults = msgspec.to_builtins(Settings())
    lines: list[str] = []
    for path in list_leaves(after):
        new = get_value(after, path)
        source = before if has_value(before, path) else defaults
        is_set = has_value(source, path)
        if is_set and get_value(source, path) == new:
            continue
        old = _text(mask_secrets(path, get_value(source, path))) if is_set else "(not set)"
        told = _text(mask_secrets(path, new, _MASKED_KEYS))
        lines.append(f"  {format_path(path)}: {old} -> {told}  {granted.get_origin(path)}\n")
    return lines


def _text(value: Any) -> str:
    return escape_unprintable(json.dumps(value, ensure_ascii=False))
