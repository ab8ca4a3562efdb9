"""Directories, paths and addresses of a command, with an error for each that is unusable."""

import os
from pathlib import Path

from yarrow.errors import UsageError
from yarrow.platform.real_path import real_path

MAX_PORT = 65535


def home_directory() -> Path:
    """Return the home directory. Raises `UsageError` if it cannot be determined."""
    try:
        return Path.home()
    except RuntimeError:
        raise UsageError("cannot determine your home directory; set HOME") from None


def working_directory() -> str:
    """Return the path of the current directory. Raises `UsageError` if no prompt can run in it."""
    try:
        path = str(Path.cwd())
    except OSError as error:
        raise UsageError(f"cannot use the current directory: {error.strerror}; change to another one") from None
    _refuse_writable_symlink(path)
    return _check_utf8(path, "the current directory")


def _refuse_writable_symlink(path: str) -> None:
    """Raise `UsageError` if the shell entered the current directory through a symlink that commands can change."""
    entered = os.environ.get("PWD", "")
    if entered == path or not Path(entered).is_absolute() or real_path(entered) != path:
        return
    from yarrow.policy.symlinks import find_writable_symlink  # rarely needed

    if link := find_writable_symlink(Path(entered)):
        raise UsageError(
            f"the current directory is {path}, through the symlink {link}, which commands can change; "
            "if that is what you mean, enter it with `cd -P .`"
        )


def nearest_directory(home: Path) -> Path:
    """Return the directory whose project settings apply: the current one, or `home` if that no longer exists."""
    try:
        return Path.cwd()
    except OSError:
        return home


def make_absolute(text: str, source: str) -> Path:
    """Return the absolute form of a path; `source` is the flag or variable that it is from. Raises `UsageError`."""
    try:
        path = Path(text).expanduser().absolute()
    except RuntimeError:
        home = text.partition("/")[0]
        raise UsageError(f"cannot use {source} {text!r}: home directory {home} not found; give the full path") from None
    except OSError as error:
        raise UsageError(
            f"cannot resolve {source} {text!r} in the current directory: {error.strerror}; give the full path"
        ) from None
    _check_utf8(str(path), source)
    return path


def split_address(text: str, source: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT`; an IPv6 host is in brackets. Raises `UsageError`."""
    host, _, port = text.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if not bare or (":" in bare) != (bare != host) or not (port.isascii() and port.isdigit()):
        raise UsageError(f"invalid {source} {text!r}: use HOST:PORT, such as 127.0.0.1:7878 or [::1]:7878")
    if int(port) > MAX_PORT:
        raise UsageError(f"invalid port in {source} {text!r}: use at most {MAX_PORT}")
    return bare, int(port)


def _check_utf8(path: str, source: str) -> str:
    try:
        path.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{source} {path!r} is not valid UTF-8; use a path in UTF-8") from None
    return path
