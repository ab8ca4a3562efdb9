"""System calls of Linux that Python does not offer: landlock, openat2 and inotify."""

import ctypes
import errno
import os
import select
import struct
import sys
import weakref
from contextlib import ExitStack
from functools import lru_cache

if sys.platform == "win32":
    raise ImportError("yarrow.platform.linux_syscalls is not for Windows")

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


if sys.platform == "win32":
    raise ImportError("yarrow.platform.linux_syscalls is not for Windows")

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


if sys.platform == "win32":
    raise ImportError("yarrow.platform.linux_syscalls is not for Windows")

MAX_READ_BYTES = 65_536
"""Bytes of one read."""
MAX_READS = 64
"""Reads in a row; whatever changes faster than it is read counts as lost."""
WATCHES_DIVISOR = 8
"""The part of the user's watches that is used, as a divisor: editors and build tools need the others."""
MAX_MOUNTS_BYTES = 4_194_304
"""Bytes of the mount table that are read; the file systems of later mounts count as remote."""
LOCAL_FILE_SYSTEMS = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "tmpfs", "overlay"})
"""File systems in which nothing changes but by system calls on this machine."""
_ATTRIBUTES, _NAMES = 0x004, 0x040 | 0x080 | 0x100 | 0x200
_GONE = 0x400 | 0x800
"""The directory itself was deleted or moved."""
_UNMOUNTED, _LOST, _IGNORED = 0x2000, 0x4000, 0x8000
_ONLY_DIRECTORIES, _NO_FOLLOW = 0x0100_0000, 0x0200_0000
_FLAGS = _ATTRIBUTES | _NAMES | _GONE | _ONLY_DIRECTORIES
_HEAD = struct.Struct("iIII")

DirectoryChange = tuple[int, str, str]
"""Number of the directory; `names`, `attributes` or `gone`; with `names` the entry that came or went."""


class DirectoryChanges:
    """Changes in the directories that are added, in the order in which they happened."""

    def __init__(self) -> None:
        """Raises OSError where the system reports nothing."""
        self._descriptor: int = _load_inotify().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        held = ExitStack()
        held.callback(os.close, self._descriptor)
        self.close = weakref.finalize(self, held.close)
        """End all reports."""
        mounts = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        held.callback(os.close, mounts)
        self._poll = select.poll()
        self._poll.register(mounts, select.POLLERR | select.POLLPRI)
        self.devices = _find_local_devices(os.read(mounts, MAX_MOUNTS_BYTES))
        """Devices of the file systems in which every change is reported."""
        self.room = _read_max_watches() // WATCHES_DIVISOR
        """Directories that may be added."""

    def add(self, place: str | int) -> int:
        """Report changes of a directory from now on; return the number that these have, negative for none.

        `place` is a path, whose last name is no symlink, or a descriptor of the open directory.
        """
        path = os.fsencode(place) if isinstance(place, str) else b"/proc/self/fd/%d" % place
        flags = _FLAGS | _NO_FOLLOW if isinstance(place, str) else _FLAGS
        number: int = _load_inotify().inotify_add_watch(self._descriptor, path, flags)
        return number

    def take(self) -> list[DirectoryChange] | None:
        """Return what changed since the last time; None when that is unknown, also since something was mounted."""
        if self._poll.poll(0):
            return None
        changes: list[DirectoryChange] = []
        for _ in range(MAX_READS):
            try:
                data = os.read(self._descriptor, MAX_READ_BYTES)
            except BlockingIOError:
                return changes
            if not _parse(data, changes):
                return None
        return None


def _parse(data: bytes, changes: list[DirectoryChange]) -> bool:
    """Add changes; return whether none was lost."""
    place = 0
    while place < len(data):
        number, mask, _, length = _HEAD.unpack_from(data, place)
        place += _HEAD.size
        name = os.fsdecode(data[place : place + length].partition(b"\0")[0])
        place += length
        if mask & (_LOST | _UNMOUNTED):
            return False
        if mask & (_GONE | _IGNORED):
            changes.append((number, "gone", ""))
        elif mask & _NAMES:
            changes.append((number, "names", name))
        elif not name:  # those of a file say nothing about its directory
            changes.append((number, "attributes", ""))
    return True


def _find_local_devices(table: bytes) -> frozenset[int]:
    devices = set[int]()
    for line in table.splitlines():
        mount, _, rest = line.partition(b" - ")
        words = mount.split(b" ", 3)
        if len(words) == 4 and os.fsdecode(rest.split(b" ", 1)[0]) in LOCAL_FILE_SYSTEMS:
            major, _, minor = words[2].partition(b":")
            devices.add(os.makedev(int(major), int(minor)))
    return frozenset(devices)


def _read_max_watches() -> int:
    """Return how many watches one user has."""
    try:
        with open("/proc/sys/fs/inotify/max_user_watches", "rb") as file:
            return int(file.read())
    except (OSError, ValueError):
        return 0


@lru_cache(maxsize=1)
def _load_inotify() -> ctypes.CDLL:
    library = ctypes.CDLL(None, use_errno=True)
    library.inotify_add_watch.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_uint32)
    return library
