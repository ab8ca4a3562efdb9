"""Files made whole or not at all, and the refusals of an operating system in words."""

import contextlib
import errno
import os
from pathlib import Path

from yarrow.platform import system
from yarrow.session.disk import Syscalls
from yarrow.session.ids import new_id

_NO_HARD_LINK_ERRORS = {errno.EPERM, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK}
_ERROR_TEXTS = {
    errno.ENOSPC: "the disk is full; free some space and go on, nothing recorded before is lost",
    errno.EDQUOT: "the disk quota is used up; free some space and go on, nothing recorded before is lost",
    errno.EIO: "the disk reports an error; check it before going on",
    errno.EROFS: "the file system is read-only; make it writable or choose another directory",
    errno.EACCES: "permission is denied; change the permissions or choose another directory",
    errno.EPERM: "the operation is not permitted; change the permissions or choose another directory",
    errno.ENOTDIR: "a part of the path is not a directory; choose another",
    errno.EMFILE: "too many files are open; close some sessions or raise the limit",
}


def describe_os_error(error: OSError) -> str:
    """Return why the operating system refused, and what to do, as the rest of a sentence."""
    return _ERROR_TEXTS.get(error.errno or 0) or (error.strerror or str(error)).lower()


def write_all(calls: Syscalls, fd: int, data: bytes) -> None:
    """Write all bytes, in however many calls."""
    rest = memoryview(data)
    while rest:
        taken = calls.write(fd, rest)
        if taken == 0:
            raise OSError(errno.EIO, "nothing was written")
        rest = rest[taken:]


def create_file(calls: Syscalls, path: Path, data: bytes, *, sync: bool) -> None:
    """Make a file of mode 0600 that appears with all of `data` or not at all; missing directories get mode 0700.

    With `sync` it survives a power failure from then on. Raises `FileExistsError`, or `OSError` when refused.
    """
    changed = [path.parent, *make_directories(path.parent)]
    draft = path.with_name(f".{new_id()}.draft")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.BASE_FLAGS, 0o600)
    try:
        try:
            draft.chmod(0o600)  # whatever the umask
            write_all(calls, fd, data)
            if sync:
                calls.sync(fd, directory=False)
        finally:
            os.close(fd)
        _publish(draft, path)
    finally:
        draft.unlink(missing_ok=True)
    if sync:
        try:
            for directory in changed:
                sync_directory(calls, directory)
        except OSError:
            with contextlib.suppress(OSError):
                path.unlink()
            raise


def make_directories(directory: Path) -> list[Path]:
    """Make what is missing, with mode 0700; return the directories that have a new entry. Raises `OSError`."""
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
        path.chmod(0o700)  # whatever the umask
    return [path.parent for path in missing]


def _publish(draft: Path, path: Path) -> None:
    try:
        path.hardlink_to(draft)
    except OSError as error:
        if error.errno not in _NO_HARD_LINK_ERRORS:
            raise
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        draft.rename(path)


def sync_directory(calls: Syscalls, directory: Path) -> None:
    """Return when the entries of a directory survive a power failure. Raises `OSError`."""
    fd = system.open_directory(directory)
    try:
        calls.sync(fd, directory=True)
    finally:
        os.close(fd)
