"""The tool `write`: atomic, and the same file as before."""

import asyncio
import os
import stat
import subprocess
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tool_calls import call, context_of, names_in

from yarrow.errors import ConfigError
from yarrow.tool.base import Done
from yarrow.tool.file_content import DecodedText, decode_text


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_a_file_is_created_with_its_parents(ws: Path) -> None:
    done = (await call("write", ws, {"path": "a/b/c.txt", "content": "one\r\ntwo"})).done
    assert done.text == "Created a/b/c.txt (+2 -0)."
    assert done.diff == "--- /dev/null\n+++ b/a/b/c.txt\n@@ -0,0 +1,2 @@\n+one\r\n+two\n\\ No newline at end of file\n"
    assert (ws / "a/b/c.txt").read_bytes() == b"one\r\ntwo"
    assert names_in(ws / "a/b") == ["c.txt"]


async def test_a_new_file_gets_its_mode_from_the_umask(ws: Path) -> None:
    before = os.umask(0o027)
    try:
        await call("write", ws, {"path": "a", "content": "x"})
    finally:
        os.umask(before)
    assert mode(ws / "a") == 0o640


async def test_a_file_is_replaced(ws: Path) -> None:
    (ws / "a").write_text("one\ntwo\n")
    done = (await call("write", ws, {"path": "a", "content": "one\n2\n"})).done
    assert done == Done(
        "Replaced a, which had 8 bytes, (+1 -1).", "--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n one\n-two\n+2\n"
    )
    assert (ws / "a").read_text() == "one\n2\n"


@pytest.mark.parametrize("path", ["made/", "made/.", "a/made//", "old/"])
async def test_a_path_with_a_trailing_slash_is_not_written(ws: Path, path: str) -> None:
    (ws / "old").write_text("x")
    for dry_run in (True, False):
        failed = (await call("write", ws, {"path": path, "content": "x\n"}, dry_run=dry_run)).failed
        assert f"{path} is a directory path. Use the path of a file." in failed.text
    assert names_in(ws) == ["old"]


async def test_empty_content_is_allowed(ws: Path) -> None:
    (ws / "a").write_text("one\n")
    assert (
        await call("write", ws, {"path": "a", "content": ""})
    ).done.text == "Replaced a, which had 4 bytes, (+0 -1)."
    assert (ws / "a").read_bytes() == b""
    assert (await call("write", ws, {"path": "b", "content": ""})).done.text == "Created b (+0 -0)."
    assert (ws / "b").read_bytes() == b""


async def test_the_same_content_is_not_written(ws: Path) -> None:
    (ws / "a").write_text("one\n")
    before = (ws / "a").stat()
    assert "already has exactly this content" in (await call("write", ws, {"path": "a", "content": "one\n"})).done.text
    assert (ws / "a").stat() == before


async def test_case_T_02_a_byte_order_mark_survives_overwriting(ws: Path) -> None:
    (ws / "a").write_bytes(b"\xef\xbb\xbfhello\n\xe4\xb8\xad\n")
    done = (await call("write", ws, {"path": "a", "content": "hello2\n中\n"})).done
    assert (ws / "a").read_bytes() == b"\xef\xbb\xbfhello2\n\xe4\xb8\xad\n"
    assert "\ufeff" not in done.diff


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
async def test_a_utf_16_file_stays_utf_16(ws: Path, encoding: str) -> None:
    (ws / "f").write_bytes("\ufeffone\n".encode(encoding))
    outcome = await call("write", ws, {"path": "f", "content": "two é\n"})
    assert (ws / "f").read_bytes() == "\ufefftwo é\n".encode(encoding)
    assert "-one\n+two é\n" in outcome.done.diff


@pytest.mark.parametrize("bits", [0o755, 0o600, 0o444 | stat.S_IWUSR])
async def test_case_T_05_the_mode_is_kept(ws: Path, bits: int) -> None:
    (ws / "a").write_text("one\n")
    (ws / "a").chmod(bits)
    await call("write", ws, {"path": "a", "content": "two\n"})
    assert mode(ws / "a") == bits
    assert names_in(ws) == ["a"]


async def test_case_T_05_the_file_is_replaced_atomically(ws: Path) -> None:
    old, new = "o" * 300_000, "n" * 300_000
    (ws / "a").write_text(old)
    seen: set[str] = set()
    over = threading.Event()

    def look() -> None:
        while not over.is_set():
            seen.add((ws / "a").read_text())

    watcher = threading.Thread(target=look)
    watcher.start()
    for content in (new, old) * 20:
        assert (await call("write", ws, {"path": "a", "content": content})).done
    over.set()
    watcher.join()
    assert seen <= {old, new}


