"""Finds and reads configuration files: the user's, and the project's found upward from the working directory."""

import contextlib
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec

from yarrow.config.layer import FileLayer
from yarrow.config.sanitizer import escape_unprintable
from yarrow.errors import ConfigError
from yarrow.platform import system

DIRECTORY_NAME = ".yarrow"
FILE_NAME = "config.json"
MAX_CONFIG_FILE_BYTES = 1 << 20
"""Bytes of a configuration file, and of the store of what is trusted; a larger one is refused."""

SYNTAX_HINTS = {
    "Expecting property name": "a key in double quotes, or }, must stand here",
    "Expecting ':'": "a : must stand here",
    "Expecting ','": "a , or the end of the object or list must stand here",
    "Expecting value": "a value must stand here",
    "Extra data": "nothing may follow what ends before",
    "Unterminated string": "this text has no end",
    "Invalid control character": r"a line end or a tab in a text is written \n or \t",
    "Invalid \\": r"no character is written like this; a \ is written \\",
}
"""What is wrong at a place that is not JSON, by how the reader's own words for it begin."""


def get_user_file(home: Path, environment: Mapping[str, str]) -> Path:
    """Return the path of the user's file: `$YARROW_CONFIG`, else `config.json` in the user's directory."""
    if named := environment.get("YARROW_CONFIG"):
        return Path(named)
    return get_user_directory(home, environment) / FILE_NAME


def get_user_directory(home: Path, environment: Mapping[str, str]) -> Path:
    """Return the directory of the user's own things: `$YARROW_HOME`, else `~/.yarrow`."""
    if named := environment.get("YARROW_HOME"):
        return Path(named)
    return home / DIRECTORY_NAME


def list_project_files(cwd: Path, home: Path) -> Iterator[Path]:
    """Return where a project's file may be, nearest first: `.yarrow/config.json` upward from `cwd`, below `home`."""
    for directory in (cwd, *cwd.parents):
        if directory == home:
            return
        yield directory / DIRECTORY_NAME / FILE_NAME


def find_project_file(cwd: Path, home: Path, users: Path) -> Path | None:
    """Return the nearest project's file; None if there is none.

    The user's own file is no project's, whatever path leads to it. Nor is a file of somebody who owns neither `cwd` nor
    this process: anybody can plant one in a directory such as `/tmp`.
    """
    owners = _list_owners(cwd)
    for candidate in list_project_files(cwd, home):
        try:
            if candidate.stat().st_uid not in owners:
                continue
        except OSError:
            # Absent, or another user's: what cannot be reached says nothing about this project.
            continue
        return None if users.exists() and candidate.samefile(users) else candidate
    return None


def _list_owners(cwd: Path) -> set[int]:
    """Return whose files count: this process's, and those of the owner of the directory."""
    owners = {system.get_user_id()}
    with contextlib.suppress(OSError):
        owners.add(cwd.stat().st_uid)
    return owners


def format_label(path: Path, home: Path) -> str:
    """Return a path as it is told to people, safe for a terminal; what lies below `home` begins with `~`."""
    return escape_unprintable(f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path))


def read_file(path: Path, home: Path, *, required: bool = False) -> FileLayer | None:
    """Return a file's settings, not yet checked; None when it is absent and not `required`. Raises `ConfigError`."""
    label = format_label(path, home)
    data = read_bytes(path, label)
    if data is None and required:
        raise ConfigError(f"{label}: there is no such file; YARROW_CONFIG names it")
    return None if data is None else decode_settings(data, label)


def read_bytes(path: Path, label: str) -> bytes | None:
    """Return the bytes of a configuration file; None when it is absent. Raises `ConfigError`."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{label}: it must be a file, and is {_describe_kind(status.st_mode)}")
        with path.open("rb") as file:
            data = file.read(MAX_CONFIG_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{label}: it cannot be read: {error.strerror}") from None
    if len(data) > MAX_CONFIG_FILE_BYTES:
        raise ConfigError(f"{label}: it has {status.st_size} bytes; at most {MAX_CONFIG_FILE_BYTES} are read")
    return data


def decode_settings(data: bytes, label: str) -> FileLayer:
    """Return the settings in a file's bytes, not yet checked; JSON with comments. Raises `ConfigError`."""
    try:
        # Some editors begin a file with a byte order mark.
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"{label}:{line}: it is not UTF-8 text: byte {data[error.start]:#04x} cannot stand here"
        ) from None
    text, values = _parse(text, label)
    if not isinstance(values, dict):
        raise ConfigError(f"{label}:1: it must hold one JSON object, such as {{}}")
    settings = cast("dict[str, Any]", values)
    if isinstance(settings.get("$schema"), str):
        # It is for the editor.
        del settings["$schema"]
    return FileLayer(label, text, settings)


def _parse(text: str, label: str) -> tuple[str, Any]:
    """Return a text as strict JSON, and its value. Raises `ConfigError`."""
    try:
        return text, msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        # Here, since most files have no comments.
        from yarrow.config.jsonc import to_strict_json

        text = to_strict_json(text)
    if not text.strip():
        # Somebody is about to write something there.
        return "{}", {}
    try:
        return text, msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ConfigError(_explain_syntax(text, label, str(error))) from None


def _describe_kind(mode: int) -> str:
    return "a directory" if stat.S_ISDIR(mode) else "something else"


def _explain_syntax(text: str, label: str, message: str) -> str:
    """Return what is wrong with a text that is not JSON, with line and column."""
    # Here, since only a mistake needs it; it knows lines and columns.
    import json

    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        rest = text[error.pos :].lstrip()
        hint = "; a comment begins with //" if rest.startswith("#") else ""
        hint = "; this comment has no end" if rest.startswith("/*") else hint
        said = next((words for begin, words in SYNTAX_HINTS.items() if error.msg.startswith(begin)), error.msg)
        return f"{label}:{error.lineno}:{error.colno}: it is not JSON: {said}{hint}"
    except RecursionError:
        return f"{label}: it is nested too deeply"
    return f"{label}: it is not JSON: {message}"
