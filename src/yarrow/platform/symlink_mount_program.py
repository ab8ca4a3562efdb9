"""Program that mounts symlinks over files in a mount namespace of its own, then executes another program.

Bubblewrap follows a symlink that it is asked to mount, but keeps those that are already mounted. Yarrow runs this file
by path in a bare interpreter, so it must not import anything of Yarrow.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

if sys.platform != "linux":
    raise ImportError("yarrow.platform.symlink_mount_program is for Linux only")

_NEW_MOUNTS, _NEW_USERS = 0x0002_0000, 0x1000_0000
_RECURSIVE, _DOWNSTREAM = 0x4000, 0x8_0000
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442
_HERE, _NO_FOLLOW, _EMPTY_PATH, _CLONE = -100, 0x100, 0x1000, 1
_MOVE_FROM_DESCRIPTOR = 4
_SEALED = 1 | 2 | 4
"""Read-only, nosuid and nodev: bubblewrap leaves such a mount unchanged; to change it, it would follow the symlink."""
_DETACH = 2 | 8
_IGNORED_BY_PYTHON = ("SIGPIPE", "SIGXFSZ", "SIGXFZ")

_libc = ctypes.CDLL(None, use_errno=True)


class _MountAttributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "users"))


def main(mark: str, *words: str) -> None:
    """Mount symlinks and execute a program.

    `words` are pairs of a symlink and the file that it covers, then guards, each list after its count, and the command
    line of the program, in which the guards replace `mark` if a symlink could not be mounted.
    """
    pairs, rest = _split_counted(words)
    guards, program = _split_counted(rest)
    try:
        _mount_all(list(zip(pairs[::2], pairs[1::2], strict=True)))
        guards = ()
    except OSError:
        pass
    place = program.index(mark)
    program = [*program[:place], *guards, *program[place + 1 :]]
    for name in _IGNORED_BY_PYTHON:
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
    # The interpreter may have changed its environment.
    with open("/proc/self/environ", "rb") as file:
        pairs_of_environment = (entry.partition(b"=") for entry in file.read().split(b"\0") if entry)
        os.execve(program[0], program, {name: value for name, _, value in pairs_of_environment})  # noqa: S606 (this process becomes the launcher; no shell)


def _split_counted(words: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    count = int(words[0]) + 1
    return words[1:count], words[count:]


def _mount_all(links: Sequence[tuple[str, str]]) -> None:
    _enter_namespace()
    done: list[str] = []
    try:
        for link, target in links:
            _mount_symlink(link, target)
            done.append(target)
    except OSError:
        for target in done:
            _check_result(_libc.umount2(os.fsencode(target), _DETACH))
        raise


def _enter_namespace() -> None:
    """Enter a mount namespace and, unless root, the user namespace that permits it."""
    uid, gid = os.geteuid(), os.getegid()
    _check_result(_libc.unshare(_NEW_MOUNTS | (_NEW_USERS if uid else 0)))
    if uid:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(text)
    _check_result(_libc.mount(None, b"/", None, _RECURSIVE | _DOWNSTREAM, None))


def _mount_symlink(link: str, target: str) -> None:
    tree = _call_kernel(_OPEN_TREE, _HERE, os.fsencode(link), _CLONE | _NO_FOLLOW)
    try:
        attributes = _MountAttributes(_SEALED, 0, 0, 0)
        _call_kernel(_MOUNT_SETATTR, tree, b"", _EMPTY_PATH, ctypes.byref(attributes), ctypes.sizeof(attributes))
        _call_kernel(_MOVE_MOUNT, tree, b"", _HERE, os.fsencode(target), _MOVE_FROM_DESCRIPTOR)
    finally:
        os.close(tree)


def _call_kernel(number: int, *arguments: object) -> int:
    return _check_result(_libc.syscall(number, *arguments))


def _check_result(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


if __name__ == "__main__":
    main(*sys.argv[1:])
