"""`write` and `edit` when the disk fails, or when another program writes to the file at the same moment."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tool_calls import call, names_in

from yarrow.platform import system
from yarrow.tool.diff import make_unified_diff

OLD = b"line\n" * 3_000 + b"needle\n"


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The disk takes no byte beyond `size` of any file."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def linked(ws: Path) -> Path:
    """A file that is written in place, since it has two names."""
    (ws / "f").write_bytes(OLD)
    os.link(ws / "f", ws / "g")
    return ws / "f"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("write", {"content": "new\n" * 9_000}),
        ("edit", {"edits": [{"old": "needle", "new": "x" * 9_000}]}),
        ("edit", {"edits": [{"old": "line", "new": "longer", "all": True}]}),
    ],
)
async def test_law_4_a_full_disk_keeps_a_file_written_in_place(ws: Path, name: str, arguments: dict[str, Any]) -> None:
    path = linked(ws)
    with files_of_at_most(len(OLD) + 1_000):
        failed = (await call(name, ws, {"path": "f", **arguments})).failed
    assert failed.text == "f: File too large."
    assert path.read_bytes() == OLD
    assert (ws / "g").samefile(path)


async def test_law_4_a_failure_at_the_end_is_rolled_back(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = linked(ws)

    def refuses(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(system, "sync", refuses)
    for content in ("shorter", "longer\n" * 9_000):
        failed = (await call("write", ws, {"path": "f", "content": content})).failed
        assert failed.text == "f: No space left on device."
        assert path.read_bytes() == OLD


def by_somebody_else(monkeypatch: pytest.MonkeyPatch, tool: str, change: Any) -> None:
    """Make a change after the tool has read its file and before it writes."""

    def diff(*arguments: Any) -> str:
        change()
        return make_unified_diff(*arguments)

    monkeypatch.setattr(f"yarrow.tool.{tool}.make_unified_diff", diff)


@pytest.mark.parametrize("how", ["appended", "replaced", "linked"])
@pytest.mark.parametrize(
    ("tool", "arguments"), [("write", {"content": "mine\n"}), ("edit", {"edits": [{"old": "one", "new": "two"}]})]
)
async def test_concurrent_changes_are_kept(
    ws: Path, monkeypatch: pytest.MonkeyPatch, tool: str, arguments: dict[str, Any], how: str
) -> None:
    path = ws / "f"
    path.write_bytes(b"one\n")
    if how == "linked":
        os.link(path, ws / "g")

    def change() -> None:
        if how == "replaced":
            (ws / "other").write_bytes(b"one\ntheirs\n")
            (ws / "other").replace(path)
        else:
            with path.open("ab") as file:
                file.write(b"theirs\n")

    by_somebody_else(monkeypatch, tool, change)
    failed = (await call(tool, ws, {"path": "f", **arguments})).failed
    assert failed.text == "f was not changed: another program changed it at the same time. Read it again."
    assert path.read_bytes() == b"one\ntheirs\n"
    assert names_in(ws) == (["f", "g"] if how == "linked" else ["f"])


async def test_concurrently_created_files_are_kept(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    by_somebody_else(monkeypatch, "write", lambda: (ws / "f").write_bytes(b"theirs\n"))
    failed = (await call("write", ws, {"path": "f", "content": "mine\n"})).failed
    assert "another program changed it" in failed.text
    assert (ws / "f").read_bytes() == b"theirs\n"


async def test_a_concurrently_deleted_file_is_not_recreated(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (ws / "f").write_bytes(b"one\n")
    by_somebody_else(monkeypatch, "edit", (ws / "f").unlink)
    failed = (await call("edit", ws, {"path": "f", "edits": [{"old": "one", "new": "two"}]})).failed
    assert "another program changed it" in failed.text
    assert names_in(ws) == []
