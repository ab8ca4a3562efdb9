"""The tools `grep` and `find` while symlinks are swapped in: nothing behind one is ever shown."""

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from tool_calls import call

from yarrow.tool.gitignore_walk import WalkEntry, walk

HIT = (
    '{{"type":"begin","data":{{"path":{{"text":"{path}"}}}}}}\n'
    '{{"type":"match","data":{{"path":{{"text":"{path}"}},"lines":{{"text":"{line}\\n"}},"line_number":1}}}}\n'
    '{{"type":"end","data":{{"path":{{"text":"{path}"}}}}}}\n'
)


@pytest.fixture
def outside(ws: Path) -> Path:
    """A directory beside the workspace, with a secret."""
    path = ws.parent / "outside"
    path.mkdir()
    (path / "f").write_text("needle stolen-9b1f\n")
    (path / "stolen").touch()
    return path


def saying(ws: Path, monkeypatch: pytest.MonkeyPatch, output: str) -> None:
    """Put a ripgrep first that prints this, as one does that followed a link which is gone again."""
    program = ws.parent / "bin/rg"
    program.parent.mkdir()
    (ws.parent / "output").write_text(output)
    program.write_text(f"#!/bin/sh\ncat {ws.parent}/output\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)


async def test_ripgrep_hits_behind_a_symlink_are_not_shown(
    ws: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ws / "d").mkdir()
    (ws / "d/f").write_text("a needle of mine\n")
    (ws / "link").symlink_to(outside)
    (ws / "e").symlink_to(outside / "f")
    (ws / ".env").write_text("needle stolen-9b1f\n")
    (ws / "env").symlink_to(".env")
    said = "".join(HIT.format(path=path, line="needle stolen-9b1f") for path in ("d/f", "e", "env", "link/f", "gone"))
    saying(ws, monkeypatch, said)
    outcome = await call("grep", ws, {"pattern": "needle"})
    assert outcome.done.text == "d/f:1:a needle of mine\n[.env not searched: may contain secrets]"


async def test_a_concurrently_changed_file_is_searched_again(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (ws / "f").write_text("first\nneedle now\n")
    (ws / "g").write_text("nothing now\n")
    saying(ws, monkeypatch, HIT.format(path="f", line="needle before") + HIT.format(path="g", line="needle before"))
    assert (await call("grep", ws, {"pattern": "needle"})).done.text == "f:2:needle now"


@pytest.mark.parametrize("said", ["./d/stolen", "./link/stolen", "./stolen"])
async def test_names_behind_a_symlink_are_not_shown(
    ws: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    (ws / "d").mkdir()
    (ws / "d/mine").touch()
    (ws / "link").symlink_to(outside)
    saying(ws, monkeypatch, f"{said}\0./d/mine\0")
    assert (await call("find", ws, {"pattern": "*"})).done.text == "d/mine"


async def test_ripgrep_runs_in_the_checked_directory(ws: Path, outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (ws / "d").mkdir()
    program = ws.parent / "bin/rg"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\npwd -P > {ws.parent}/where\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)

    def swap(_directory: Path) -> bool:
        (ws / "d").rename(ws / "aside")
        (ws / "d").symlink_to(outside)
        return False

    monkeypatch.setattr("yarrow.tool.ripgrep.has_unusable_ignore_file", swap)
    await call("find", ws, {"pattern": "*", "path": "d"})
    # A link was there when it began, so ripgrep did not begin at all.
    assert not (ws.parent / "where").exists()


def test_a_walk_does_not_enter_a_directory_replaced_by_a_symlink(ws: Path, outside: Path) -> None:
    (ws / "d").mkdir()
    (ws / "d/mine").touch()
    entries = walk(ws, Event())
    assert next(entries) == WalkEntry("d", is_dir=True)
    (ws / "d").rename(ws.parent / "aside")
    (ws / "d").symlink_to(outside)
    assert list(entries) == []


async def test_the_builtin_search_does_not_read_a_file_replaced_by_a_symlink(
    ws: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (ws / "d").mkdir()
    (ws / "d/f").write_text("needle\n")

    def swapped(root: Path, stop: Event) -> Iterator[WalkEntry]:
        for entry in walk(root, stop):
            if entry.path == "d/f":
                (ws / "d").rename(ws.parent / "aside")
                (ws / "d").symlink_to(outside)
            yield entry

    monkeypatch.setattr("yarrow.tool.python_search.walk", swapped)
    monkeypatch.setattr("yarrow.tool.grep.find_ripgrep", lambda _workspace: None)
    assert (await call("grep", ws, {"pattern": "needle"})).done.text == "No matches for 'needle'."
