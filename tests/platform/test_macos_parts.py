"""Parts specific to macOS, tested on Linux: full sync of the drive's cache, with its fallback."""

from collections.abc import Callable

import pytest

AS_MACOS = """
import sys
sys.platform = "darwin"
import errno, fcntl, os
fcntl.F_FULLFSYNC = 51
from yarrow.platform import system
assert type(system).__module__ == "yarrow.platform.macos"
"""
SYNCED = """
asked = []
def ask(descriptor, command, *more):
    asked.append(command)
    number = {number}
    if number:
        raise OSError(number, os.strerror(number))
fcntl.fcntl = ask
os.fsync = lambda descriptor: asked.append("fsync")
descriptor = os.open("f", os.O_WRONLY | os.O_CREAT)
try:
    system.sync(descriptor, data_only={data_only})
except OSError as error:
    asked.append(error.errno)
print(asked)
"""
OPENED = """
os.makedirs("d/e")
open("d/e/f", "w").write("x")
os.symlink("e", "d/l")
top = system.open_directory(".")
print(os.read(system.openat_nofollow(top, ("d", "e", "f"), os.O_RDONLY), 9))
try:
    system.openat_nofollow(top, ("d", "l", "f"), os.O_RDONLY)
except OSError as error:
    print(error.errno in (errno.ELOOP, errno.ENOTDIR))
try:
    system.open_pidfd(os.getpid())
except OSError as error:
    print(error.errno == errno.ENOSYS)
system.copy_attributes(0, 1)
print(system.create_job(1))
"""


@pytest.mark.parametrize("data_only", [True, False])
@pytest.mark.parametrize(
    ("number", "asked"), [("0", "[51]"), ("errno.ENOTSUP", "[51, 'fsync']"), ("errno.EIO", "[51, 5]")]
)
def test_fsync_flushes_the_drives_cache(
    in_python: Callable[..., str], number: str, asked: str, data_only: bool
) -> None:
    assert in_python(AS_MACOS + SYNCED.format(number=number, data_only=data_only)) == f"{asked}\n"


def test_a_path_is_opened_one_component_at_a_time(in_python: Callable[..., str]) -> None:
    assert in_python(AS_MACOS + OPENED) == "b'x'\nTrue\nTrue\nNone\n"


def test_the_missing_sandbox_is_reported(in_python: Callable[..., str]) -> None:
    code = "from yarrow.policy.sandbox.probe import unavailable_reason\nprint(unavailable_reason())"
    assert "macOS" in in_python(AS_MACOS + code)


def test_the_first_start_reports_it_in_one_sentence(in_python: Callable[..., str]) -> None:
    code = """
from pathlib import Path
from yarrow.policy.sandbox_factory import SandboxFactory
home = Path.cwd()
for level in ("workspace", "workspace", "off", "strict"):
    print(SandboxFactory(level, home=home, journal_dir=home / ".yarrow/sandbox").warning((home / "ws",)))
"""
    assert (
        in_python(AS_MACOS + code)
        == "Yarrow has no sandbox on macOS yet: shell commands run with your permissions\n\n\n\n"
    )


def test_names_compare_as_on_the_usual_file_system(in_python: Callable[..., str]) -> None:
    code = """
from pathlib import Path
from yarrow.policy.workspace import Workspace
from yarrow.policy.refusal import Refused
from yarrow.policy.permission.path_rules import DeniedPaths, PathRules
home = Path.home()
rules = {"read(S\u00e9cret/**)": "deny"}
closed = DeniedPaths(PathRules.make(rules, "read", home))
ws = Workspace((home,), protected=(home / "Own",), denied=closed)
for name in (".SSH/id", "OWN/token", "se\u0301CRET/f", "other"):
    print(name.isascii() and name, isinstance(ws.resolve_read(home / name), Refused))
print(isinstance(ws.resolve_write(home / ".BashRC"), Refused))
"""
    told = ".SSH/id True\nOWN/token True\nFalse True\nother False\nTrue\n"
    assert in_python("import pathlib\n" + AS_MACOS + code, HOME="/tmp") == told
