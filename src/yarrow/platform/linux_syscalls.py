"""Linux system calls missing in Python: landlock, openat2 and inotify."""

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
"""System call numbers, the same on every architecture."""
_ASK_VERSION = 1
MIN_SCOPE_VERSION = 6
"""First landlock version that can scope sockets."""
_SCOPE_ABSTRACT_SOCKETS = 1
_NO_NEW_PRIVILEGES = 38
"""Option of `prctl`: children never gain privileges; required by the kernel unless the process is root."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


def get_landlock_version() -> int:
    """Return the landlock version; 0 if the kernel does not support it."""
    return max(0, _load_libc().syscall(_CREATE_RULESET, None, 0, _ASK_VERSION))


def scope_abstract_sockets() -> bool:
    """Deny the calling thread, and what it starts from now on, the abstract sockets of all other processes.

    Returns whether the kernel supports it; if not, nothing changes. It cannot be undone.
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


_OPENAT2 = 437
"""System call number, the same on every architecture."""
_NO_MAGIC_LINKS, _NO_LINKS, _BENEATH = 0x02, 0x04, 0x08
_UNKNOWN = frozenset({errno.ENOSYS, errno.EPERM, errno.EINVAL})
"""Errors by which a kernel, or a sandbox around us, reports that it does not support the call."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class _OpenHow(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


def openat_nofollow(directory: int, names: tuple[str, ...], flags: int) -> int:
    """Open a path below an open directory, given by its names, none of which may be a symlink.

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
    """Return whether the kernel supports openat2."""
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


MAX_READ_BYTES = 65_536
"""Maximum bytes of one read."""
MAX_READS = 64
"""Maximum consecutive reads; changes that arrive faster than they are read count as lost."""
WATCHES_DIVISOR = 8
"""Divisor for the fraction of the user's watches in use; editors and build tools need the rest."""
MAX_MOUNTS_BYTES = 4_194_304
"""Maximum bytes read of the mount table; file systems mounted later count as remote."""
LOCAL_FILE_SYSTEMS = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "tmpfs", "overlay"})
"""File systems whose content changes only through system calls on this machine."""
_ATTRIBUTES, _NAMES = 0x004, 0x040 | 0x080 | 0x100 | 0x200
_GONE = 0x400 | 0x800
"""Events of a directory that was itself deleted or moved."""
_UNMOUNTED, _LOST, _IGNORED = 0x2000, 0x4000, 0x8000
_ONLY_DIRECTORIES, _NO_FOLLOW = 0x0100_0000, 0x0200_0000
_FLAGS = _ATTRIBUTES | _NAMES | _GONE | _ONLY_DIRECTORIES
_HEAD = struct.Struct("iIII")

DirectoryChange = tuple[int, str, str]
"""Number of the directory; `names`, `attributes` or `gone`; for `names`, the entry that was added or removed."""


class DirectoryChanges:
    """Changes in the watched directories, in the order in which they happened."""

    def __init__(self) -> None:
        """Start watching. Raises OSError if unsupported."""
        self._descriptor: int = _load_inotify().inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        held = ExitStack()
        held.callback(os.close, self._descriptor)
        self.close = weakref.finalize(self, held.close)
        """Stop all reports."""
        mounts = os.open("/proc/self/mountinfo", os.O_RDONLY | os.O_CLOEXEC)
        held.callback(os.close, mounts)
        self._poll = select.poll()
        self._poll.register(mounts, select.POLLERR | select.POLLPRI)
        self.devices = _find_local_devices(os.read(mounts, MAX_MOUNTS_BYTES))
        """Devices of the file systems in which every change is reported."""
        self.room = _read_max_watches() // WATCHES_DIVISOR
        """Maximum directories that may be added."""

    def add(self, place: str | int) -> int:
        """Watch a directory from now on; return the number of its changes, negative on failure.

        `place` is a path, whose last name must not be a symlink, or the descriptor of an open directory.
        """
        path = os.fsencode(place) if isinstance(place, str) else b"/proc/self/fd/%d" % place
        flags = _FLAGS | _NO_FOLLOW if isinstance(place, str) else _FLAGS
        number: int = _load_inotify().inotify_add_watch(self._descriptor, path, flags)
        return number

    def take(self) -> list[DirectoryChange] | None:
        """Return the changes since the last call; None if they are unknown, as after a mount."""
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
    """Append the changes; return False if any was lost."""
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
        elif not name:  # changes of a file do not affect its directory
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
    """Return the maximum watches of a user; 0 if unknown."""
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
