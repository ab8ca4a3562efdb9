"""Every system has the operations and constants of `Platform` with its arguments, and names nothing that it lacks."""

import ast
from pathlib import Path

import pytest

from doubles.unix_names import MODULES, NAMES
from yarrow import platform
from yarrow.platform.base import Platform, SystemConstants

FOLDER = Path(platform.__file__).parent
NOT_ON_MACOS = frozenset(
    {"pidfd_open", "pipe2", "fdatasync", "listxattr", "getxattr", "setxattr", "epoll", "O_PATH", "O_TMPFILE"}
)


def tree_of(name: str) -> ast.Module:
    return ast.parse((FOLDER / f"{name}.py").read_text("utf-8"))


TREES = [tree_of(path.stem) for path in FOLDER.glob("*.py")]
CLASSES = {node.name: node for tree in TREES for node in tree.body if isinstance(node, ast.ClassDef)}
"""By name, also those of systems that this one is not."""


def bodies(name: str) -> list[ast.stmt]:
    """Names that a system defines besides those it inherits, without the contract."""
    above = [found for base in CLASSES[name].bases if (found := ast.unparse(base)) in CLASSES.keys() - {"Platform"}]
    return [*(node for one in above for node in bodies(one)), *CLASSES[name].body]


def functions(name: str) -> dict[str, str]:
    """Operations of a system, by name, with the arguments."""
    nodes = [node for node in bodies(name) if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")]
    return {node.name: ast.unparse(node.args).replace("'", "") for node in nodes}


def exported(name: str) -> list[str]:
    assigned = [target for node in bodies(name) if isinstance(node, ast.Assign) for target in node.targets]
    return sorted({*functions(name), *map(ast.unparse, assigned)})


def test_all_systems_have_the_same_operations() -> None:
    declared = sorted({*Platform.__abstractmethods__, *SystemConstants.__annotations__})
    assert exported("Linux") == exported("MacOS") == exported("Windows") == declared


@pytest.mark.parametrize("system", ["MacOS", "Windows", "Platform"])
def test_all_systems_accept_the_same_arguments(system: str) -> None:
    linux, other = functions("Linux"), functions(system)
    assert other == linux
    assert len(linux) > 30


@pytest.mark.parametrize("name", ["Platform", "SystemConstants"])
def test_the_contract_documents_each_operation(name: str) -> None:
    """The systems themselves say only what is special there."""
    body = CLASSES[name].body
    assert [one.name for one in body if isinstance(one, ast.FunctionDef) and not ast.get_docstring(one)] == []
    texts = [one for one in body if isinstance(one, ast.Expr)]
    assert len(texts) == 1 + len([one for one in body if isinstance(one, ast.AnnAssign)])


@pytest.mark.parametrize("path", sorted(FOLDER.glob("windows*.py")), ids=lambda path: path.stem)
def test_windows_names_nothing_of_unix(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in NAMES:
            assert not NAMES[node.value.id].fullmatch(node.attr), node.attr
        assert not (isinstance(node, ast.Import) and MODULES & {one.name for one in node.names})


@pytest.mark.parametrize("name", ["macos", "posix"])
def test_macos_names_nothing_of_linux(name: str) -> None:
    named = {node.attr for node in ast.walk(tree_of(name)) if isinstance(node, ast.Attribute)}
    assert not named & NOT_ON_MACOS
    assert "/proc" not in (FOLDER / f"{name}.py").read_text("utf-8")


def test_the_running_system_is_linux() -> None:
    assert type(platform.system).__module__ == "yarrow.platform.linux"
    assert sorted(set(exported("Linux")) - set(dir(platform.system))) == []
