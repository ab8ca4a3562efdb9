"""`yarrow config`: every setting in force and where it came from, its schema, and the files that are looked at."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from yarrow.cli.exit_codes import ExitCode
from yarrow.cli.main import print_error, write_stdout
from yarrow.cli.paths import home_directory, nearest_directory
from yarrow.config.files import find_project_file, label_of, project_files, read_data, user_directory, user_file
from yarrow.config.layer import dotted, leaves, value_at
from yarrow.config.layers import Loaded, load
from yarrow.config.project import standing_of
from yarrow.config.secrets import masked
from yarrow.config.trust import key_of, read_trusted
from yarrow.config.visible import visible
from yarrow.errors import ConfigError, UsageError

MAX_COLUMN_WIDTH = 40
"""Columns of a key or a value; a longer one moves what follows it to the right."""
_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"


class SettingRow(NamedTuple):
    """One setting as it may be shown."""

    key: str
    value: Any
    origin: str


def run_config(words: Sequence[str]) -> int:
    """Print what is asked for. Raises `UsageError` and `ConfigError`."""
    match tuple(words):
        case ():
            return write_stdout(_format_table(_load_rows(), is_dimmed=_has_colour()))
        case ("json",):
            found = {each.key: {"value": each.value, "origin": each.origin} for each in _load_rows()}
            return write_stdout(json.dumps(found, indent=2) + "\n")
        case ("schema",):
            # Here, since it reads source code.
            from yarrow.config.schema import json_schema

            return write_stdout(json.dumps(json_schema(), indent=2) + "\n")
        case ("files",):
            return write_stdout(_format_files(home_directory()))
        case _:
            raise UsageError(f"yarrow config takes nothing, `json`, `schema` or `files`, not {' '.join(words)!r}")


def _load_rows() -> list[SettingRow]:
    home = home_directory()
    loaded = load(home=home, cwd=nearest_directory(home), environment=os.environ, overrides={})
    for notice in loaded.notices:
        print_error(notice, ExitCode.DONE)
    return _make_rows(loaded)


def _make_rows(loaded: Loaded) -> list[SettingRow]:
    values = msgspec.to_builtins(loaded.settings)
    return [
        SettingRow(dotted(path), masked(path, value_at(values, path)), loaded.origin(path)) for path in leaves(values)
    ]


def _format_table(settings: list[SettingRow], *, is_dimmed: bool) -> str:
    """Return one line for each setting: key, value and origin in columns."""
    values = [visible(json.dumps(each.value, ensure_ascii=False)) for each in settings]
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
    """Return one line for each file that is looked at: whose it is, its path, and how it stands."""
    cwd = nearest_directory(home)
    users = user_file(home, os.environ)
    project = find_project_file(cwd, home, users)
    lines = [f"yours    {label_of(users, home)}: {_describe_state(users, home)}\n"]
    for path in project_files(cwd, home):
        if path != project and _is_same_file(path, users):
            break
        lines.append(f"project  {label_of(path, home)}: {_describe_project_state(path, home)}\n")
        if path == project:
            break
    return "".join(lines)


def _is_same_file(path: Path, users: Path) -> bool:
    return path.exists() and users.exists() and path.samefile(users)


def _describe_state(path: Path, home: Path) -> str:
    try:
        return "absent" if read_data(path, label_of(path, home)) is None else "there"
    except ConfigError:
        return "cannot be used"


def _describe_project_state(path: Path, home: Path) -> str:
    try:
        data = read_data(path, label_of(path, home))
    except ConfigError:
        return "cannot be used"
    if data is None:
        return "absent"
    digest = read_trusted(user_directory(home, os.environ)).hashes.get(key_of(path))
    return f"there, {standing_of(data, digest).value}"
