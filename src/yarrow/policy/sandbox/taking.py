"""A place where nothing may come to be: what a command made there is removed, in the directory that was seen before."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from yarrow.policy.beneath import open_directory


class Place:
    """Held by the identity of its directory, since a command can put a link, or another directory, there meanwhile."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._directory = _identity(path.parent)

    def take_away(self, kept: Path) -> bool:
        """Move what is there below `kept`; return whether anything was. What cannot be moved is removed."""
        if self._directory is None:
            return False
        try:
            directory = open_directory(Path(self.path.anchor), self.path.parent)
        except OSError:
            return False
        try:
            status = os.fstat(directory)
            return (status.st_dev, status.st_ino) == self._directory and _moved(directory, self.path.name, kept)
        finally:
            os.close(directory)


def _moved(directory: int, name: str, kept: Path) -> bool:
    kept.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.rename(name, kept / f"{name}-{os.urandom(4).hex()}", src_dir_fd=directory)
    except FileNotFoundError:
        return False
    except OSError:  # on another file system
        _remove(directory, name)
    return True


def _remove(directory: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=directory)
    except OSError:  # a directory
        with suppress(OSError):
            shutil.rmtree(name, dir_fd=directory)


def _identity(directory: Path) -> tuple[int, int] | None:
    try:
        status = directory.lstat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
