"""The system calls that a sandbox refuses, as the program that the kernel runs for each call."""

import platform
import struct
from functools import lru_cache

_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
"""Instructions of the classic packet filter: load a word, jump when equal, jump when at least, return."""
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24
"""Where the kernel puts them, in bytes, on a machine whose lower half of a word comes first."""
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_X32 = 0x40000000
"""From here on calls of another kind begin, by other numbers; they are all refused."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
"""Push characters into a terminal, as if somebody typed them."""
_FAMILIES = (1, 2, 10, 16)
"""Of sockets that may be made: local, IPv4, IPv6, and netlink, which looking up a host needs."""

_X86 = """
    add_key 248, request_key 249, keyctl 250, bpf 321, perf_event_open 298, userfaultfd 323, mount 165,
    umount2 166, pivot_root 155, chroot 161, setns 308, unshare 272, acct 163, kexec_load 246,
    kexec_file_load 320, init_module 175, finit_module 313, delete_module 176, swapon 167, swapoff 168,
    reboot 169, iopl 172, ioperm 173, syslog 103, quotactl 179, settimeofday 164, clock_settime 227,
    clock_adjtime 305, adjtimex 159, vhangup 153, open_by_handle_at 304, lookup_dcookie 212, nfsservctl 180,
    sethostname 170, setdomainname 171, socket 41, ioctl 16
"""
_ARM = """
    add_key 217, request_key 218, keyctl 219, bpf 280, perf_event_open 241, userfaultfd 282, mount 40,
    umount2 39, pivot_root 41, chroot 51, setns 268, unshare 97, acct 89, kexec_load 104, kexec_file_load 294,
    init_module 105, finit_module 273, delete_module 106, swapon 224, swapoff 225, reboot 142, syslog 116,
    quotactl 60, settimeofday 170, clock_settime 112, clock_adjtime 266, adjtimex 171, vhangup 58,
    open_by_handle_at 265, lookup_dcookie 18, nfsservctl 42, sethostname 161, setdomainname 162, socket 198,
    ioctl 29
"""
_SAME_EVERYWHERE = """
    io_uring_setup 425, io_uring_enter 426, io_uring_register 427, open_tree 428, move_mount 429, fsopen 430,
    fsconfig 431, fsmount 432, fspick 433, mount_setattr 442, quotactl_fd 443
"""
"""Newer calls have one number. io_uring is among them since it makes calls that no filter sees."""
_MACHINES = {"x86_64": (0xC000003E, _X86), "aarch64": (0xC00000B7, _ARM)}


@lru_cache(maxsize=4)
def program(machine: str = "") -> bytes:
    """Return the program for a machine, this one unless it is named; empty where none is known."""
    known = _MACHINES.get(machine or platform.machine())
    if known is None:
        return b""
    architecture, own = known
    newer = _table(_SAME_EVERYWHERE)
    numbers = _table(own) | newer
    code: list[bytes] = [
        _step(_LOAD, _ARCHITECTURE),
        _jump(_EQUAL, architecture, yes=1),
        _step(_RETURN, _KILL),
        _step(_LOAD, _NUMBER),
        _jump(_AT_LEAST, _X32, no=1),
        _step(_RETURN, _REFUSE | _ENOSYS),
    ]
    for name, number in numbers.items():
        if name not in {"socket", "ioctl"}:
            # What is newer is refused as if the kernel did not have it, so that programs take the older way.
            refusal = _ENOSYS if name in newer else _EPERM
            code += [_jump(_EQUAL, number, no=1), _step(_RETURN, _REFUSE | refusal)]
    code += _argument(numbers["ioctl"], _SECOND_ARGUMENT, refused=(_TIOCSTI, _TIOCLINUX))
    code += _sockets(numbers["socket"])
    code.append(_step(_RETURN, _ALLOW))
    return b"".join(code)


def _table(text: str) -> dict[str, int]:
    return {name: int(number) for name, number in (entry.split() for entry in text.split(","))}


def _argument(number: int, at: int, *, refused: tuple[int, ...]) -> list[bytes]:
    """Return the steps that refuse a call for some values of an argument."""
    tests: list[bytes] = []
    for value in refused:
        tests += [_jump(_EQUAL, value, no=1), _step(_RETURN, _REFUSE | _EPERM)]
    return [_jump(_EQUAL, number, no=len(tests) + 2), _step(_LOAD, at), *tests, _step(_RETURN, _ALLOW)]


def _sockets(number: int) -> list[bytes]:
    """Return the steps that refuse sockets of other families."""
    tests = [_jump(_EQUAL, family, yes=len(_FAMILIES) - index) for index, family in enumerate(_FAMILIES)]
    refuse, allow = _step(_RETURN, _REFUSE | _EAFNOSUPPORT), _step(_RETURN, _ALLOW)
    return [_jump(_EQUAL, number, no=len(tests) + 3), _step(_LOAD, _FIRST_ARGUMENT), *tests, refuse, allow]


def _step(code: int, value: int) -> bytes:
    return struct.pack("=HBBI", code, 0, 0, value)


def _jump(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """Return a step that passes over so many steps when it holds, and when it does not."""
    return struct.pack("=HBBI", code, yes, no, value)
