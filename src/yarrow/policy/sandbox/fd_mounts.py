"""Holds what a sandbox binds by open descriptors, so that nothing can be put in its place before it is bound."""

import errno
import os
import stat
import weakref
from pathlib import Path

from yarrow.policy.openat import PATH_CHANGED_ERRORS, open_beneath

_PATH = getattr(os, "O_PATH", os.O_RDONLY)
"""To name a thing, not to read it."""


class MountDescriptors:
    """Open descriptors that the launcher is handed; all are closed with `close`, or when this is collected."""

    def __init__(self) -> None:
        self._open: list[int] = []
        self.close = weakref.finalize(self, _close, self._open)

    @property
    def numbers(self) -> tuple[int, ...]:
        """All that are open."""
        return tuple(self._open)

    def add(self, descriptor: int) -> int:
        """Take one, to close it with the others."""
        self._open.append(descriptor)
        return descriptor

    def open_path(self, path: Path) -> int | None:
        """Return a descriptor of what a path without links leads to, None when nothing is there any more.

        Raises OSError when a link stands in the way: whatever was looked at before is not there now.
        """
        try:
            descriptor = self.add(open_beneath(Path(path.anchor), path, _PATH))
        except (FileNotFoundError, PermissionError):
            return None
        except OSError as error:
            if error.errno in PATH_CHANGED_ERRORS:
                raise _became_link(path) from error
            raise
        if stat.S_ISLNK(os.fstat(descriptor).st_mode):  # where names are opened one by one, the last may be one
            raise _became_link(path)
        return descriptor


def _became_link(path: Path) -> OSError:
    return OSError(errno.ELOOP, "became a link while its sandbox was made, so nothing was run", str(path))


def _close(descriptors: list[int]) -> None:
    while descriptors:
        os.close(descriptors.pop())
