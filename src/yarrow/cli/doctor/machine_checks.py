"""Checks of the machine: programs, terminal, session files and log."""

import os
import platform
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from yarrow._version import VERSION
from yarrow.cli.doctor.report import Check, CheckContext, fail, ok, warn
from yarrow.cli.log_file import LEVELS
from yarrow.config.files import get_user_directory
from yarrow.errors import Code, NotFound, StorageError
from yarrow.platform import system
from yarrow.policy.sandbox.probe import find_bwrap, unavailable_reason
from yarrow.policy.sandbox_factory import unsuitable_reason
from yarrow.policy.temp_dir import temp_directory
from yarrow.session.disk_access import describe_os_error
from yarrow.session.ids import is_valid_id
from yarrow.session.session_file_reader import read_head

UNSHARED = {"npm": ".npm/_cacache", "pip": ".cache/pip", "uv": ".cache/uv"}
"""Package managers that support only one cache, and its path below the home directory."""
_NO_BASH = "install bash: models write commands for bash, but /bin/sh runs them"
_DUMB_TERMINALS = ("", "dumb", "unknown")
"""Values of TERM for terminals that show only plain text."""


def check_program() -> list[Check]:
    """Report the version of Yarrow, of Python and of the system."""
    python = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    return [ok("yarrow", "version", f"{VERSION}, {python}")]


def check_tools(environment: Mapping[str, str]) -> list[Check]:
    """Check the programs that tools use, and the sandbox for shell commands."""
    path = environment.get("PATH", os.defpath)
    shell = system.find_shell(environment)
    bash = shell if Path(shell).stem == "bash" else None
    return [
        _check_installed("ripgrep", shutil.which("rg", path=path), "install ripgrep: search is slower without it"),
        _check_installed("git", shutil.which("git", path=path), "install git: models use it in most projects"),
        _check_installed("shell", bash, system.NO_SHELL_HINT or _NO_BASH),
        *_check_sandbox(environment),
    ]


def _check_sandbox(environment: Mapping[str, str]) -> list[Check]:
    if why := unavailable_reason():
        installed = (
            "allow user namespaces and a fresh /proc (in Docker or Podman: --security-opt seccomp=unconfined and "
            "--security-opt systempaths=unconfined); "
        )
        missing = "install bubblewrap; "
        install = "" if system.NO_SANDBOX_REASON else missing if find_bwrap() is None else installed
        todo = f"{install}without it, Yarrow asks before each shell command, which then runs with your rights"
        return [warn("tools", "sandbox", seen=why, todo=todo)]
    home = Path(environment.get("HOME") or Path.home()).resolve()
    here: tuple[Path, ...] = ()
    with suppress(OSError):  # the directory is gone
        here = (Path.cwd(),)
    if why := unsuitable_reason(here, home, temp_directory()):
        todo = "until then Yarrow asks before each command"
        return [warn("tools", "sandbox", seen=f"not available in this directory: {why}", todo=todo)]
    return [ok("tools", "sandbox", "available for shell commands"), *_caches(home)]


def _caches(home: Path) -> list[Check]:
    """Report the package caches below the home directory that sandboxed commands cannot use."""
    names = [name for name, place in UNSHARED.items() if (home / place).is_dir()]
    if not names:
        return []
    return [ok("tools", "caches", f"each sandboxed session starts without the cache of {', '.join(names)}")]


def _check_installed(name: str, found: str | None, todo: str) -> Check:
    return ok("tools", name, found) if found else warn("tools", name, seen="not found on PATH", todo=todo)


def check_terminal(environment: Mapping[str, str]) -> list[Check]:
    """Check standard output, and whether the locale supports characters beyond ASCII."""
    return [_check_screen(environment), _check_locale(environment)]


def _check_screen(environment: Mapping[str, str]) -> Check:
    if not os.isatty(1):
        return ok("terminal", "output", "not a terminal")
    name = environment.get("TERM", "")
    size = os.get_terminal_size(1)
    seen = f"{size.columns}x{size.lines}, TERM={name}, {'colors' if has_colours(environment) else 'no colors'}"
    if name in _DUMB_TERMINALS:
        return warn("terminal", "output", seen=seen, todo="set TERM to your terminal type, such as xterm-256color")
    return ok("terminal", "output", seen)


def has_colours(environment: Mapping[str, str]) -> bool:
    """Return whether standard output shows colours and the user has not turned them off."""
    return os.isatty(1) and not environment.get("NO_COLOR") and environment.get("TERM", "") not in _DUMB_TERMINALS


