"""No module outside `yarrow.platform` names attributes that some systems lack, or asks for the system."""

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from doubles.unix_names import ANYWHERE, ARGUMENTS, MODULES, MODULES_OF_OTHERS, NAMES

ROOT = Path(__file__).parents[2] / "src/yarrow"
SOURCES = sorted(path for path in ROOT.rglob("*.py") if not {"v1", "platform"} & set(path.relative_to(ROOT).parts[:1]))
EXCUSED = {
    # The sandbox of Linux; no other system starts it.
    "policy/sandbox/quarantine.py": {"src_dir_fd"},
    "policy/deep_tree_operations.py": {"src_dir_fd", "dst_dir_fd", "dir_fd"},
    "policy/sandbox/session_home.py": {"st_blocks"},
    "policy/sandbox/sandbox_spec.py": {"chown"},
    # The terminal UI, which `cli/service_commands.py` does not start on Windows.
    "client/tui/keyboard.py": {"prompt_toolkit.input.vt100", "getsid", "SIGCONT", "SIGTSTP"},
    "client/tui/terminal_modes.py": {"termios"},
}


def named(tree: ast.AST) -> Iterator[str]:
    """Platform-specific names in a module."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (one.name for one in names if one.name in MODULES | MODULES_OF_OTHERS)
            case ast.ImportFrom(module=str(module), names=names):
                if module in MODULES | MODULES_OF_OTHERS:
                    yield module
                yield from (one.name for one in names if module in NAMES and NAMES[module].fullmatch(one.name))
            case ast.Attribute(value=ast.Name(id=module), attr=name) if module in NAMES or module == "sys":
                if (module, name) in {("os", "name"), ("sys", "platform")}:
                    yield f"{module}.{name}"
                elif module in NAMES and NAMES[module].fullmatch(name):
                    yield name
            case ast.Attribute(attr=name) if name in ANYWHERE:
                yield name
            case ast.keyword(arg=str(name)) if name in ARGUMENTS:
                yield name
            case _:
                pass


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_names_a_platform_specific_attribute(path: Path) -> None:
    found = set(named(ast.parse(path.read_text("utf-8"))))
    assert found == EXCUSED.get(str(path.relative_to(ROOT)), set())


@pytest.mark.parametrize(
    "code",
    [
        "import fcntl",
        "from termios import tcflush",
        "import os\nos.geteuid()",
        "from os import O_NOFOLLOW",
        "os.open('a', os.O_RDONLY | os.O_CLOEXEC)",
        "signal.SIGHUP",
        "socket.AF_UNIX",
        "select.poll()",
        "loop.add_reader(0, print)",
        "os.stat('a', dir_fd=3)",
        "sys.platform == 'linux'",
        "os.name",
    ],
)
def test_a_platform_specific_name_is_detected(code: str) -> None:
    assert list(named(ast.parse(code)))


@pytest.mark.parametrize("code", ["os.O_RDONLY | os.O_BINARY", "signal.SIGINT", "select.select", "os.path", "sys.argv"])
def test_other_names_are_not_detected(code: str) -> None:
    assert not list(named(ast.parse(code)))


def test_the_table_matches_this_python() -> None:
    """Most of the table must exist on this system, or it names attributes that are useless."""
    for module, pattern in NAMES.items():
        here = [name for name in dir(importlib.import_module(module)) if pattern.fullmatch(name)]
        assert len(here) > 5, module
