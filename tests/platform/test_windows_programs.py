"""Pipes that are looked at, locks of bytes, trees of processes and keys at a console, as Windows has them."""

from collections.abc import Callable

AS_WINDOWS = """
from doubles.as_windows import pretend
pretend()
import asyncio, errno, sys
import os as real
from yarrow.platform import system, windows, windows_files
"""


def test_a_pipe_is_read_without_blocking(in_python: Callable[..., str]) -> None:
    code = """
source, sink = system.open_pipe()
try:
    system.read_nonblocking(source, 9)
except BlockingIOError:
    print("empty")
real.write(sink, b"abc")
print(system.read_nonblocking(source, 2), system.wait_readable(source, 0))
print(system.read_nonblocking(source, 2), system.wait_readable(source, 0.05))
real.close(sink)
print(system.read_nonblocking(source, 2), system.wait_readable(source, None))
file = real.open("f", real.O_RDWR | real.O_CREAT)
print(system.wait_readable(file, 0))
"""
    assert in_python(AS_WINDOWS + code) == "empty\nb'ab' True\nb'c' False\nb'' True\nTrue\n"


def test_a_watcher_is_called_while_data_is_available(in_python: Callable[..., str]) -> None:
    code = """
async def main():
    loop = asyncio.get_running_loop()
    source, sink = system.open_pipe()
    calls, twice = [], asyncio.Event()
    def arrived():
        calls.append(1)
        if len(calls) == 2:
            twice.set()
    system.watch_readable(loop, source, arrived)
    await asyncio.sleep(0)
    print(len(calls))
    real.write(sink, b"a")
    await asyncio.wait_for(twice.wait(), 10)
    system.unwatch_readable(loop, source)
    system.unwatch_readable(loop, source)
    count = len(calls)
    await asyncio.sleep(3 * windows.LOOK_SECONDS)
    print(len(calls) - count, system._watched)
asyncio.run(main())
"""
    assert in_python(AS_WINDOWS + code) == "0\n0 {}\n"


def test_the_process_tree_is_killed_or_else_the_child(in_python: Callable[..., str]) -> None:
    code = """
import subprocess
def gone(command, **more):
    print(command[1:])
    raise subprocess.CalledProcessError(128, command)
subprocess.run = gone
child = subprocess.Popen(["sleep", "300"])
system.kill_group(child.pid)
print(child.wait())
try:
    system.kill_group(child.pid)
except ProcessLookupError:
    print("gone")
"""
    first, status, second, end = in_python(AS_WINDOWS + code).splitlines()
    assert first.startswith("('/F', '/T', '/PID', '")
    assert (status, second, end) == ("-15", first, "gone")


def test_a_termination_request_kills_at_once(in_python: Callable[..., str]) -> None:
    code = """
import subprocess
child = subprocess.Popen(["sh", "-c", "trap '' TERM; echo on; exec sleep 300"], stdout=-1, start_new_session=True)
child.stdout.readline()
family = system.create_job(child.pid)
family.send(system.KILL_SIGNAL, [])
print(family.alive() == [child.pid])
family.send(system.KILL_SIGNAL, family.alive())
print(child.wait(30), system.create_job(child.pid).alive())
"""
    assert in_python(AS_WINDOWS + code) == "True\n-9 []\n"


def test_a_directory_lock_is_exclusive(in_python: Callable[..., str]) -> None:
    code = """
from pathlib import Path
windows_files.LOCK_SECONDS = 0.05
with system.lock_directory(Path(".")) as descriptor:
    system.sync(descriptor)
    try:
        with system.lock_directory(Path(".")):
            pass
    except TimeoutError as error:
        print(error.strerror)
with system.lock_directory(Path(".")):
    print("free")
try:
    system.try_lock_directory(Path("."))
except OSError as error:
    print(error.errno == errno.ENOTSUP)
"""
    assert in_python(AS_WINDOWS + code) == "another process has locked the directory; try again\nfree\nTrue\n"


def test_held_directories_are_accessed_by_name(in_python: Callable[..., str]) -> None:
    code = """
from pathlib import Path
Path("d/e").mkdir(parents=True)
Path("d/f").write_text("x")
Path("d/l").symlink_to("e")
Path("d/n").symlink_to("f")
top = system.open_directory("d")
system.sync(top)
for name in ("l", "n", "..", "a/b", "a\\\\b", "nul", "f:x", "none"):
    try:
        system.open_at(top, name, real.O_RDONLY)
    except OSError as error:
        print(name, errno.errorcode[error.errno])
for path, follow in (("d/f", True), ("d/l", False)):
    try:
        system.open_directory(path, follow=follow)
    except OSError as error:
        print(path, errno.errorcode[error.errno])
system.link_at(top, "f", "g")
system.replace_at(top, "g", "h")
system.unlink_at(top, "f")
system.mkdir_at(top, "m")
print(sorted(system.listdir_at(top)), system.can_write_at(top, "."), system.stat_at(top, "l").st_mode >> 12)
with system.scandir_at(top) as entries:
    print(sorted(entry.name for entry in entries))
"""
    assert in_python(AS_WINDOWS + code).splitlines() == [
        "l ELOOP",
        "n ELOOP",
        ".. EINVAL",
        "a/b EINVAL",
        "a\\b EINVAL",
        "nul EINVAL",
        "f:x EINVAL",
        "none ENOENT",
        "d/f ENOTDIR",
        "d/l ELOOP",
        "['e', 'h', 'l', 'm', 'n'] True 10",
        "['e', 'h', 'l', 'm', 'n']",
    ]


def test_the_end_of_input_ends_the_process(in_python: Callable[..., str]) -> None:
    code = """
import subprocess
child = "from doubles.as_windows import pretend; pretend(); import threading; from yarrow.platform import system; "
child += "system.exit_at_stdin_end(); print('on', flush=True); threading.Event().wait()"
process = subprocess.Popen([sys.executable, "-c", child], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
print(process.stdout.readline())
process.stdin.close()
print(process.wait(30))
"""
    assert in_python(AS_WINDOWS + code) == "b'on\\n'\n1\n"


def test_pending_console_keys_are_discarded(in_python: Callable[..., str]) -> None:
    code = """
import msvcrt
keys = list("abc")
msvcrt.kbhit, msvcrt.getwch = lambda: bool(keys), keys.pop
system.flush_input(0)
print(keys, system.is_in_background(0), system.is_peer_closed(1), system.can_detect_peer_close(1))
"""
    assert in_python(AS_WINDOWS + code) == "[] False False False\n"
