"""Opens what lies below a directory by a path without links, also when one of its names becomes a link meanwhile."""

import ctypes
import errno
import os
import sys
from functools import lru_cache
from pathlib import Path

_OPENAT2 = 437
"""The number of the system call, on every architecture of Linux."""
_NO_MAGIC_LINKS, _NO_LINKS, _BENEATH = 0x02, 0x04, 0x08
_UNKNOWN = frozenset({errno.ENOSYS, errno.EPERM, errno.EINVAL})
"""How a kernel, or a sandbox around us, says that it does not do that."""
IN_THE_WAY = frozenset({errno.ELOOP, errno.EXDEV, errno.ENOTDIR, errno.EAGAIN})
"""How an error says that a link, or something else than a directory, stands where a directory was."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def open_beneath(root: Path, path: Path, flags: int) -> int:
    """Return a descriptor of a path that lies below `root` and has no link in it from there on.

    Raises OSError: with a number of `IN_THE_WAY` when there is a link after all, else as `os.open`.
    """
    top = os.open(root, _DIRECTORY)
    try:
        return open_below(top, path.relative_to(root).parts, flags)
    finally:
        os.close(top)


def open_below(directory: int, names: tuple[str, ...], flags: int) -> int:
    """Return a descriptor of what an open directory holds by these names, none of which is a link; none is itself.

    Raises OSError as `open_beneath`.
    """
    return _open(directory, names or (".",), flags | os.O_CLOEXEC)


def open_directory(root: Path, path: Path, *, make: bool = False) -> int:
    """Return a descriptor of a directory that lies below `root`, made with those above it if `make` says so.

    Raises OSError as `open_beneath`.
    """
    at = os.open(root, _DIRECTORY)
    try:
        for name in path.relative_to(root).parts:
            if make:
                _make(at, name)
            below = _open(at, (name,), _DIRECTORY)
            os.close(at)
            at = below
    except BaseException:
        os.close(at)
        raise
    return at


def _make(directory: int, name: str) -> None:
    try:
        os.mkdir(name, dir_fd=directory)
    except FileExistsError:
        return


def _open(directory: int, names: tuple[str, ...], flags: int) -> int:
    if _openat2_works():
        return _openat2(directory, "/".join(names), flags)
    return _step_by_step(directory, names, flags)


def _step_by_step(directory: int, names: tuple[str, ...], flags: int) -> int:
    """Open one name after the other, none of which may be a link."""
    *above, last = names
    at = os.dup(directory)
    try:
        for name in above:
            below = os.open(name, _DIRECTORY | os.O_NOFOLLOW, dir_fd=at)
            os.close(at)
            at = below
        return os.open(last, flags | os.O_NOFOLLOW, dir_fd=at)
    finally:
        os.close(at)


def _openat2(directory: int, path: str, flags: int) -> int:
    how = _How(flags, 0, _BENEATH | _NO_LINKS | _NO_MAGIC_LINKS)
    descriptor: int = _library().syscall(_OPENAT2, directory, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how))
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return descriptor


@lru_cache(maxsize=1)
def _openat2_works() -> bool:
    """Whether the kernel has the system call."""
    if sys.platform != "linux":
        return False
    top = os.open("/", _DIRECTORY)
    try:
        os.close(_openat2(top, ".", _DIRECTORY))
    except OSError as error:
        return error.errno not in _UNKNOWN
    finally:
        os.close(top)
    return True


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    library.syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_How), ctypes.c_size_t)
    return library
