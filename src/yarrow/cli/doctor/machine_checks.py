"""Looks at the program itself, at the programs that tools use, and at the terminal."""

import os
import platform
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from yarrow._version import VERSION
from yarrow.cli.doctor.check import Check, ok, warn
from yarrow.platform import system
from yarrow.policy.sandbox.probe import unavailable_reason
from yarrow.policy.sandbox.sandbox_factory import unsuitable_reason
from yarrow.policy.temp_dir import temp_directory

UNSHARED = {"npm": ".npm/_cacache", "pip": ".cache/pip", "uv": ".cache/uv"}
"""Package managers that know one cache, and where it is below the home."""
_NO_BASH = "install bash; commands are run by /bin/sh, and models write them for bash"
_DUMB_TERMINALS = ("", "dumb", "unknown")
"""What TERM is where nothing but plain text is shown."""


def check_program() -> list[Check]:
    """Return what runs here."""
    python = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}"
    return [ok("yarrow", "version", f"{VERSION}, {python}")]


def check_tools(environment: Mapping[str, str]) -> list[Check]:
    """Return which programs tools find, and what keeps shell commands in."""
    path = environment.get("PATH", os.defpath)
    shell = system.find_shell(environment)
    bash = shell if Path(shell).stem == "bash" else None
    return [
        _check_installed("ripgrep", shutil.which("rg", path=path), "search is slower without it; install ripgrep"),
        _check_installed(
            "git", shutil.which("git", path=path), "install git, which a model reaches for in most projects"
        ),
        _check_installed("shell", bash, system.NO_SHELL_HINT or _NO_BASH),
        *_check_sandbox(environment),
    ]


def _check_sandbox(environment: Mapping[str, str]) -> list[Check]:
    if why := unavailable_reason():
        install = "" if system.NO_SANDBOX_REASON else "install bubblewrap; "
        todo = f"{install}without it every shell command is asked, and runs with your rights"
        return [warn("tools", "sandbox", seen=why, todo=todo)]
    home = Path(environment.get("HOME") or Path.home()).resolve()
    here: tuple[Path, ...] = ()
    with suppress(OSError):  # the directory is gone
        here = (Path.cwd(),)
    if why := unsuitable_reason(here, home, temp_directory()):
        todo = "until then every command is asked"
        return [warn("tools", "sandbox", seen=f"none in this directory: {why}", todo=todo)]
    return [ok("tools", "sandbox", "shell commands can run in one"), *_caches(home)]


def _caches(home: Path) -> list[Check]:
    """Return which caches of the home commands cannot use; none where there are none."""
    names = [name for name, place in UNSHARED.items() if (home / place).is_dir()]
    if not names:
        return []
    return [
        ok("tools", "caches", f"those of {', '.join(names)} begin empty in each session: they cannot use a second one")
    ]


def _check_installed(name: str, found: str | None, todo: str) -> Check:
    return ok("tools", name, found) if found else warn("tools", name, seen="not found on PATH", todo=todo)


def check_terminal(environment: Mapping[str, str]) -> list[Check]:
    """Return what standard output is, and whether letters beyond ASCII arrive there."""
    return [_check_screen(environment), _check_locale(environment)]


def _check_screen(environment: Mapping[str, str]) -> Check:
    if not os.isatty(1):
        return ok("terminal", "output", "not a terminal")
    name = environment.get("TERM", "")
    size = os.get_terminal_size(1)
    seen = f"{size.columns}x{size.lines}, TERM={name}, {'colours' if has_colours(environment) else 'no colours'}"
    if name in _DUMB_TERMINALS:
        return warn("terminal", "output", seen=seen, todo="set TERM to what the terminal is, such as xterm-256color")
    return ok("terminal", "output", seen)


def has_colours(environment: Mapping[str, str]) -> bool:
    """Return whether standard output shows colours, and nobody said that they are not wanted."""
    return os.isatty(1) and not environment.get("NO_COLOR") and environment.get("TERM", "") not in _DUMB_TERMINALS


def _check_locale(environment: Mapping[str, str]) -> Check:
    variable = next((name for name in ("LC_ALL", "LC_CTYPE", "LANG") if environment.get(name)), "")
    seen = f"{variable}={environment[variable]}" if variable else "none is set"
    if is_utf8(environment):
        return ok("terminal", "locale", seen)
    change = "unset LC_ALL and export LANG=C.UTF-8" if variable == "LC_ALL" else f"export {variable or 'LANG'}=C.UTF-8"
    return warn("terminal", "locale", seen=f"{seen}, which is not UTF-8", todo=f"{change}, or another locale in UTF-8")


def is_utf8(environment: Mapping[str, str]) -> bool:
    """Return whether the locale says that texts are UTF-8."""
    value = next((text for name in ("LC_ALL", "LC_CTYPE", "LANG") if (text := environment.get(name))), "")
    return value.lower().replace("-", "").partition(".")[2].partition("@")[0] == "utf8"
