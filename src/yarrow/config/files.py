"""Configuration files: the user's, and the project's, which is searched upward from the working directory."""

import os
import stat
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import msgspec

from yarrow.config.settings_source import FileLayer, escape_unprintable, to_strict_json
from yarrow.errors import ConfigError
from yarrow.platform import system

DIRECTORY_NAME = ".yarrow"
FILE_NAME = "config.json"
MAX_CONFIG_FILE_BYTES = 1 << 20
"""Maximum bytes of a configuration file and of the trust store; larger ones are rejected."""

SYNTAX_HINTS = {
    "Expecting property name": "expected a key in double quotes or }",
    "Expecting ':'": "expected :",
    "Expecting ','": "expected , or the end of the object or list",
    "Expecting value": "expected a value",
    "Extra data": "unexpected text after the end",
    "Unterminated string": "unterminated string",
    "Invalid control character": r"write a line feed or tab in a string as \n or \t",
    "Invalid \\": r"invalid escape sequence; write a \ as \\",
}
"""Explanations of JSON syntax errors, by the beginning of the decoder's message."""


def get_user_file(home: Path, environment: Mapping[str, str]) -> Path:
    """Return the path of the user's file: `$YARROW_CONFIG`, or `config.json` in the user's directory."""
    if named := environment.get("YARROW_CONFIG"):
        return Path(named)
    return get_user_directory(home, environment) / FILE_NAME


def get_user_directory(home: Path, environment: Mapping[str, str]) -> Path:
    """Return the user's directory: `$YARROW_HOME`, or `~/.yarrow`."""
    if named := environment.get("YARROW_HOME"):
        return Path(named)
    return home / DIRECTORY_NAME


def list_project_files(cwd: Path, home: Path) -> Iterator[Path]:
    """Yield possible paths of a project file, nearest first: `.yarrow/config.json` upward from `cwd`, below `home`."""
    for directory in (cwd, *cwd.parents):
        if directory == home:
            return
        yield directory / DIRECTORY_NAME / FILE_NAME


def find_project_file(cwd: Path, home: Path, users: Path) -> Path | None:
    """Return the nearest project file; None if there is none.

    The user's own file is not a project file, whatever path leads to it. A file owned by neither this user nor the
    owner of `cwd` is skipped: anyone could plant one in a directory such as `/tmp`.
    """
    owners = _list_owners(cwd)
    for candidate in list_project_files(cwd, home):
        try:
            if candidate.stat().st_uid not in owners:
                continue
        except OSError:
            # Missing, or in another user's directory: an inaccessible file does not belong to this project.
            continue
        return None if users.exists() and candidate.samefile(users) else candidate
    return None


def _list_owners(cwd: Path) -> set[int]:
    """Return the accepted owners of a project file: this user and the owner of the directory."""
    owners = {system.get_user_id()}
    with suppress(OSError):
        owners.add(cwd.stat().st_uid)
    return owners


def format_label(path: Path, home: Path) -> str:
    """Format a path for display, safe for a terminal; a path below `home` begins with `~`."""
    return escape_unprintable(f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path))


def read_file(path: Path, home: Path, *, required: bool = False) -> FileLayer | None:
    """Read a file's settings, unchecked; None if it is missing and not `required`. Raises `ConfigError`."""
    label = format_label(path, home)
    data = read_bytes(path, label)
    if data is None and required:
        raise ConfigError(f"{label}: no such file; correct or unset YARROW_CONFIG")
    return None if data is None else decode_settings(data, label)


def read_bytes(path: Path, label: str) -> bytes | None:
    """Read the bytes of a configuration file; None if it is missing. Raises `ConfigError`."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{label}: must be a regular file, not {_describe_kind(status.st_mode)}")
        with path.open("rb") as file:
            data = file.read(MAX_CONFIG_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise ConfigError(f"{label}: cannot read the file: {error.strerror}") from None
    if len(data) > MAX_CONFIG_FILE_BYTES:
        raise ConfigError(f"{label}: {status.st_size} bytes exceed the limit of {MAX_CONFIG_FILE_BYTES}")
    return data


def decode_settings(data: bytes, label: str) -> FileLayer:
    """Decode a file's settings, unchecked, from JSON with comments. Raises `ConfigError`."""
    try:
        # Some editors write a byte order mark.
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{label}:{line}: not valid UTF-8: unexpected byte {data[error.start]:#04x}") from None
    text, values = _parse(text, label)
    if not isinstance(values, dict):
        raise ConfigError(f"{label}:1: must contain one JSON object, such as {{}}")
    settings = cast("dict[str, Any]", values)
    if isinstance(settings.get("$schema"), str):
        # Meant for editors.
        del settings["$schema"]
    return FileLayer(label, text, settings)


def _parse(text: str, label: str) -> tuple[str, Any]:
    """Return a text as strict JSON, and its value. Raises `ConfigError`."""
    try:
        return text, msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        text = to_strict_json(text)
    if not text.strip():
        # Empty: the user has not written anything yet.
        return "{}", {}
    try:
        return text, msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ConfigError(_explain_syntax(text, label, str(error))) from None


def _describe_kind(mode: int) -> str:
    return "a directory" if stat.S_ISDIR(mode) else "a special file"


def _explain_syntax(text: str, label: str, message: str) -> str:
    """Return an explanation of a JSON syntax error, with line and column."""
    # Imported here because only a mistake needs it; it reports lines and columns.
    import json

    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        rest = text[error.pos :].lstrip()
        hint = "; start comments with //" if rest.startswith("#") else ""
        hint = "; unterminated comment" if rest.startswith("/*") else hint
        said = next((words for begin, words in SYNTAX_HINTS.items() if error.msg.startswith(begin)), error.msg)
        return f"{label}:{error.lineno}:{error.colno}: invalid JSON: {said}{hint}"
    except RecursionError:
        return f"{label}: nested too deeply"
    return f"{label}: invalid JSON: {message}"


@contextmanager
def hold_directory_lock(directory: Path) -> Generator[None]:
    """Prevent other processes from changing the content of a directory meanwhile. Raises `OSError`."""
    with system.lock_directory(directory) as descriptor:
        yield
        # A rename is durable once its directory is synced.
        system.sync(descriptor)


def replace_file(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace a file, or create it. Raises `OSError`; the old file is then unchanged."""
    from tempfile import mkstemp

    # Creates a file that only its owner can read.
    descriptor, name = mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            system.set_mode(descriptor, mode)
            system.sync(descriptor)
        Path(name).replace(path)
    finally:
        with suppress(OSError):  # already renamed, unless something failed
            Path(name).unlink()
