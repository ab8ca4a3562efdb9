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
from yarrow.policy.sandbox.protected import look_at, remembered
from yarrow.policy.sandbox.taking import Place

PROBE_SECONDS = 10.0
MOST_OF_A_USER = 4_096
"""Processes of one user, where that is limited by user and not by group."""
OPEN_FILES = 65_536
SYSTEM_PLACES = ("/usr/bin", "/bin", "/usr/local/bin")
"""Where bubblewrap is looked for before PATH, which may lead into a workspace."""
ELSEWHERE = frozenset({"TMPDIR", "TMP", "TEMP", "XDG_RUNTIME_DIR", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"})
"""Variables that name places which are not there inside; without them programs take /tmp and the home."""
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


@lru_cache(maxsize=1)
def launcher() -> str | None:
    """Return the path of bubblewrap, of the system's own before any other; it stays the same for the process.

    One that lies where commands may write is none: what is there next time would run outside of the sandbox.
    """
    found = shutil.which("bwrap", path=os.pathsep.join(SYSTEM_PLACES)) or shutil.which("bwrap")
    return os.path.realpath(found) if found is not None and Path(found).is_absolute() else None


class Boxed:
    """A command that runs another in a sandbox."""

    def __init__(self, box: Box, command: Command) -> None:
        """Raises OSError."""
        for name in ("tmp", "home"):
            (box.private / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        self._kept = box.private / "taken"
        program = launcher()
        if program is None or any(Path(program).is_relative_to(root) for root in box.writable):
            raise OSError(f"bubblewrap ({program}) lies where commands can write; install the system's own")
        found = [remembered(root, look_at(root)) for root in box.writable]
        self._missing = [Place(path) for one in found for path in one.missing]
        # Where there is one already it is the person's.
        self._roots = [root for root in box.writable if not (root / "HEAD").exists()]
        filtering = _filter_file(box.private)
        self.command = replace(
            command,
            argv=(
                *(
                    "/bin/sh",
                    "-c",
                    _START,
                    "sh",
                    str((pids.group() if os.geteuid() == 0 else None) or ""),
                    str(filtering or os.devnull),
                ),
                *(program, *arguments(box, found, command.environment, cwd=command.cwd.resolve())),
                *(("--seccomp", str(_FILTER)) if filtering else ()),
                *("/bin/sh", "-c", _INSIDE, "sh", *command.argv),
            ),
            environment={name: text for name, text in command.environment.items() if name not in ELSEWHERE},
            cwd=Path("/"),
            has_launcher=True,
        )

    def take_away(self) -> list[Path]:
        """Move away, when the command is over, what it made where nothing may come to be; return what that was.

        It may be a person's who works beside the command: it is kept in the session's own directory.

        A file that covers such a place while the command runs would be seen by everybody, and an empty `commondir`
        breaks the git of whoever works beside us.
        """
        gone = [place.path for place in self._missing if place.take_away(self._kept)]
        heads = [root / "HEAD" for root in self._roots if _is_bare(root)]
        return gone + [head for head in heads if Place(head).take_away(self._kept)]


def _is_bare(root: Path) -> bool:
    """Whether a workspace has become a repository of its own kind, whose `config` git would obey."""
    return (root / "HEAD").is_file() and (root / "objects").is_dir() and (root / "refs").is_dir()


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
