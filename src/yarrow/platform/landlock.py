"""Linux's Landlock, of which the scope of abstract sockets is used: they have no path that a mount could hide."""

import ctypes
import os
import sys

if sys.platform == "win32":
    raise ImportError("yarrow.platform.landlock is not for Windows")

_CREATE_RULESET, _RESTRICT_SELF = 444, 446
"""Numbers of the system calls, on every architecture of Linux."""
_ASK_VERSION = 1
MIN_SCOPE_VERSION = 6
"""Version of the interface since which sockets are scoped."""
_SCOPE_ABSTRACT_SOCKETS = 1
_NO_NEW_PRIVILEGES = 38
"""Of `prctl`: what is started never has more rights, which the kernel asks of whoever is not root."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


def get_landlock_version() -> int:
    """Return the version of the interface; 0 where the kernel has none."""
    return max(0, _load_libc().syscall(_CREATE_RULESET, None, 0, _ASK_VERSION))


def scope_abstract_sockets() -> bool:
    """Keep the calling thread, and what it starts from now on, from abstract sockets of all others.

    Returns whether the kernel does that; where it does not, nothing changes. It cannot be undone.
    """
    library = _load_libc()
    if get_landlock_version() < MIN_SCOPE_VERSION:
        return False
    ruleset = _Ruleset(0, 0, _SCOPE_ABSTRACT_SOCKETS)
    descriptor: int = library.syscall(_CREATE_RULESET, ctypes.byref(ruleset), ctypes.sizeof(ruleset), 0)
    if descriptor < 0:
        return False
    try:
        if library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
            return False
        restricted: int = library.syscall(_RESTRICT_SELF, descriptor, None, 0)
        return restricted == 0
    finally:
        os.close(descriptor)


def _load_libc() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.syscall.restype = ctypes.c_long
    return library
