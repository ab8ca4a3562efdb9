"""Makes this process look like Windows to modules of Yarrow that are imported from now on.

The modules of Python that Yarrow sees are copies without Unix-only names; Python itself and the libraries keep the
real ones. The few calls that only Windows has are emulated on Linux: paths still have slashes.
"""

import contextlib
import errno
import fcntl
import importlib
import os
import pkgutil
import select
import signal
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from doubles.unix_names import MODULES, MODULES_OF_OTHERS, NAMES

GENERATED = ("yarrow.v1",)
"""Is not imported a second time: protocol buffers know each message once."""


def module_names() -> list[str]:
    """All modules of Yarrow."""
    import yarrow

    return ["yarrow", *(found.name for found in pkgutil.walk_packages(yarrow.__path__, "yarrow."))]


def pretend() -> list[str]:
    """Begin; return the modules of Yarrow that there are to import."""
    names = module_names()
    for name in names:  # so that Python and the libraries have what they import themselves
        with contextlib.suppress(ImportError):  # another system's
            importlib.import_module(name)
    for name in [name for name in sys.modules if name.split(".")[0] == "yarrow" and not name.startswith(GENERATED)]:
        del sys.modules[name]
    for name in MODULES | MODULES_OF_OTHERS:
        sys.modules[name] = None  # pyright: ignore[reportArgumentType] (that is how an import is made to fail)
    for name in NAMES:
        sys.modules[name] = _lessened(name)
    sys.modules["os"].__dict__.update(
        {
            "O_BINARY": 0,
            "O_NOINHERIT": os.O_CLOEXEC,
            "name": "nt",
            "lstat": _lstat,
            "scandir": _scandir,
            "fsync": _fsync,
        }
    )
    sys.modules["signal"].__dict__.update({"SIGBREAK": signal.SIGUSR1, "set_wakeup_fd": _set_wakeup_fd})
    sys.modules["sys"] = _copy(sys, platform="win32")
    keys = {"kbhit": lambda: bool(select.select([0], [], [], 0)[0]), "getwch": lambda: os.read(0, 1).decode()}
    sys.modules["msvcrt"] = _module("msvcrt", locking=_locking, LK_NBLCK=2, get_osfhandle=int, **keys)
    sys.modules["_winapi"] = _module("_winapi", PeekNamedPipe=_peek)
    sys.modules["yarrow.platform.windows_api"] = _module(
        "yarrow.platform.windows_api",
        open_directory=_open_directory,
        path_of=_path_of,
        Job=Job,
        speak_utf8=lambda: None,
    )
    return names


def _module(name: str, /, **content: object) -> ModuleType:
    made = ModuleType(name)
    made.__dict__.update(content)
    return made


def _copy(module: ModuleType, /, **other: object) -> ModuleType:
    return _module(module.__name__, **{**module.__dict__, **other})


def _lessened(name: str) -> ModuleType:
    copy = _copy(importlib.import_module(name))
    for each in [each for each in copy.__dict__ if NAMES[name].fullmatch(each)]:
        del copy.__dict__[each]
    return copy


class _Status(SimpleNamespace):
    """Additional file attributes of Windows."""

    st_reparse_tag: int


def _lstat(path: str) -> _Status:
    found = os.lstat(path)
    tag = 0xA000_000C if stat.S_ISLNK(found.st_mode) else 0
    return _Status(st_reparse_tag=tag, **{name: getattr(found, name) for name in dir(found) if name.startswith("st_")})


def _scandir(path: str) -> Any:
    assert not isinstance(path, int), "a directory is read by its path there"
    return os.scandir(path)


def _fsync(descriptor: int) -> None:
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        raise OSError(errno.EBADF, "no directory is flushed there")
    os.fsync(descriptor)


def _set_wakeup_fd(descriptor: int, *, warn_on_full_buffer: bool = True) -> int:
    if descriptor >= 0:
        os.set_blocking(descriptor, False)  # where no pipe exists, nor needs to
    return signal.set_wakeup_fd(descriptor, warn_on_full_buffer=warn_on_full_buffer)


def _open_directory(path: str) -> int:
    return os.open(path, os.O_RDONLY)


def _path_of(descriptor: int) -> str:
    return str(Path(f"/proc/self/fd/{descriptor}").readlink())


def _locking(descriptor: int, mode: int, count: int) -> None:
    assert (mode, count) == (2, 1)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise PermissionError(errno.EACCES, "locked") from error


def _peek(handle: int, size: int) -> tuple[int, int]:
    assert size == 0
    if not stat.S_ISFIFO(os.fstat(handle).st_mode):
        raise OSError(errno.EINVAL, "it is no pipe")
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    events = dict(poll.poll(0)).get(handle, 0)
    if events & select.POLLHUP and not events & select.POLLIN:
        raise BrokenPipeError
    return int(bool(events & select.POLLIN)), 0


class Job:
    """A process group in its place."""

    def __init__(self, leader: int) -> None:
        self._leader = leader
        self._signal(0)

    def alive(self) -> list[int]:
        """Return the leader while any process of the group exists."""
        try:
            self._signal(0)
        except OSError:
            return []
        return [self._leader]

    def end(self) -> None:
        """Kill the group."""
        with contextlib.suppress(OSError):
            self._signal(signal.SIGKILL)

    def _signal(self, number: int) -> None:
        send: Callable[[int, int], None] = os.killpg
        send(self._leader, number)


def main() -> int:
    """Run the command line of Yarrow so; `PRETENDED_BASH` says where bash is, if there is one."""
    pretend()
    system: Any = importlib.import_module("yarrow.platform").system
    if bash := os.environ.get("PRETENDED_BASH"):
        system.find_shell = lambda _environment: bash  # pyright: ignore[reportUnknownLambdaType]
    command: Any = importlib.import_module("yarrow.cli.main")
    return command.main(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
