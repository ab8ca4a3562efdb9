"""Finds and reads configuration files: the user's, and the project's found upward from the working directory."""

import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from yarrow.config.layer import FileLayer
from yarrow.errors import ConfigError

DIRECTORY = ".yarrow"
FILE = "config.json"
LARGEST_FILE = 1 << 20
"""Bytes of a configuration file; a larger one is refused."""


def user_file(home: Path, environment: Mapping[str, str]) -> Path:
    """Return the path of the user's file: `$YARROW_CONFIG`, else `config.json` in the user's directory."""
    if named := environment.get("YARROW_CONFIG"):
        return Path(named)
    return user_directory(home, environment) / FILE


def user_directory(home: Path, environment: Mapping[str, str]) -> Path:
    """Return the directory of the user's own things: `$YARROW_HOME`, else `~/.yarrow`."""
    if named := environment.get("YARROW_HOME"):
        return Path(named)
    return home / DIRECTORY


def find_project_file(cwd: Path, home: Path, users: Path) -> Path | None:
    """Return the nearest `.yarrow/config.json` from `cwd` upward, stopping below `home`; None if there is none.

    The user's own file is no project's, whatever path leads to it.
    """
    for directory in (cwd, *cwd.parents):
        if directory == home:
            return None
        candidate = directory / DIRECTORY / FILE
        try:
            candidate.stat()
        except OSError:
            # Absent, or another user's: what cannot be reached says nothing about this project.
            continue
        return None if users.exists() and candidate.samefile(users) else candidate
    return None


def read_file(path: Path, home: Path, *, required: bool = False) -> FileLayer | None:
    """Return a file's settings, not yet checked; None when it is absent and not `required`. Raises `ConfigError`."""
    label = f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{label}: it must be a file, and is {_kind(status.st_mode)}")
        if status.st_size > LARGEST_FILE:
            raise ConfigError(f"{label}: it has {status.st_size} bytes; at most {LARGEST_FILE} are read")
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if required:
            raise ConfigError(f"{label}: there is no such file; YARROW_CONFIG names it") from None
        return None
    except OSError as error:
        raise ConfigError(f"{label}: it cannot be read: {error.strerror}") from None
    return _decode(data, label)


def _kind(mode: int) -> str:
    return "a directory" if stat.S_ISDIR(mode) else "something else"


def _decode(data: bytes, label: str) -> FileLayer:
    try:
        # Some editors begin a file with a byte order mark.
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{label}:{line}: it is not UTF-8 text: byte {data[error.start]:#04x} cannot stand here"
        ) from None
    try:
        values: Any = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ConfigError(_syntax(text, label, str(error))) from None
    if not isinstance(values, dict):
        raise ConfigError(f"{label}:1: it must hold one JSON object, such as {{}}")
    return FileLayer(label, text, cast("dict[str, Any]", values))


def _syntax(text: str, label: str, message: str) -> str:
    """Return what is wrong with a text that is not JSON, with line and column."""
    # Here, since only a mistake needs it; it knows lines and columns.
    import json

    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        rest = text[error.pos :].lstrip()
        hint = "; comments are not JSON" if rest.startswith(("//", "/*", "#")) else ""
        return f"{label}:{error.lineno}:{error.colno}: it is not JSON: {error.msg}{hint}"
    except RecursionError:
        return f"{label}: it is nested too deeply"
    return f"{label}: it is not JSON: {message}"
