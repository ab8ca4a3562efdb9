"""Budgets that fail the build: sizes of files and functions, methods of a seam."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from yarrow.tool.builtin import NAMES

ROOT = Path(__file__).parents[2]
SOURCES = sorted(path for path in (ROOT / "src/yarrow").rglob("*.py") if "v1" not in path.parts)
MAX_FILE, MAX_LOOP, MAX_FUNCTION, MAX_PROTOCOL = 450, 200, 40, 3
MIN_FILE = 40
TABLES = {"failure_tables.py"}
"""Pure tables of data."""
STARTED = {"_version.py", "__main__.py", "entry_point.py"}
"""Modules that the build and the interpreter name."""


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def is_property(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and any(
        isinstance(d, ast.Name) and d.id == "property" for d in node.decorator_list
    )


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_stay_within_their_budgets(path: Path) -> None:
    text = path.read_text("utf-8")
    limit = MAX_LOOP if path.name == "loop.py" else MAX_FILE
    assert path.name in TABLES or len(text.splitlines()) <= limit
    for function in functions(ast.parse(text)):
        assert (function.end_lineno or 0) - function.lineno < MAX_FUNCTION, f"{function.name} is too long"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_have_docstrings(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text("utf-8"))) or path.name == "_version.py"


def test_interfaces_have_few_methods() -> None:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            bases = [base.id for base in getattr(node, "bases", []) if isinstance(base, ast.Name)]
            if isinstance(node, ast.ClassDef) and "Protocol" in bases:
                methods = [one for one in functions(node) if not is_property(one)]
                assert len(methods) <= MAX_PROTOCOL, f"{path.name}: {node.name}"


def imported_modules(tree: ast.AST) -> set[str]:
    """The names that a module imports, each also with the name of what is taken from it."""
    names = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def test_a_small_module_has_two_importers() -> None:
    importers = Counter(name for path in SOURCES for name in imported_modules(ast.parse(path.read_text("utf-8"))))
    small = [path for path in SOURCES if len(path.read_text("utf-8").splitlines()) < MIN_FILE]
    tools = {f"yarrow.tool.{name}" for name in NAMES}  # a tool is a concept of its own
    for path in small:
        name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        is_alone = path.name in STARTED | {"__init__.py"} or name in tools
        assert is_alone or importers[name] >= 2, f"merge {name} with what imports it"
