"""Every system has the same names with the same arguments, and names nothing that it lacks."""

import ast
from pathlib import Path

import pytest

from doubles.unix_names import MODULES, NAMES
from yarrow import platform

FOLDER = Path(platform.__file__).parent
SYSTEMS = ("linux", "macos", "windows")
NOT_ON_MACOS = frozenset(
    {"pidfd_open", "pipe2", "fdatasync", "listxattr", "getxattr", "setxattr", "epoll", "O_PATH", "O_TMPFILE"}
)


def tree_of(name: str) -> ast.Module:
    return ast.parse((FOLDER / f"{name}.py").read_text("utf-8"))


def exported(name: str) -> list[str]:
    for node in tree_of(name).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    raise AssertionError(name)


def functions(name: str) -> dict[str, str]:
    """What a system can do, by name, with the arguments; also what it takes from another module of the package."""
    found: dict[str, str] = {}
    for node in tree_of(name).body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("yarrow.platform."):
            theirs = functions(str(node.module).rpartition(".")[2])
            found |= {one.name: theirs[one.name] for one in node.names if one.name in theirs}
        elif isinstance(node, ast.FunctionDef):
            found[node.name] = ast.unparse(node.args).replace("'", "")
    return found


def test_all_have_the_same_names() -> None:
    assert exported("linux") == exported("macos") == exported("windows")


@pytest.mark.parametrize("system", ["macos", "windows"])
def test_all_take_the_same_arguments(system: str) -> None:
    names = set(exported("linux"))
    linux, other = functions("linux"), functions(system)
    assert {name: each for name, each in other.items() if name in names} == {
        name: each for name, each in linux.items() if name in names
    }
    assert len(linux.keys() & names) > 30


@pytest.mark.parametrize("path", sorted(FOLDER.glob("windows*.py")), ids=lambda path: path.stem)
def test_windows_names_nothing_of_unix(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in NAMES:
            assert not NAMES[node.value.id].fullmatch(node.attr), node.attr
        assert not (isinstance(node, ast.Import) and MODULES & {one.name for one in node.names})


@pytest.mark.parametrize("name", ["macos", "posix_files", "posix_processes"])
def test_macos_names_nothing_of_linux(name: str) -> None:
    named = {node.attr for node in ast.walk(tree_of(name)) if isinstance(node, ast.Attribute)}
    assert not named & NOT_ON_MACOS
    assert "/proc" not in (FOLDER / f"{name}.py").read_text("utf-8")


def test_this_is_linux() -> None:
    assert platform.system.__name__ == "yarrow.platform.linux"
    assert sorted(set(exported("linux")) - set(dir(platform.system))) == []
