"""`yarrow config`: prints the effective settings with their origins, the JSON Schema, or the files consulted."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from yarrow.cli.exit_codes import ExitCode
from yarrow.cli.path_arguments import home_directory, nearest_directory
from yarrow.cli.standard_streams import print_error, write_stdout
from yarrow.config.files import (
    find_project_file,
    format_label,
    get_user_directory,
    get_user_file,
    list_project_files,
    read_bytes,
)
from yarrow.config.project_trust import get_trust_key, get_trust_state, read_trust_store
from yarrow.config.secret_mask import mask_secrets
from yarrow.config.settings_merge import LoadedSettings, load_settings
from yarrow.config.settings_source import escape_unprintable, format_path, get_value, list_leaves
from yarrow.errors import ConfigError, UsageError

MAX_COLUMN_WIDTH = 40
"""Maximum width of the columns for keys and values; a longer entry shifts the rest of its line."""
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


class SettingRow(NamedTuple):
    """One setting for display, with secrets masked."""

    key: str
    value: Any
    origin: str


def run_config(words: Sequence[str]) -> int:
    """Run `yarrow config`. Raises `UsageError` and `ConfigError`."""
    match tuple(words):
        case ():
            return write_stdout(_format_table(_load_rows(), is_dimmed=_has_colour()))
        case ("json",):
            found = {each.key: {"value": each.value, "origin": each.origin} for each in _load_rows()}
            return write_stdout(json.dumps(found, indent=2) + "\n")
        case ("schema",):
            # Imported here: only this subcommand parses source code.
            from yarrow.config.schema import build_json_schema

            return write_stdout(json.dumps(build_json_schema(), indent=2) + "\n")
        case ("files",):
            return write_stdout(_format_files(home_directory()))
        case _:
            raise UsageError(f"unexpected argument {' '.join(words)!r}; usage: yarrow config [json|schema|files]")


def _load_rows() -> list[SettingRow]:
    home = home_directory()
    loaded = load_settings(home=home, cwd=nearest_directory(home), environment=os.environ, overrides={})
    for notice in loaded.notices:
        print_error(notice, ExitCode.DONE)
    return _make_rows(loaded)


def _make_rows(loaded: LoadedSettings) -> list[SettingRow]:
    values = msgspec.to_builtins(loaded.settings)
    return [
        SettingRow(format_path(path), mask_secrets(path, get_value(values, path)), loaded.get_origin(path))
        for path in list_leaves(values)
    ]


def _format_table(settings: list[SettingRow], *, is_dimmed: bool) -> str:
    """Return one line per setting, with columns for key, value and origin."""
    values = [escape_unprintable(json.dumps(each.value, ensure_ascii=False)) for each in settings]
    keys_width = min(MAX_COLUMN_WIDTH, max(len(each.key) for each in settings))
    values_width = min(MAX_COLUMN_WIDTH, max(map(len, values)))
    lines: list[str] = []
    for each, value in zip(settings, values, strict=True):
        line = f"{each.key:{keys_width}}  {value:{values_width}}  {each.origin}"
        lines.append(f"{_DIM}{line}{_PLAIN}\n" if is_dimmed and each.origin == "default" else f"{line}\n")
    return "".join(lines)


def _has_colour() -> bool:
    return os.isatty(1) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _format_files(home: Path) -> str:
    """Return one line per consulted file: its owner, path and state."""
    cwd = nearest_directory(home)
    users = get_user_file(home, os.environ)
    project = find_project_file(cwd, home, users)
    lines = [f"user     {format_label(users, home)}: {_describe_state(users, home)}\n"]
    for path in list_project_files(cwd, home):
        if path != project and _is_same_file(path, users):
            break
        lines.append(f"project  {format_label(path, home)}: {_describe_project_state(path, home)}\n")
        if path == project:
            break
    return "".join(lines)


def _is_same_file(path: Path, users: Path) -> bool:
    return path.exists() and users.exists() and path.samefile(users)


def _describe_state(path: Path, home: Path) -> str:
    try:
        return "not found" if read_bytes(path, format_label(path, home)) is None else "found"
    except ConfigError:
        return "cannot be read"


def _describe_project_state(path: Path, home: Path) -> str:
    try:
        data = read_bytes(path, format_label(path, home))
    except ConfigError:
        return "cannot be read"
    if data is None:
        return "not found"
    digest = read_trust_store(get_user_directory(home, os.environ)).hashes.get(get_trust_key(path))
    return f"found, {get_trust_state(data, digest).value}"
