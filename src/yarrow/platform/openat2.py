"""Linux's `openat2`: opens a path below a directory in one step that no link, put there meanwhile, leads astray."""

import ctypes
import errno
import os
import sys
from functools import lru_cache

if sys.platform == "win32":
    raise ImportError("yarrow.platform.openat2 is not for Windows")

_OPENAT2 = 437
"""The number of the system call, on every architecture of Linux."""
_NO_MAGIC_LINKS, _NO_LINKS, _BENEATH = 0x02, 0x04, 0x08
_UNKNOWN = frozenset({errno.ENOSYS, errno.EPERM, errno.EINVAL})
"""How a kernel, or a sandbox around us, says that it does not do that."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def openat_nofollow(directory: int, names: tuple[str, ...], flags: int) -> int:
    """Open what lies below an open directory by one name after the other, none of which may be a link.

    Raises `OSError`.
    """
    path = "/".join(names)
    how = _OpenHow(flags | os.O_CLOEXEC, 0, _BENEATH | _NO_LINKS | _NO_MAGIC_LINKS)
    descriptor: int = _load_openat2().syscall(
        _OPENAT2, directory, os.fsencode(path), ctypes.byref(how), ctypes.sizeof(how)
    )
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), path)
    return descriptor


@lru_cache(maxsize=1)
def is_supported() -> bool:
    """Whether the kernel has the system call."""
    top = os.open("/", _DIRECTORY)
    try:
        os.close(openat_nofollow(top, (".",), _DIRECTORY))
    except OSError as error:
        return error.errno not in _UNKNOWN
    finally:
        os.close(top)
    return True


@lru_cache(maxsize=1)
def _load_openat2() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    library.syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(_OpenHow), ctypes.c_size_t)
    return library