async def test_case_T_06_a_symlink_stays_a_symlink(ws: Path) -> None:
    (ws / "conf.d").mkdir()
    (ws / "conf.d/real").write_text("one\n")
    (ws / "conf").symlink_to("conf.d/real")
    (ws / "absolute").symlink_to(ws / "conf")
    for name in ("conf", "absolute"):
        await call("write", ws, {"path": name, "content": f"{name}\n"})
        assert (ws / name).is_symlink()
        assert (ws / "conf.d/real").read_text() == f"{name}\n"
    (ws / "new").symlink_to("conf.d/made")
    await call("write", ws, {"path": "new", "content": "made\n"})
    assert (ws / "conf.d/made").read_text() == "made\n"


async def test_a_hard_linked_file_is_written_in_place(ws: Path) -> None:
    (ws / "a").write_text("a longer text\n")
    os.link(ws / "a", ws / "b")
    before = (ws / "a").stat().st_ino
    await call("write", ws, {"path": "a", "content": "short\n"})
    assert (ws / "b").read_text() == "short\n"
    assert (ws / "a").stat().st_ino == before


async def test_owner_and_attributes_are_kept(ws: Path) -> None:
    (ws / "a").write_text("one\n")
    if os.getuid() == 0:
        os.chown(ws / "a", 1234, 4321)
    os.setxattr(ws / "a", "user.origin", b"here")
    before = (ws / "a").stat()
    await call("write", ws, {"path": "a", "content": "two\n"})
    after = (ws / "a").stat()
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    assert os.getxattr(ws / "a", "user.origin") == b"here"


async def test_a_file_with_another_owner_is_written_in_place(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (ws / "a").write_text("a longer text\n")
    before = (ws / "a").stat()
    real_fstat = os.fstat

    def foreign(descriptor: int) -> os.stat_result:
        status = real_fstat(descriptor)
        fields = list(status)
        fields[4] += 1  # the created file seems to belong to another user
        return os.stat_result(fields, {"st_mtime_ns": status.st_mtime_ns})

    def refuses(*_arguments: object) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "fstat", foreign)
    monkeypatch.setattr(os, "fchown", refuses)
    assert (await call("write", ws, {"path": "a", "content": "two\n"})).done
    monkeypatch.undo()
    assert (ws / "a").read_text() == "two\n"
    assert (ws / "a").stat().st_ino == before.st_ino
    assert names_in(ws) == ["a"]


