"""User that commands run as when Yarrow is root and the workspace belongs to another user."""

import errno
import os
import shutil
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from yarrow.platform import system

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
