"""Puts a command into a sandbox: another command, which runs it there."""

import os
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

from msgspec.structs import replace

from yarrow.policy.process import Command
from yarrow.policy.sandbox import pids, seccomp
from yarrow.policy.sandbox.arguments import Box, arguments
from yarrow.policy.sandbox.protected import look_at

PROBE_SECONDS = 10.0
MOST_OF_A_USER = 4_096
"""Processes of one user, where that is limited by user and not by group."""
OPEN_FILES = 65_536
_FILTER = 9
"""The descriptor by which the filter of system calls is handed over."""
_START = (
    # Into the group first, so that nothing of it is outside; then become the launcher.
    f'test -z "$1" || echo $$ >"$1" || exit 125; filter=$2; shift 2; exec "$@" {_FILTER}<"$filter"'
)
_INSIDE = (
    f"ulimit -c 0; ulimit -n {OPEN_FILES} 2>/dev/null; "
    # Processes are -p to one shell, and -u to another, to which -p is what cannot be changed.
    f'ulimit -p {MOST_OF_A_USER} 2>/dev/null || ulimit -u {MOST_OF_A_USER} 2>/dev/null; exec "$@"'
)
_PROBE = (
    *("--unshare-user", "--unshare-pid", "--disable-userns", "--die-with-parent", "--cap-drop", "ALL"),
    *("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"),
)


@lru_cache(maxsize=1)
def unavailable() -> str:
    """Return why there is no sandbox on this machine, in a sentence; empty when there is one. Takes a few ms once."""
    program = launcher()
    if program is None:
        return "bubblewrap is not installed (on Debian and Ubuntu: apt install bubblewrap)"
    try:
        ended = subprocess.run(
            [program, *_PROBE],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={"PATH": os.defpath},
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not run here: {error}"
    if ended.returncode:
        said = ended.stderr.decode("utf-8", "replace").strip().splitlines()
        return f"bubblewrap does not work here: {said[0] if said else f'it ended with {ended.returncode}'}"
    return ""


def launcher() -> str | None:
    """Return the path of bubblewrap; one that a relative PATH leads to is not run."""
    found = shutil.which("bwrap")
    return found if found is not None and Path(found).is_absolute() else None


class Boxed:
    """A command that runs another in a sandbox."""

    def __init__(self, box: Box, command: Command) -> None:
        """Raises OSError."""
        for name in ("tmp", "home"):
            (box.private / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        found = [look_at(root) for root in box.writable]
        self._missing = [path for one in found for path in one.missing]
        filtering = _filter_file(box.private)
        self.command = replace(
            command,
            argv=(
                *("/bin/sh", "-c", _START, "sh", str(pids.group() or ""), str(filtering or os.devnull)),
                *(launcher() or "bwrap", *arguments(box, found, command.environment, cwd=command.cwd.resolve())),
                *(("--seccomp", str(_FILTER)) if filtering else ()),
                *("/bin/sh", "-c", _INSIDE, "sh", *command.argv),
            ),
            cwd=Path("/"),
            has_launcher=True,
        )

    def take_away(self) -> list[Path]:
        """Remove, when the command is over, what it made where nothing may come to be; return what that was.

        A file that covers such a place while the command runs would be seen by everybody, and an empty `commondir`
        breaks the git of whoever works beside us.
        """
        return [path for path in self._missing if _taken_away(path)]


def _taken_away(path: Path) -> bool:
    try:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError:
        return False
    return True


def _filter_file(directory: Path) -> Path | None:
    """Return the file that holds the filter of system calls, None on a machine that none is known for."""
    program = seccomp.program()
    if not program:
        return None
    path = directory / "filter"
    if not path.exists():
        beside = path.with_name(f"filter-{os.urandom(4).hex()}")
        beside.write_bytes(program)
        beside.replace(path)
    return path
