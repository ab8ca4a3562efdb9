"""Windows calls missing in Python: directory handles, jobs, consoles."""

import ctypes
import sys

if sys.platform != "win32":
    raise ImportError("yarrow.platform.windows_api is for Windows")

import msvcrt
from functools import lru_cache

_LIST, _ATTRIBUTES, _SYNCHRONIZE = 0x1, 0x80, 0x10_0000
_SHARE_READ, _SHARE_WRITE = 0x1, 0x2
"""Excludes the right to delete: an open file or directory keeps its name, and so do its parent directories."""
_OPEN_EXISTING = 3
_BACKUP_SEMANTICS = 0x0200_0000
"""Required to open a directory."""
_LONGEST_PATH = 32_768
_TERMINATE, _SET_QUOTA = 0x1, 0x100
_EXTENDED_LIMITS, _ACCOUNTING = 9, 1
_KILL_ON_CLOSE = 0x2000
_UTF_8 = 65_001
_OUTPUTS = (-11, -12)
_SEQUENCES = 0x4
_NO_HANDLE = ctypes.c_void_p(-1).value


class _Limits(ctypes.Structure):
    """JOBOBJECT_EXTENDED_LIMIT_INFORMATION."""

    _fields_ = (
        ("process_time", ctypes.c_int64),
        ("job_time", ctypes.c_int64),
        ("flags", ctypes.c_uint32),
        ("least_memory", ctypes.c_size_t),
        ("most_memory", ctypes.c_size_t),
        ("processes", ctypes.c_uint32),
        ("affinity", ctypes.c_size_t),
        ("priority", ctypes.c_uint32),
        ("scheduling", ctypes.c_uint32),
        ("counters", ctypes.c_uint64 * 6),
        ("memory", ctypes.c_size_t * 4),
    )


class _Accounts(ctypes.Structure):
    """JOBOBJECT_BASIC_ACCOUNTING_INFORMATION."""

    _fields_ = (
        ("times", ctypes.c_int64 * 4),
        ("page_faults", ctypes.c_uint32),
        ("processes", ctypes.c_uint32),
        ("active", ctypes.c_uint32),
        ("terminated", ctypes.c_uint32),
    )


@lru_cache(maxsize=1)
def _kernel() -> ctypes.WinDLL:
    """Return the library, with types declared: by default, a handle would be narrower than a pointer."""
    library = ctypes.WinDLL("kernel32", use_last_error=True)
    handle, number, text = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_wchar_p
    library.CreateFileW.restype = handle
    library.CreateFileW.argtypes = (text, number, number, handle, number, number, handle)
    library.GetFinalPathNameByHandleW.restype = number
    library.GetFinalPathNameByHandleW.argtypes = (handle, text, number, number)
    library.CloseHandle.argtypes = (handle,)
    library.CreateJobObjectW.restype = handle
    library.CreateJobObjectW.argtypes = (handle, text)
    library.SetInformationJobObject.argtypes = (handle, ctypes.c_int, handle, number)
    library.QueryInformationJobObject.argtypes = (handle, ctypes.c_int, handle, number, handle)
    library.AssignProcessToJobObject.argtypes = (handle, handle)
    library.TerminateJobObject.argtypes = (handle, number)
    library.OpenProcess.restype = handle
    library.OpenProcess.argtypes = (number, ctypes.c_int, number)
    library.GetStdHandle.restype = handle
    library.GetStdHandle.argtypes = (number,)
    library.GetConsoleMode.argtypes = (handle, handle)
    library.SetConsoleMode.argtypes = (handle, number)
    return library


def _failure(path: str = "") -> OSError:
    error = ctypes.WinError(ctypes.get_last_error())
    if path:
        error.filename = path
    return error


def open_directory(path: str) -> int:
    """Return a descriptor of a directory or file that cannot be renamed while it is open. Raises `OSError`."""
    rights = _LIST | _ATTRIBUTES | _SYNCHRONIZE
    share = _SHARE_READ | _SHARE_WRITE
    handle = _kernel().CreateFileW(path, rights, share, None, _OPEN_EXISTING, _BACKUP_SEMANTICS, None)
    if handle in (None, _NO_HANDLE):
        raise _failure(path)
    try:
        return msvcrt.open_osfhandle(handle, 0)
    except OSError:
        _kernel().CloseHandle(handle)
        raise


def path_of(descriptor: int) -> str:
    """Return the path of an open file or directory, with symlinks resolved, in a form that the system takes literally.

    Raises `OSError`.
    """
    buffer = ctypes.create_unicode_buffer(_LONGEST_PATH)
    handle = msvcrt.get_osfhandle(descriptor)
    length = _kernel().GetFinalPathNameByHandleW(handle, buffer, _LONGEST_PATH, 0)
    if not 0 < length < _LONGEST_PATH:
        raise _failure()
    return buffer.value


class Job:
    """Child process with everything it starts from now on; all of it ends with this object or this process."""

    def __init__(self, leader: int) -> None:
        """Put a child into a job. Raises `OSError`, also if it has exited."""
        self._leader = leader
        self._job = _kernel().CreateJobObjectW(None, None)
        if not self._job:
            raise _failure()
        try:
            self._take(leader)
        except OSError:
            self.close()
            raise

    def _take(self, leader: int) -> None:
        limits = _Limits(flags=_KILL_ON_CLOSE)
        size = ctypes.sizeof(limits)
        if not _kernel().SetInformationJobObject(self._job, _EXTENDED_LIMITS, ctypes.byref(limits), size):
            raise _failure()
        process = _kernel().OpenProcess(_TERMINATE | _SET_QUOTA, 0, leader)
        if not process:
            raise _failure()
        try:
            if not _kernel().AssignProcessToJobObject(self._job, process):
                raise _failure()
        finally:
            _kernel().CloseHandle(process)

    def alive(self) -> list[int]:
        """Return the child's id while any process of the job is running, else nothing."""
        accounts = _Accounts()
        size = ctypes.sizeof(accounts)
        known = _kernel().QueryInformationJobObject(self._job, _ACCOUNTING, ctypes.byref(accounts), size, None)
        return [self._leader] if known and accounts.active else []

    def end(self) -> None:
        """Kill all processes."""
        _kernel().TerminateJobObject(self._job, 1)

    def close(self) -> None:
        """Close the handle, which ends all processes."""
        if self._job:
            _kernel().CloseHandle(self._job)
            self._job = None

    def __del__(self) -> None:
        """Close the handle if it is still open."""
        self.close()


def speak_utf8() -> None:
    """Make the console, if there is one, display UTF-8 and interpret escape sequences."""
    kernel = _kernel()
    mode = ctypes.c_uint32()
    for number in _OUTPUTS:
        handle = kernel.GetStdHandle(number & 0xFFFF_FFFF)
        if kernel.GetConsoleMode(handle, ctypes.byref(mode)):
            kernel.SetConsoleOutputCP(_UTF_8)
            kernel.SetConsoleCP(_UTF_8)
            kernel.SetConsoleMode(handle, mode.value | _SEQUENCES)
