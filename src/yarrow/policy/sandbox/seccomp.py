"""Filter of the system calls that a sandbox refuses, as a BPF program that the kernel runs for each call."""

import platform
import struct
from functools import lru_cache

_LOAD, _EQUAL, _AT_LEAST, _HAS, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
"""Classic BPF instructions: load a word; jump if equal, if at least, or if a bit is set; mask; return."""
_NUMBER, _ARCHITECTURE = 0, 4
_ARGUMENTS = (16, 24, 32, 40)
"""Byte offsets of the arguments on a little-endian machine."""
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOSYS, _EAFNOSUPPORT = 1, 38, 97
_X32 = 0x40000000
"""Start of the numbers of x32 calls, all of which are refused."""
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
"""Terminal requests that insert characters as if they were typed."""
_LOCAL = 1
_FAMILIES = (2, 10, 16)
"""Allowed socket families: IPv4, IPv6, and netlink, which name resolution needs; local sockets are separate."""
_KIND = 0x0F
"""Mask of a socket type without its flags."""
_DATAGRAM, _RAW = 2, 3
"""Types of local sockets that can send to any address, even in a pair."""
_RUNS_AS_OWNER = 0o4000
"""Setuid bit.

The setgid bit is allowed: shared directories have it, and copying them sets it.
"""
_MAKES = 0o100 | 0o20000000
"""Flags of an open call that create a file; without them the call passes no mode."""
_MODE_AT = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1, "mknodat": 2}
"""Index of the mode argument of calls that set a file's mode."""
_FLAGS_AT = {"open": 1, "openat": 2}
"""Index of the flags argument of calls whose mode comes next, and counts only with `_MAKES`."""

_X86 = """
    add_key 248, request_key 249, keyctl 250, bpf 321, perf_event_open 298, userfaultfd 323, mount 165,
    umount2 166, pivot_root 155, chroot 161, setns 308, unshare 272, acct 163, kexec_load 246,
    kexec_file_load 320, init_module 175, finit_module 313, delete_module 176, swapon 167, swapoff 168,
    reboot 169, iopl 172, ioperm 173, syslog 103, quotactl 179, settimeofday 164, clock_settime 227,
    clock_adjtime 305, adjtimex 159, vhangup 153, open_by_handle_at 304, lookup_dcookie 212, nfsservctl 180,
    sethostname 170, setdomainname 171, socket 41, socketpair 53, ioctl 16,
    chmod 90, fchmod 91, fchmodat 268, fchmodat2 452, creat 85, mknod 133, mknodat 259, open 2, openat 257
"""
_ARM = """
    add_key 217, request_key 218, keyctl 219, bpf 280, perf_event_open 241, userfaultfd 282, mount 40,
    umount2 39, pivot_root 41, chroot 51, setns 268, unshare 97, acct 89, kexec_load 104, kexec_file_load 294,
    init_module 105, finit_module 273, delete_module 106, swapon 224, swapoff 225, reboot 142, syslog 116,
    quotactl 60, settimeofday 170, clock_settime 112, clock_adjtime 266, adjtimex 171, vhangup 58,
    open_by_handle_at 265, lookup_dcookie 18, nfsservctl 42, sethostname 161, setdomainname 162, socket 198,
    socketpair 199, ioctl 29, fchmod 52, fchmodat 53, fchmodat2 452, mknodat 33, openat 56
"""
_SAME_EVERYWHERE = """
    io_uring_setup 425, io_uring_enter 426, io_uring_register 427, open_tree 428, move_mount 429, fsopen 430,
    fsconfig 431, fsmount 432, fspick 433, mount_setattr 442, quotactl_fd 443, openat2 437
"""
"""Newer calls, whose numbers are the same on all machines.

io_uring is included because it makes calls that no filter sees, and openat2 because filters cannot see its mode.
"""
_MACHINES = {"x86_64": (0xC000003E, _X86), "aarch64": (0xC00000B7, _ARM)}


@lru_cache(maxsize=4)
def program(machine: str = "", *, is_strict: bool = False) -> bytes:
    """Return the program for a machine, by default this one; empty if the machine is unknown.

    `is_strict` refuses local sockets, since each could be connected to a daemon. Pairs of connected sockets are
    allowed.
    """
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
    looked_into = {"socket", "socketpair", "ioctl", *_MODE_AT, *_FLAGS_AT}
    for name, number in numbers.items():
        if name not in looked_into:
            # Newer calls are refused as if the kernel lacked them, so that programs fall back.
            refusal = _ENOSYS if name in newer else _EPERM
            code += [_jump(_EQUAL, number, no=1), _step(_RETURN, _REFUSE | refusal)]
    code += _argument(numbers["ioctl"], _ARGUMENTS[1], refused=(_TIOCSTI, _TIOCLINUX))
    code += _sockets(numbers["socket"], _FAMILIES if is_strict else (_LOCAL, *_FAMILIES))
    if is_strict:
        code += _pairs(numbers["socketpair"])
    code += _marks(numbers)
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


def _marks(numbers: dict[str, int]) -> list[bytes]:
    """Return the steps that refuse to set the setuid bit of a file."""
    steps: list[bytes] = []
    refuse, allow = _step(_RETURN, _REFUSE | _EPERM), _step(_RETURN, _ALLOW)
    for name, at in _MODE_AT.items():
        if name in numbers:
            test = [_step(_LOAD, _ARGUMENTS[at]), _jump(_HAS, _RUNS_AS_OWNER, no=1), refuse, allow]
            steps += [_jump(_EQUAL, numbers[name], no=len(test)), *test]
    for name, at in _FLAGS_AT.items():
        if name in numbers:
            flags = [_step(_LOAD, _ARGUMENTS[at]), _jump(_HAS, _MAKES, no=3)]
            test = [*flags, _step(_LOAD, _ARGUMENTS[at + 1]), _jump(_HAS, _RUNS_AS_OWNER, no=1), refuse, allow]
            steps += [_jump(_EQUAL, numbers[name], no=len(test)), *test]
    return steps


def _sockets(number: int, families: tuple[int, ...]) -> list[bytes]:
    """Return the steps that refuse sockets of other families."""
    tests = [_jump(_EQUAL, family, yes=len(families) - index) for index, family in enumerate(families)]
    refuse, allow = _step(_RETURN, _REFUSE | _EAFNOSUPPORT), _step(_RETURN, _ALLOW)
    return [_jump(_EQUAL, number, no=len(tests) + 3), _step(_LOAD, _ARGUMENTS[0]), *tests, refuse, allow]


def _pairs(number: int) -> list[bytes]:
    """Return the steps that refuse pairs of sockets that can send to others than each other."""
    tests = [
        _step(_LOAD, _ARGUMENTS[1]),
        _step(_AND, _KIND),
        _jump(_EQUAL, _DATAGRAM, yes=2),
        _jump(_EQUAL, _RAW, yes=1),
    ]
    allow, refuse = _step(_RETURN, _ALLOW), _step(_RETURN, _REFUSE | _EAFNOSUPPORT)
    return [_jump(_EQUAL, number, no=len(tests) + 2), *tests, allow, refuse]


def _step(code: int, value: int) -> bytes:
    return struct.pack("=HBBI", code, 0, 0, value)


def _jump(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """Return a step that skips `yes` steps if it holds, otherwise `no` steps."""
    return struct.pack("=HBBI", code, yes, no, value)
