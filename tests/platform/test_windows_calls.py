"""The calls that only Windows has, against a kernel that notes what it was asked: numbers, sizes and handles."""

from collections.abc import Callable

KERNEL = """
import sys
sys.platform = "win32"
import ctypes, os, signal, types
calls = []
class Function:
    def __init__(self, name):
        self.name = name
    def __call__(self, *given):
        calls.append((self.name, *given))
        answer = answers.get(self.name, 1)
        return answer(*given) if callable(answer) else answer
class Kernel:
    def __init__(self, name, use_last_error):
        assert (name, use_last_error) == ("kernel32", True)
    def __getattr__(self, name):
        made = Function(name)
        setattr(self, name, made)
        return made
answers = {}
ctypes.WinDLL = Kernel
ctypes.get_last_error = lambda: 5
ctypes.WinError = lambda number: PermissionError(13, "refused")
msvcrt = types.ModuleType("msvcrt")
msvcrt.open_osfhandle = lambda handle, flags: handle + 1000
msvcrt.get_osfhandle = lambda descriptor: descriptor - 1000
sys.modules["msvcrt"] = msvcrt
sys.modules["_winapi"] = types.ModuleType("_winapi")
os.O_BINARY = os.O_NOINHERIT = signal.SIGBREAK = 0
from yarrow.platform import windows_api as w
"""


def test_structures_have_the_sizes_of_the_system(in_python: Callable[..., str]) -> None:
    code = (
        "print(ctypes.sizeof(w._Limits), ctypes.sizeof(w._Accounts), w._Limits.flags.offset, w._Accounts.active.offset)"
    )
    assert in_python(KERNEL + code) == "144 48 16 40\n"


def test_a_directory_is_opened_so_that_it_keeps_its_name(in_python: Callable[..., str]) -> None:
    code = """
answers["CreateFileW"] = 7
print(w.open_directory("C:/d"))
_, path, rights, share, _, existing, flags, _ = calls[0]
print(path, share & 4, existing, hex(flags))
answers["CreateFileW"] = ctypes.c_void_p(-1).value
try:
    w.open_directory("C:/e")
except PermissionError as error:
    print(error.filename)
"""
    assert in_python(KERNEL + code) == "1007\nC:/d 0 3 0x2000000\nC:/e\n"


def test_the_path_of_a_handle_is_queried(in_python: Callable[..., str]) -> None:
    code = """
def fill(handle, buffer, size, how):
    buffer.value = "\\\\\\\\?\\\\C:\\\\d"
    return len(buffer.value)
answers["GetFinalPathNameByHandleW"] = fill
print(w.path_of(1007), calls[0][1], calls[0][3])
answers["GetFinalPathNameByHandleW"] = 0
try:
    w.path_of(1007)
except PermissionError:
    print("refused")
"""
    assert in_python(KERNEL + code) == "\\\\?\\C:\\d 7 32768\nrefused\n"


def test_a_job_holds_a_child_and_ends_with_its_handle(in_python: Callable[..., str]) -> None:
    code = """
answers.update(CreateJobObjectW=11, OpenProcess=12)
def told(job, what, record, size, _):
    ctypes.cast(record, ctypes.POINTER(w._Accounts)).contents.active = running
    return 1
answers["QueryInformationJobObject"] = told
job = w.Job(99)
running = 2
print(job.alive())
running = 0
print(job.alive())
job.end()
job.close()
job.close()
limits = ctypes.cast(calls[1][3], ctypes.POINTER(w._Limits)).contents
print(hex(limits.flags), calls[1][1:3], calls[1][4])
print([(name, *given[:2]) for name, *given in calls if name != "SetInformationJobObject" and name[0] != "Q"])
"""
    asked = (
        "[('CreateJobObjectW', None, None), ('OpenProcess', 257, 0), ('AssignProcessToJobObject', 11, 12), "
        "('CloseHandle', 12), ('TerminateJobObject', 11, 1), ('CloseHandle', 11)]"
    )
    assert in_python(KERNEL + code).splitlines() == ["[99]", "[]", "0x2000 (11, 9) 144", asked]


def test_an_exited_child_is_not_put_into_a_job(in_python: Callable[..., str]) -> None:
    code = """
answers.update(CreateJobObjectW=11, OpenProcess=0)
try:
    w.Job(99)
except PermissionError:
    print(calls[-1])
"""
    assert in_python(KERNEL + code) == "('CloseHandle', 11)\n"


def test_a_console_uses_utf8(in_python: Callable[..., str]) -> None:
    code = """
answers["GetStdHandle"] = lambda number: number
def mode(handle, record):
    ctypes.cast(record, ctypes.POINTER(ctypes.c_uint32)).contents.value = 3
    return handle == 0xFFFFFFF5
answers["GetConsoleMode"] = mode
w.speak_utf8()
print([call for call in calls if call[0].startswith("Set")])
"""
    told = "[('SetConsoleOutputCP', 65001), ('SetConsoleCP', 65001), ('SetConsoleMode', 4294967285, 7)]\n"
    assert in_python(KERNEL + code) == told