@pytest.mark.parametrize("broken", ["fsync", "fchmod", "replace"])
async def test_a_disk_error_leaves_only_the_original_file(
    ws: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    (ws / "a").write_text("one\n")

    def refuses(*_arguments: object, **_more: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, broken, refuses)
    failed = (await call("write", ws, {"path": "a", "content": "two\n"})).failed
    assert failed.text == "a: No space left on device."
    assert (ws / "a").read_text() == "one\n"
    assert names_in(ws) == ["a"]


@pytest.mark.parametrize("dry_run", [False, True])
async def test_an_unwritable_file_is_reported_in_a_dry_run_too(
    ws: Path, monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    (ws / "d").mkdir()
    (ws / "f").write_text("x")
    (ws / "fixed").write_text("x")
    os.mkfifo(ws / "pipe")
    real_access = os.access
    monkeypatch.setattr(os, "access", lambda path, how, **at: path != "fixed" and real_access(path, how, **at))
    for path, said in {
        "d": "is a directory",
        "f/x/y": "is a file, not a directory",
        "pipe": "not a regular file",
        "fixed": "read-only",
        "../x": "outside the workspace",
        ".git/hooks/x": "executes its contents",
        ".env": "secrets",
        "a\0b": "is not a valid path",
    }.items():
        assert said in (await call("write", ws, {"path": path, "content": "y"}, dry_run=dry_run)).failed.text
    assert (ws / "fixed").read_text() == "x"


@pytest.mark.parametrize("dry_run", [False, True])
async def test_a_too_large_file_is_rejected_with_a_hint_to_the_shell(
    ws: Path, monkeypatch: pytest.MonkeyPatch, dry_run: bool
) -> None:
    (ws / "a").write_text("12345")
    monkeypatch.setattr("yarrow.tool.atomic_file_change.MAX_CHANGED_BYTES", 4)
    edits = [{"old": "1", "new": "2"}]
    for name, arguments in {"write": {"content": ""}, "edit": {"edits": edits}}.items():
        assert "Use bash." in (await call(name, ws, {"path": "a", **arguments}, dry_run=dry_run)).failed.text
    assert (ws / "a").read_text() == "12345"


@pytest.mark.parametrize("dry_run", [False, True])
async def test_an_unreadable_file_is_not_written(ws: Path, monkeypatch: pytest.MonkeyPatch, dry_run: bool) -> None:
    (ws / "a").write_text("12345")

    real_open = os.open

    def refuses(path: str, *arguments: Any, **more: Any) -> int:
        if path == "a":
            raise PermissionError(13, "Permission denied")
        return real_open(path, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuses)
        assert "a: Permission denied." in (await call("write", ws, {"path": "a", "content": ""}, dry_run=dry_run)).text
    assert (ws / "a").read_text() == "12345"


async def test_case_X_02_writing_through_a_symlink_out_of_the_workspace(ws: Path) -> None:
    outside = ws.parent / "outside"
    outside.mkdir()
    (outside / "e").write_text("old\n")
    (ws / "outbox").symlink_to(outside)
    for name, arguments in {
        "write": {"path": "outbox/a", "content": "x"},
        "edit": {"path": "outbox/e", "edits": [{"old": "old", "new": "new"}]},
    }.items():
        assert "workspace.extra" in (await call(name, ws, arguments)).failed.text
        readable = context_of(ws, read=[str(outside)])
        assert "workspace.extra" in (await call(name, readable, arguments)).failed.text
    assert (outside / "e").read_text() == "old\n"
    assert names_in(outside) == ["e"]
    extra = context_of(ws, extra=[str(outside)])
    assert (await call("write", extra, {"path": "outbox/a", "content": "x"})).done
    assert (outside / "a").read_text() == "x"


async def test_a_cancellation_before_the_write_keeps_the_file(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (ws / "a").write_text("old")
    looking, go_on = threading.Event(), threading.Event()

    def slowly(data: bytes) -> DecodedText:
        looking.set()
        go_on.wait()
        return decode_text(data)

    monkeypatch.setattr("yarrow.tool.write.decode_text", slowly)
    task = asyncio.create_task(call("write", ws, {"path": "a", "content": "new"}))
    await asyncio.to_thread(looking.wait)
    task.cancel()
    asyncio.get_running_loop().call_later(0.05, go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert go_on.is_set(), "the call went before its thread did"
    assert (ws / "a").read_text() == "old"


async def test_a_diff_applies(ws: Path) -> None:
    old = "".join(f"line {n}\n" for n in range(100))
    new = old.replace("line 3\n", "").replace("line 50\n", "fifty\nand more\n") + "no end"
    (ws / "a").write_text(old)
    diff = (await call("write", ws, {"path": "a", "content": new})).done.diff
    (ws / "a").write_text(old)
    patch = partial(subprocess.run, ["patch", "-p1"], input=diff, cwd=ws, text=True, check=True, capture_output=True)
    await asyncio.to_thread(patch)
    assert (ws / "a").read_text() == new


async def test_a_huge_change_has_a_bounded_diff_in_bounded_time(ws: Path) -> None:
    (ws / "a").write_text("".join(f"old {n % 977}\n" for n in range(200_000)))
    done = (await call("write", ws, {"path": "a", "content": "".join(f"new {n % 977}\n" for n in range(200_000))})).done
    assert done.text == "Replaced a, which had 1,577,450 bytes, (+200000 -200000)."
    assert "[diff truncated: " in done.diff


@pytest.mark.parametrize("path", ["", ".", "a/..", "{ws}"])
async def test_the_workspace_itself_cannot_be_written_or_edited(ws: Path, path: str) -> None:
    path = path.format(ws=ws)
    assert "directory" in (await call("write", ws, {"path": path, "content": "x"})).failed.text
    edit = {"path": path, "edits": [{"old": "x", "new": "y"}]}
    assert "directory" in (await call("edit", ws, edit)).failed.text
    assert names_in(ws) == []


async def test_case_RB_02_a_file_is_not_an_extra_directory(ws: Path) -> None:
    (ws.parent / "notes.txt").write_text("one\n")
    with pytest.raises(ConfigError, match=r"notes\.txt' is not a directory"):
        context_of(ws, extra=["../notes.txt"])
    assert (ws.parent / "notes.txt").read_text() == "one\n"
