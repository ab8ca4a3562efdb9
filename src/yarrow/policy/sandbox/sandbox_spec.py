"""Specification of a sandbox: what it shows, hides and makes writable, and the user that its commands run as."""

import errno
import os
import shutil
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Literal

from msgspec import Struct

from yarrow.platform import system
from yarrow.platform.real_path import real_path
from yarrow.policy.secret_names import ENV_FILES, SecretFiles

SESSION_DIRECTORIES = ("home", "tmp", "shm", "settings", "configs")
"""Session directories that commands read or write."""


class CommandUser(Struct, frozen=True):
    """Numeric ids of a user and a group."""

    uid: int
    gid: int

    def setpriv_words(self) -> tuple[str, ...]:
        """Return the words that run the rest of a command line as this user, without any of root's groups."""
        return (_setpriv() or "setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups", "--")

    def can_reach(self, path: str) -> bool:
        """Return whether the user can traverse each parent directory of a real path."""
        while path != "/":
            path = os.path.dirname(path)  # noqa: PTH120 (runs for each mount)
            try:
                status = os.lstat(path)
            except OSError:
                return False
            shift = 6 if status.st_uid == self.uid else 3 if status.st_gid == self.gid else 0
            if not status.st_mode >> shift & 1:
                return False
        return True

    def chown(self, path: str) -> None:
        """Make the user the owner of a file or directory, or of a symlink itself. Raises OSError."""
        os.chown(path, self.uid, self.gid, follow_symlinks=False)

    def chown_session_dir(self, session_dir: Path) -> None:
        """Make the user the owner of a session's directories, and let others traverse their parents. Raises OSError."""
        for directory in (session_dir.parent, session_dir):
            directory.chmod(0o711)
        for name in SESSION_DIRECTORIES:
            directory = session_dir / name
            with suppress(FileNotFoundError):
                os.chown(directory, self.uid, self.gid, follow_symlinks=False)
        for path in (session_dir / "configs").rglob("*"):
            os.chown(path, self.uid, self.gid, follow_symlinks=False)
        with suppress(FileNotFoundError), os.scandir(session_dir / "settings") as entries:
            for entry in entries:
                os.chown(entry.path, self.uid, self.gid, follow_symlinks=False)


SandboxLevel = Literal["off", "workspace", "strict"]


class SandboxSpec(Struct, frozen=True):
    """A sandbox for the commands of one session; all paths are real."""

    level: SandboxLevel
    writable: tuple[Path, ...]
    """Roots of the workspace."""
    readable: tuple[Path, ...]
    """Further roots that are shown."""
    home: Path
    """The user's home, which is replaced inside."""
    session_dir: Path
    """Directory of the session with its home and /tmp, which persist between calls."""
    hidden: tuple[Path, ...] = ()
    """The service's own directories."""
    secrets: SecretFiles = ENV_FILES
    """Workspace files that must not be read."""
    write_protected: tuple[Path, ...] = ()
    """Files and directories that must not change, anywhere; absolute, possibly through symlinks."""
    journal_dir: Path | None = None
    """Directory of the cleanup journal, for recovery if the service is killed; None for no journal."""
    read_only_roots: frozenset[Path] = frozenset()
    """Members of `writable` that are protected like the others but mounted read-only."""
    network: bool = True
    """True if commands reach the network; they never do in `strict`."""
    session: str = ""
    """Session whose commands run in the sandbox."""
    owner: CommandUser | None = None
    """User that commands run as; None for Yarrow's own user."""

    @property
    def runs_as_root(self) -> bool:
        """True if commands run as root, so that root-only files need masks."""
        return system.is_root() and self.owner is None


def owner_of(workspace: Path) -> CommandUser | None:
    """Return the owner of a workspace, as whom commands should run; None for the user that Yarrow runs as."""
    if not system.is_root():
        return None
    try:
        status = workspace.stat()
    except OSError:
        return None
    return CommandUser(status.st_uid, status.st_gid) if status.st_uid else None


def owner_problem(owner: CommandUser, workspace: Path, scratch: Path) -> str:
    """Return why commands of a workspace cannot run as its owner, as part of a sentence; empty if they can."""
    if not _setpriv():
        return "setpriv (util-linux) is not installed"
    closed = next((path for path in (workspace, scratch) if not owner.can_reach(str(path))), None)
    if closed is not None:
        return f"that user has no access to {closed.parent}"
    try:
        _try_owner(owner, scratch)
    except OSError as error:
        return f"root cannot act as that user here ({error.strerror})"
    return ""


def _try_owner(owner: CommandUser, scratch: Path) -> None:
    """Raise OSError if root may not give files to a user, or not become that user, as in a container."""
    # Only root with a workspace of another user needs these.
    import subprocess
    import tempfile

    with tempfile.TemporaryDirectory(dir=scratch) as directory:
        owner.chown(directory)
    done = subprocess.run([*owner.setpriv_words(), "/bin/true"], capture_output=True, check=False)
    if done.returncode:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


@lru_cache(maxsize=1)
def _setpriv() -> str | None:
    """Return the path of util-linux's setpriv, from system directories only, because it runs as root."""
    return shutil.which("setpriv", path="/usr/bin:/bin:/usr/sbin:/sbin")


HIDDEN_DIRECTORIES = (
    *("/home", "/root", "/run", "/mnt", "/media", "/srv"),
    *("/var/tmp", "/var/spool", "/var/mail", "/var/backups"),  # noqa: S108 (to hide it)
)
"""Directories with other users' data, sockets and keys; empty inside."""
HIDDEN_SYSTEM_DIRECTORIES = (
    "/etc/ssl/private",
    "/etc/sudoers.d",
    "/etc/NetworkManager",
    "/var/lib/docker",
    "/var/lib/private",
)
SECRET_FILES = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/sudoers")
"""Files readable only by root, and so by a service that runs as root."""
KERNEL_SETTINGS = ("/proc/sys", "/proc/sysrq-trigger", "/proc/fs", "/proc/acpi")
"""Kernel settings, which root in a namespace may be able to write; bubblewrap itself covers irq and bus."""
SYSTEM_DIRECTORIES = ("/usr", "/bin", "/sbin", "/lib", "/etc", "/opt", "/var", "/dev", "/proc", "/sys")
"""Directories that cannot be replaced by a session's home, because programs lie or are set up there."""
FALLBACK_HOME = Path("/tmp/home")  # noqa: S108 (the session's own inside)
"""Home inside if there is none outside, or it cannot be replaced by another."""


def sandbox_home(home: Path) -> Path:
    """Return the path of the commands' home: that of the real home if possible."""
    above = os.path.join(home, "")  # noqa: PTH118 (a string: runs for each call)
    holds_programs = any(f"{place}/".startswith(above) for place in SYSTEM_DIRECTORIES)
    return home if home.is_dir() and not holds_programs else FALLBACK_HOME


def hidden_directories(home: Path) -> tuple[str, ...]:
    """Return the real directories that are replaced by a session's own or by an empty one."""
    places = [cached_realpath(name) for name in (*HIDDEN_DIRECTORIES, "/tmp")]  # noqa: S108 (the session has its own)
    return (*places, str(home)) if sandbox_home(home) == home else tuple(places)


@lru_cache(maxsize=64)
def cached_realpath(name: str) -> str:
    """Return the real path of a system directory; only root can replace it meanwhile."""
    return real_path(name)
