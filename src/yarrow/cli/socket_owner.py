"""Check that a unix socket and the directories above it are under the user's own control before a token goes there."""

import os
import stat
from pathlib import Path

from yarrow.errors import UsageError
from yarrow.platform import system

SYSTEM_OWNERS = (0, 65_534)
"""Owners of directories above: root, and root as it appears in a user namespace that does not know it."""
_ADVICE = "attach to a service of your own, or to HOST:PORT with --tls-pin"


def check_socket_owner(path: Path) -> None:
    """Raise `UsageError` when a socket belongs to another user, or others could put their own in its place."""
    status = os.lstat(path)
    if stat.S_ISLNK(status.st_mode):
        raise UsageError(f"{path} is a symlink: name the socket it leads to")
    if not stat.S_ISSOCK(status.st_mode):
        raise UsageError(f"{path} is not a socket: name the one that yarrow serve --socket listens on")
    if not system.is_owned(status):
        raise UsageError(f"{path} belongs to another user, who would receive your prompts: {_ADVICE}")
    real = Path(os.path.realpath(path.parent))
    for folder in dict.fromkeys((*path.parents, real, *real.parents)):
        _check_folder(folder, path)


def _check_folder(folder: Path, path: Path) -> None:
    status = os.lstat(folder)
    if not (system.is_owned(status) or status.st_uid in SYSTEM_OWNERS):
        raise UsageError(f"{folder} belongs to another user, who can replace {path.name}: {_ADVICE}")
    if stat.S_ISLNK(status.st_mode):
        return  # what it leads to is checked as well
    # Further up many systems give each user a group of their own, which may write.
    writers = stat.S_IWOTH | stat.S_IWGRP if folder == path.parent else stat.S_IWOTH
    if status.st_mode & writers and (folder == path.parent or not status.st_mode & stat.S_ISVTX):
        raise UsageError(f"{folder} is writable by other users, who can replace {path.name}: chmod go-w {folder}")
