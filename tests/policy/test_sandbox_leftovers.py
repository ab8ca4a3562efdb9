"""Sandboxes leave no leftovers of a killed service or of a deleted session."""

import os
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from sandboxed import PYTHON, corner

from yarrow.policy.command_execution import Command
from yarrow.policy.sandbox import cleanup_journal, git_baseline, sandboxed_command, session_home
from yarrow.policy.sandbox.absent_path_guard import PathGuard
from yarrow.policy.sandbox.cleanup_journal import JournalEntry, Leftovers
from yarrow.policy.sandbox.git_baseline import Baseline
from yarrow.policy.sandbox.git_directories import PathDigest
from yarrow.policy.sandbox.quarantine import STORE, Quarantine, QuarantineEntry, list_entries
from yarrow.policy.sandbox.sandboxed_command import SandboxedCommand
from yarrow.policy.sandbox_factory import SandboxFactory
from yarrow.policy.workspace import Workspace

pytestmark = pytest.mark.xdist_group("sandbox")

SERVICE = """
import asyncio, sys
from pathlib import Path
from yarrow.policy.command_execution import Command, run
from yarrow.policy.sandbox_factory import SandboxFactory
from yarrow.policy.sandbox.sandboxed_command import SandboxedCommand
from yarrow.policy.sandbox.absent_path_guard import PathGuard
from yarrow.policy.workspace import Workspace

async def main(cwd, notes, script):
    box = SandboxFactory("workspace", home=Path.home(), journal_dir=Path(notes)).create("s", Workspace.make(Path(cwd)))
    boxed = SandboxedCommand(box, Command(("/bin/sh", "-c", script), Path(cwd), {"PATH": "/usr/bin:/bin"}, 60))
    async for piece in run(boxed.command):
        print(piece.decode(), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""
PLANT = "mkdir .yarrow; echo x > .git/commondir; echo x > .git/config.worktree; echo ready; sleep 60"


@contextmanager
def ready(cwd: Path, notes: Path, script: str) -> Generator[None]:
    """Run a script in the sandbox of a service of its own, killed in the end; go on when it says it is ready."""
    service = subprocess.Popen([sys.executable, "-c", SERVICE, str(cwd), str(notes), script], stdout=subprocess.PIPE)
    with service:
        assert service.stdout is not None
        assert service.stdout.readline() == b"ready\n"
        yield
        service.send_signal(signal.SIGKILL)


def killed(cwd: Path, notes: Path, script: str) -> None:
    """Run a script in the sandbox of a service of its own, which is killed when that says it is ready."""
    with ready(cwd, notes, script):
        pass


def boxes(notes: Path) -> SandboxFactory:
    return SandboxFactory("workspace", home=Path.home(), journal_dir=notes)


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    path = Path(os.path.realpath(tmp_path)) / "ws"
    path.mkdir()
    subprocess.run(["git", "init", "-q", str(path)], check=True)
    return path


def test_leftovers_of_a_killed_service_are_quarantined(ws: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    killed(ws, notes, PLANT)
    assert (ws / ".yarrow").is_dir()
    told = boxes(notes).recover()
    assert all(str(ws / name) in told for name in (".yarrow", ".git/commondir", ".git/config.worktree"))
    assert "cleaned up after a command whose service was killed" in told
    assert not any((ws / name).exists() for name in (".yarrow", ".git/commondir", ".git/config.worktree"))
    kept = {entry.path for entry in list_entries(notes / STORE)}
    assert kept == {ws / name for name in (".yarrow", ".git/commondir", ".git/config.worktree")}
    assert [path.name for path in notes.iterdir()] == [STORE]
    assert boxes(notes).recover() == ""


def test_a_repository_created_in_the_workspace_is_removed_after_a_crash(tmp_path: Path) -> None:
    ws = Path(os.path.realpath(tmp_path)) / "plain"
    ws.mkdir()
    killed(ws, tmp_path / "notes", "mkdir objects refs; echo 'ref: x' > HEAD; echo ready; sleep 60")
    assert str(ws / "HEAD") in boxes(tmp_path / "notes").recover()
    assert not (ws / "HEAD").exists()


MAKE = """git init -q made && cd made && git config core.fsmonitor evil && echo x > .git/hooks/pre-commit; cd ..
git init -q --bare bare && git -C bare config core.fsmonitor evil; echo ready; sleep 60"""
"""Repositories that execute something when their status is queried."""
MADE = ("made/.git/config", "made/.git/hooks/pre-commit", "bare/config")


def test_repositories_made_before_a_crash_run_nothing(ws: Path, tmp_path: Path) -> None:
    killed(ws, tmp_path / "notes", MAKE)
    told = boxes(tmp_path / "notes").recover()
    assert all(str(ws / name) in told for name in MADE)
    assert not (ws / "made/.git/hooks/pre-commit").exists()
    assert not any("evil" in (ws / name).read_text() for name in MADE if name.endswith("config"))
    assert (ws / "made/.git/HEAD").exists()


def test_executables_planted_beside_another_service_are_removed(ws: Path, tmp_path: Path) -> None:
    planted = {ws / name for name in (*MADE, ".git/commondir")}
    box = boxes(tmp_path / "notes").create("s", Workspace.make(ws))
    assert box is not None
    with ready(ws, tmp_path / "notes", "echo x > .git/commondir; " + MAKE):
        boxed = SandboxedCommand(box, Command(("true",), ws, {}, 10))
    with closing(boxed):
        told = boxes(tmp_path / "notes").recover()
        assert all(str(path) in told for path in planted)
        for path in planted:
            path.write_text("[core]\nfsmonitor = evil\n")
        assert {entry.path for entry in boxed.quarantine_leftovers()} == planted


def test_undecodable_names_stop_no_session(ws: Path, tmp_path: Path) -> None:
    odd = ws / os.fsdecode(b"\xff\xfe")
    subprocess.run(["git", "init", "-q", str(odd)], check=True)
    killed(ws, tmp_path / "notes", "cd [!.]*; echo x > .git/commondir; echo ready; sleep 60")
    assert "commondir (1): quarantined" in boxes(tmp_path / "notes").recover()
    assert not (odd / ".git/commondir").exists()


def test_a_replaced_directory_is_unchanged(ws: Path, tmp_path: Path) -> None:
    killed(ws, tmp_path / "notes", PLANT)
    ws.rename(tmp_path / "moved")
    (ws / ".yarrow").mkdir(parents=True)
    assert boxes(tmp_path / "notes").recover() == ""
    assert (ws / ".yarrow").is_dir()


def test_files_of_a_running_command_are_unchanged(ws: Path, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    box = boxes(notes).create("s", Workspace.make(ws))
    assert box is not None
    boxed = SandboxedCommand(box, Command(("true",), ws, {}, 10))
    (ws / ".yarrow").mkdir()
    assert boxes(notes).recover() == ""
    assert [entry.path for entry in boxed.quarantine_leftovers()] == [ws / ".yarrow"]
    boxed.close()
    assert [path.name for path in notes.iterdir()] == [STORE]


@pytest.mark.parametrize("content", [b"", b"{", b'{"places": [], "roots": 3}', b"\0" * 100])
def test_a_truncated_journal_entry_is_skipped(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "call-1.json").write_bytes(content)
    assert boxes(tmp_path).recover() == ""
    assert list(tmp_path.iterdir()) == []


async def test_an_unwritable_journal_stops_no_command() -> None:
    with corner("root" if os.geteuid() == 0 else "self") as place:
        (place.root / "file").touch()
        box = replace(place.box, journal_dir=place.root / "file/notes")
        boxed = SandboxedCommand(box, Command((PYTHON, "-V"), place.workspace, {}, 10))
        assert boxed.quarantine_leftovers() == []
        boxed.close()


def closed_off(folder: Path) -> None:
    """Package caches contain directories that their owner cannot write to."""
    (folder / "pkg/mod").mkdir(parents=True)
    (folder / "pkg/mod/file").touch(mode=0o444)
    for path in (folder / "pkg/mod", folder / "pkg"):
        path.chmod(0o555)
    (folder / "shut").mkdir(mode=0)


def test_a_sessions_home_is_removed_with_it(ws: Path) -> None:
    made = boxes(ws.parent / "notes")
    box = made.create("s", Workspace.make(ws))
    assert box is not None
    boxed = SandboxedCommand(box, Command(("true",), ws, {}, 10))
    closed_off(box.session_dir / "home")
    boxed.close()
    made.release("other")
    assert box.session_dir.is_dir()
    made.release("s")
    assert not box.session_dir.exists()
    made.release("s")


def test_a_too_large_home_is_emptied_only_between_commands(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_home, "MAX_BYTES", 1_000_000)
    monkeypatch.setattr(session_home, "MEASURE_SECONDS", 0.0)
    monkeypatch.setattr(session_home, "MEASURE_SHARE", 0)
    folder = ws.parent / "private"

    def enter(size: int) -> bool:
        was_emptied = session_home.acquire(folder)
        (folder / "home/cache").write_bytes(b"x" * size)
        return was_emptied

    assert not enter(10)
    session_home.release(folder)
    assert not enter(2_000_000)
    closed_off(folder / "tmp")
    assert not enter(2_000_000)
    session_home.release(folder)
    session_home.release(folder)
    assert enter(10)
    assert list((folder / "tmp").iterdir()) == []
    assert (folder / "home/cache").stat().st_size == 10
    session_home.release(folder)


def test_targets_of_symlinks_stay(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/file").touch()
    (tmp_path / "private/home").mkdir(parents=True)
    (tmp_path / "private/home/link").symlink_to(tmp_path / "mine")
    session_home.remove(tmp_path / "private")
    assert (tmp_path / "mine/file").exists()


def test_case_at_03_an_error_at_one_entry_does_not_keep_others(
    ws: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = boxes(tmp_path / "notes").create("s", Workspace.make(ws))
    assert box is not None
    boxed = SandboxedCommand(box, Command(("true",), ws, {}, 10))
    for name in ("a", "b", "c"):
        subprocess.run(["git", "init", "-q", str(ws / name)], check=True)
        subprocess.run(["git", "-C", str(ws / name), "config", "core.fsmonitor", "evil"], check=True)
    (ws / ".git/commondir").touch()
    taking = Quarantine.take

    def failing(self: Quarantine, directory: int, name: str, path: Path, *, reason: str) -> QuarantineEntry | None:
        if path in (ws / "a/.git/config", ws / ".git/commondir"):
            raise RecursionError
        return taking(self, directory, name, path, reason=reason)

    monkeypatch.setattr(Quarantine, "take", failing)
    with closing(boxed):
        taken = boxed.quarantine_leftovers()
    assert {entry.path for entry in taken if entry.item != entry.path} == {ws / "b/.git/config", ws / "c/.git/config"}
    stuck = [entry for entry in taken if entry.item == entry.path]
    assert {entry.path for entry in stuck} == {ws / "a/.git/config", ws / ".git/commondir"}
    assert all("it could not be moved: RecursionError" in entry.reason for entry in stuck)


def test_case_at_03_an_error_at_one_directory_does_not_keep_others(
    ws: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    box = boxes(tmp_path / "notes").create("s", Workspace.make(ws))
    assert box is not None
    boxed = SandboxedCommand(box, Command(("true",), ws, {}, 10))
    for name in ("a", "b"):
        subprocess.run(["git", "init", "-q", str(ws / name)], check=True)
        subprocess.run(["git", "-C", str(ws / name), "config", "core.fsmonitor", "evil"], check=True)
    looking = git_baseline.executed_parts

    def failing(directory: Path, *more: Any) -> Iterator[PathDigest]:
        if directory == ws / "a/.git":
            raise RecursionError
        return looking(directory, *more)

    monkeypatch.setattr(git_baseline, "executed_parts", failing)
    with closing(boxed):
        taken = {entry.path for entry in boxed.quarantine_leftovers()}
    assert ws / "b/.git/config" in taken
    assert ws / "a/.git/HEAD" in taken


@pytest.mark.parametrize("most", [cleanup_journal.MAX_ENTRY_BYTES, 4_000])
def test_case_at_12_a_large_journal_entry_is_read_completely(
    ws: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """4,000 bytes represent a journal entry that must be truncated."""
    monkeypatch.setattr(cleanup_journal, "MAX_ENTRY_BYTES", most)
    roots = [ws]
    for number in range(20 if most == 4_000 else 8_000):
        (ws / "many" / ("n" * 200 + str(number)) / ("m" * 240) / "hooks").mkdir(parents=True)
    subprocess.run(["git", "init", "-q", str(ws / "users")], check=True)
    (ws / "users/.git/hooks/pre-push").write_text("mine")
    left = Leftovers(PathGuard.for_paths([], roots), git_baseline.take_baseline(roots, [], []))
    note = JournalEntry(tmp_path / "notes", left)
    held = next((tmp_path / "notes").iterdir())
    assert held.stat().st_size <= most
    copy = tmp_path / "notes/call-0.json"  # of a process that is gone
    copy.write_bytes(held.read_bytes())
    note.remove()
    assert len(cleanup_journal.other_baselines(tmp_path / "notes")) == 1
    subprocess.run(["git", "init", "-q", str(ws / "made")], check=True)
    subprocess.run(["git", "-C", str(ws / "made"), "config", "core.fsmonitor", "evil"], check=True)
    assert [entry.path for entry in cleanup_journal.recover(tmp_path / "notes")] == [ws / "made/.git/config"]
    assert (ws / "users/.git/hooks/pre-push").read_text() == "mine"


@pytest.mark.parametrize("is_over", [True, False])
def test_case_at_10_changes_during_the_scan_are_not_trusted(
    ws: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_over: bool
) -> None:
    box = boxes(tmp_path / "notes").create("s", Workspace.make(ws))
    assert box is not None
    made = "a/b/c/d/e/f/g/h/made"  # deeper than what is mounted
    config = ws / made / ".git/config"
    subprocess.run(["git", "init", "-q", str(ws / made)], check=True)
    config.unlink()
    looks: list[Baseline] = []

    def beside(*given: Any, **more: Any) -> Baseline:
        """Look while another service's command runs: it begins after the look at the notes."""
        if not looks:
            script = f"printf '[core]\\nfsmonitor = evil\\n' > {made}/.git/config; echo ready; sleep 60"
            with ready(ws, tmp_path / "notes", script):
                looks.append(git_baseline.take_baseline(*given, **more))
            if is_over:
                boxes(tmp_path / "notes").recover()
        else:
            looks.append(git_baseline.take_baseline(*given, **more))
        return looks[-1]

    monkeypatch.setattr(sandboxed_command, "take_baseline", beside)
    boxed = SandboxedCommand(box, Command(("true",), ws, {}, 10))
    with closing(boxed):
        assert any(part.path == config for part in looks[0].trusted)
        config.write_text("[core]\nfsmonitor = evil\n")
        assert [entry.path for entry in boxed.quarantine_leftovers()] == [config]