def _check_locale(environment: Mapping[str, str]) -> Check:
    variable = next((name for name in ("LC_ALL", "LC_CTYPE", "LANG") if environment.get(name)), "")
    seen = f"{variable}={environment[variable]}" if variable else "not set"
    if is_utf8(environment):
        return ok("terminal", "locale", seen)
    change = "unset LC_ALL and export LANG=C.UTF-8" if variable == "LC_ALL" else f"export {variable or 'LANG'}=C.UTF-8"
    return warn("terminal", "locale", seen=f"{seen} (not UTF-8)", todo=f"{change}, or another UTF-8 locale")


def is_utf8(environment: Mapping[str, str]) -> bool:
    """Return whether the encoding of the locale is UTF-8."""
    value = next((text for name in ("LC_ALL", "LC_CTYPE", "LANG") if (text := environment.get(name))), "")
    return value.lower().replace("-", "").partition(".")[2].partition("@")[0] == "utf8"


SECTION = "storage"
SCAN_SECONDS = 2.0
"""Time limit in seconds for checking session files; after it the rest are only counted."""
MIN_FREE_BYTES = 100_000_000
"""Minimum free bytes on the disk; with fewer, the check warns."""


def check_storage(context: CheckContext) -> list[Check]:
    """Check the sessions and the log; leaves no files behind."""
    own = get_user_directory(context.home, context.environment)
    configured = context.loaded.settings.session_dir
    root = Path(configured).expanduser() if configured else own / "sessions"
    return [*_check_root(context, root), _check_log(context, own / "yarrow.log")]


def _check_root(context: CheckContext, root: Path) -> list[Check]:
    there = _find_nearest(root)
    if reason := _find_directory_problem(there):
        todo = "make it writable, or set sessionDir to another directory; --no-session works without one"
        return [fail(SECTION, "sessions", seen=f"{context.shorten_path(root)}: {reason}", todo=todo, code=Code.STORAGE)]
    free = shutil.disk_usage(there).free
    checks = [_check_sessions(context, root)]
    if free < MIN_FREE_BYTES:
        checks.append(warn(SECTION, "space", seen=f"{free / 1e6:.0f} MB free", todo="free some space on the disk"))
    else:
        checks.append(ok(SECTION, "space", f"{free / 1e9:,.1f} GB free"))
    return checks


def _check_sessions(context: CheckContext, root: Path) -> Check:
    paths = [path for path in root.glob("*/*.jsonl") if is_valid_id(path.stem)]
    deadline = time.monotonic() + SCAN_SECONDS
    looked, damaged = 0, list[Path]()
    for path in paths:
        if time.monotonic() > deadline:
            break
        looked += 1
        if _is_damaged(path):
            damaged.append(path)
    count = f"{len(paths)} in {context.shorten_path(root)}" + (
        f", {looked} of them checked" if looked < len(paths) else ""
    )
    if not damaged:
        return ok(SECTION, "sessions", count)
    seen = f"{count}; {len(damaged)} damaged, such as {context.shorten_path(damaged[0])}"
    return warn(SECTION, "sessions", seen=seen, todo="back it up before you resume it: Yarrow uses what is readable")


def _is_damaged(path: Path) -> bool:
    """Return whether a file lacks a readable header; only its first lines and its end are read."""
    try:
        # A header that had to be made up has no directory.
        return not read_head(path).header.cwd
    except NotFound:
        return False  # removed since it was listed
    except StorageError:
        return True


def _check_log(context: CheckContext, path: Path) -> Check:
    level = context.environment.get("YARROW_LOG", "")
    if level and level not in LEVELS:
        seen, todo = f"YARROW_LOG is {level!r}", f"set it to one of {', '.join(LEVELS)}, or unset it"
        return fail(SECTION, "log", seen=seen, todo=todo, code=Code.USAGE)
    if level:
        return ok(SECTION, "log", f"standard error (YARROW_LOG={level})")
    if (
        reason := _find_file_problem(path)
        if os.path.lexists(path)
        else _find_directory_problem(_find_nearest(path.parent))
    ):
        todo = "make it writable; until then log messages are lost"
        return warn(SECTION, "log", seen=f"{context.shorten_path(path)}: {reason}", todo=todo)
    there = path.exists()
    return ok(
        SECTION,
        "log",
        context.shorten_path(path) if there else f"no {context.shorten_path(path)} (nothing logged yet)",
    )


def _find_nearest(path: Path) -> Path:
    """Return the path, or its nearest existing parent."""
    return next((each for each in (path, *path.parents) if os.path.lexists(each)), path)


def _find_directory_problem(directory: Path) -> str:
    """Return why no file can be created in a directory; empty if one can."""
    try:
        with tempfile.TemporaryFile(dir=directory):
            return ""
    except OSError as error:
        return describe_os_error(error)


def _find_file_problem(path: Path) -> str:
    """Return why a file cannot be appended to; empty if it can."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_APPEND | system.BASE_FLAGS | system.NONBLOCK))
    except OSError as error:
        return describe_os_error(error)
    return ""
