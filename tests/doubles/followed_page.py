"""A page `docs/adding-*.md` that is followed to the letter in a copy of the tree.

A step is a numbered line that begins with the path of a file, and its blocks: `diff` changes that file, `python` is the
whole of it, and the commands of `sh not-run` are run. The lines that a diff keeps and removes are in the file once.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
LEFT_OUT = (".git", ".venv", ".run", ".tools", ".*cache", "__pycache__", "node_modules", "dist", "build", ".coverage*")
ENVIRONMENT = "scripts/environment.sh"
STEP_OR_BLOCK = re.compile(
    r"^\d+\. (?:`(?P<path>[\w./-]+)`)?|^```(?P<kind>[^\n]+)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)


class Block(NamedTuple):
    """A step of the page: a file to create, or a block to run."""

    path: str
    kind: str
    body: str


class Tree:
    """A copy of the tree."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "tree"
        shutil.copytree(ROOT, self.root, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
        _make_environment(self.root)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("COV", "PYTEST"))},
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def follow(self, page: str) -> None:
        """Do what every step of a page says."""
        for path, kind, body in blocks(page):
            match kind:
                case "diff":
                    self._patch(self.root / path, body)
                case "python":
                    assert not (self.root / path).exists()
                    (self.root / path).write_text(body)
                case "sh not-run":
                    self.run(body)
                case _:
                    raise AssertionError(f"a step of a page cannot be {kind!r}")

    def run(self, script: str) -> str:
        """Run commands in the tree; fails unless all succeed."""
        done = subprocess.run(
            ["bash", "-c", f"set -euo pipefail\n{script}"],
            cwd=self.root, env=self.environment, capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def changed(self) -> set[str]:
        """The files that differ from those of the tree, but what tests leave."""
        before, after = _contents(ROOT), _contents(self.root)
        return {path for path in before | after if before.get(path) != after.get(path)} - {ENVIRONMENT}

    def _patch(self, path: Path, diff: str) -> None:
        text = path.read_text()
        for hunk in re.split(r"^@@.*\n", diff, flags=re.MULTILINE):
            lines = hunk.splitlines(keepends=True)
            old = "".join(line[1:] or "\n" for line in lines if line[0] != "+")
            new = "".join(line[1:] or "\n" for line in lines if line[0] != "-")
            assert text.count(old) == 1, f"{path.name} has {text.count(old)} times\n{old}"
            text = text.replace(old, new)
        path.write_text(text)


def read(page: str) -> str:
    """The text of a page."""
    return (ROOT / "docs" / page).read_text()


def blocks(page: str) -> Iterator[Block]:
    """The blocks of the steps of a page, each with the path that its step begins with."""
    path = ""
    for found in STEP_OR_BLOCK.finditer(read(page)):
        if found["kind"]:
            yield Block(path, found["kind"], found["body"])
        else:
            path = found["path"] or ""


def _make_environment(root: Path) -> None:
    """Make a `.venv` with the packages of this one, in which Yarrow is that of the tree."""
    (root / ENVIRONMENT).write_text("exit 0\n")
    venv.create(root / ".venv", symlinks=True)
    own, these = (
        Path(sysconfig.get_path("purelib", vars={"base": str(base)})) for base in (root / ".venv", sys.prefix)
    )
    (own / "tree.pth").write_text(f"{root / 'src'}\nimport site; site.addsitedir({str(these)!r})\n")
    for program in Path(sys.executable).parent.iterdir():
        path = root / ".venv" / "bin" / program.name
        if not path.exists():
            path.symlink_to(program)
    pytest = root / ".venv" / "bin" / "pytest"
    pytest.unlink()
    pytest.write_text(f'#!/bin/sh\nexec {root}/.venv/bin/python -m pytest "$@"\n')
    pytest.chmod(0o755)


def _contents(root: Path) -> dict[str, bytes]:
    found = (root / folder for folder in ("src", "proto", "docs", "tests", "scripts"))
    files = (path for folder in found for path in folder.rglob("*") if path.is_file())
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in files
        if not {"__pycache__", "node_modules"} & {*path.parts}
    }
