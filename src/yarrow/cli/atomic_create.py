"""Makes a file that was not there: whole or not at all, over nothing, and past no link."""

import errno
import os
from contextlib import suppress
from pathlib import Path

from yarrow.errors import StorageError
from yarrow.platform import system
from yarrow.session.durable_files import describe_os_error

_NO_HARD_LINK_ERRNOS = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK}
"""How a file system says that it has no hard links."""


def create_file(path: Path, text: str, *, private: bool) -> bool:
    """Make a file, and its directory if that is missing; return False when something of that name is there already.

    What is `private` only its owner can read. The directory must not be a link, since that could lead anywhere.
    Raises `StorageError`.
    """
    try:
        with suppress(FileExistsError):
            path.parent.mkdir(mode=0o700 if private else 0o777)
        if path.parent.is_symlink():
            raise StorageError(f"{path.parent} is a link, and nothing is written through it: put a directory there")
        directory = system.open_directory(path.parent, follow=False)
        try:
            return _create_in(directory, path.name, text.encode(), mode=0o600 if private else 0o666)
        finally:
            os.close(directory)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {describe_os_error(error)}") from None


def _create_in(directory: int, name: str, data: bytes, *, mode: int) -> bool:
    draft = f".{name}.{os.getpid()}.draft"
    descriptor = system.open_at(directory, draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        return _publish(directory, draft, name)
    finally:
        with suppress(FileNotFoundError):  # it has been renamed
            system.unlink_at(directory, draft)


def _publish(directory: int, draft: str, name: str) -> bool:
    try:
        # Unlike a rename, this refuses when the name is taken, also by a link that leads nowhere.
        system.link_at(directory, draft, name)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINK_ERRNOS:
            raise
        with suppress(FileNotFoundError):
            system.stat_at(directory, name)
            return False
        system.replace_at(directory, draft, name)
    return True
