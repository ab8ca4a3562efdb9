"""A class name means one thing in the tree, and the map of the architecture names modules that exist."""

import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/yarrow"


def test_each_public_class_has_a_name_of_its_own() -> None:
    places = defaultdict[str, list[str]](list)
    for path in SOURCE.rglob("*.py"):
        if "v1" not in path.relative_to(SOURCE).parts:
            for node in ast.parse(path.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(str(path.relative_to(SOURCE)))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_the_architecture_names_modules_that_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text("utf-8")
    known = {
        path.relative_to(ROOT) for part in ("src", "tests", "examples", "bench") for path in (ROOT / part).rglob("*.py")
    }
    named = set(re.findall(r"[\w/]+\.py\b", text))
    assert len(named) > 50
    missing = {name for name in named if not any(f"/{path}".endswith(f"/{name}") for path in known)}
    assert missing == set()
