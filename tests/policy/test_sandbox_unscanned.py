"""Changes of commands beyond the scanned directories are not trusted by later commands."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from yarrow.policy.sandbox import git_baseline, unscanned_regions
from yarrow.policy.sandbox.git_directories import scan_git_directories
from yarrow.policy.sandbox.unscanned_regions import UnscannedRegion, mark_scanned, mark_unscanned, read_regions

pytestmark = pytest.mark.xdist_group("sandbox")

LIMIT = 20
"""Directories that are judged in these tests."""
SERVICE = f"""
import asyncio, json, os, signal, sys
from pathlib import Path
from yarrow.policy.command_execution import Command, run
from yarrow.policy.sandbox import git_directories, protected_paths, sandboxed_command, scan_limits
from yarrow.policy.sandbox_factory import SandboxFactory
from yarrow.policy.sandbox.sandboxed_command import SandboxedCommand
from yarrow.policy.workspace import Workspace

git_directories.MAX_DIRECTORIES = protected_paths.MAX_DIRECTORIES = {LIMIT}
scan_limits.MIN_DIRECTORIES = {LIMIT // 4}
scan_limits.MAX_GROWTH = sandboxed_command.MAX_GROWTH = {10 * LIMIT}

async def main(cwd, notes, script):
    boxes = SandboxFactory("workspace", home=Path.home(), journal_dir=Path(notes))
    boxes.recover()
    box = boxes.create("s", Workspace.make(Path(cwd)))
    boxed = SandboxedCommand(box, Command(("/bin/sh", "-c", script), Path(cwd), {{}}, 60))
    async for piece in run(boxed.command):
        if isinstance(piece, bytes):
            print(piece.decode(), file=sys.stderr, end="")
        if script.endswith("kill"):
            print("killed", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
    print(json.dumps([str(entry.path) for entry in boxed.quarantine_leftovers()]))
    boxed.close()

asyncio.run(main(*sys.argv[1:]))
"""
PLANT = """mkdir -p deep/a/b/c/.git/objects deep/a/b/c/.git/refs && cd deep/a/b/c/.git && echo ref: refs/heads/m > HEAD
printf '[core]\\n\\tfsmonitor = evil\\n' > config"""
PLANTED = "deep/a/b/c/.git/config"


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    """A workspace in which the directories from the third level on are beyond the limit, until `wide` is removed."""
    path = Path(os.path.realpath(tmp_path)) / "ws"
    for number in range(LIMIT):
        (path / f"wide/{number}").mkdir(parents=True)
    (path / "deep/a/b/c").mkdir(parents=True)
    return path


def command(ws: Path, script: str = "true") -> list[str]:
    """Run a script in the sandbox of a service of its own; return what was quarantined."""
    words = [sys.executable, "-c", SERVICE, str(ws), str(ws.parent / "notes"), script]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout or "killed" in done.stderr, done.stderr
    return [os.path.relpath(path, ws) for path in json.loads(done.stdout or "[]")]


def printed(ws: Path, script: str) -> str:
    """Run a script in the sandbox of a service of its own; return what it printed."""
    words = [sys.executable, "-c", SERVICE, str(ws), str(ws.parent / "notes"), script]
    return subprocess.run(words, capture_output=True, text=True, check=True).stderr


def test_executables_planted_beyond_the_limit_are_not_trusted(ws: Path) -> None:
    assert command(ws, PLANT) == []
    assert command(ws) == []
    shutil.rmtree(ws / "wide")
    assert command(ws) == [PLANTED]


def test_a_pointer_beyond_the_limit_is_not_trusted(ws: Path) -> None:
    assert command(ws, "echo gitdir: /tmp/planted > deep/a/b/c/.git") == []
    shutil.rmtree(ws / "wide")
    assert command(ws) == ["deep/a/b/c/.git"]


def test_executables_are_quarantined_once_a_command_shrinks_the_workspace(ws: Path) -> None:
    assert command(ws, f"{PLANT}; cd; rm -r {ws}/wide") == []
    assert command(ws) == [PLANTED]


def test_leftovers_of_a_killed_service_are_not_trusted(ws: Path) -> None:
    assert command(ws, f"{PLANT}; echo ready; sleep 60 # kill") == []
    (
        ws.parent / "notes" / unscanned_regions.REGIONS_FILE
    ).unlink()  # as a command of another service does that ends meanwhile
    shutil.rmtree(ws / "wide")
    assert command(ws) == [PLANTED]


def test_the_users_files_are_trusted_after_a_complete_scan(ws: Path) -> None:
    command(ws, PLANT)
    shutil.rmtree(ws / "wide")
    command(ws)
    assert read_regions(ws.parent / "notes") == ()
    subprocess.run(["bash", "-c", PLANT], cwd=ws, check=True)
    assert command(ws) == []
    assert (ws / PLANTED).exists()


def test_harmless_repositories_beyond_the_limit_stay(ws: Path) -> None:
    subprocess.run(["git", "init", "-q", str(ws / "deep/a/b/c")], check=True)
    command(ws)
    shutil.rmtree(ws / "wide")
    assert command(ws) == []
    assert command(ws, "rm -r deep/a/b/c/.git") == []
    assert (ws / PLANTED).exists()  # it is guarded as what the user made


def test_a_scanned_part_is_trusted_again(ws: Path) -> None:
    command(ws, PLANT)
    part = ws / "deep/a/b/c"
    words = [sys.executable, "-c", SERVICE, str(part), str(ws.parent / "notes"), "true"]
    assert json.loads(subprocess.run(words, capture_output=True, check=True).stdout) == [str(ws / PLANTED)]
    subprocess.run(["bash", "-c", PLANT], cwd=ws, check=True)
    assert json.loads(subprocess.run(words, capture_output=True, check=True).stdout) == []


def test_a_concurrent_command_trusts_no_unscanned_region(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yarrow.policy.sandbox.git_directories.MAX_DIRECTORIES", LIMIT)
    with git_baseline.register_running(git_baseline.take_baseline((ws,), (), ()), ()) as first:
        assert first.beyond == {ws / "deep/a/b"}
        subprocess.run(["bash", "-c", PLANT], cwd=ws, check=True)
        shutil.rmtree(ws / "wide")
        with git_baseline.register_running(git_baseline.take_baseline((ws,), (), ()), ()) as second:
            found = git_baseline.rescan(second)
            assert [verdict.path for verdict in git_baseline.find_planted(second, found)] == [ws / PLANTED]
            assert list(git_baseline.find_new_repositories(second, found)) == []


MAKE_MANY = f"mkdir -p many && cd many && mkdir $(seq {LIMIT * 2}) && cd .."


@pytest.fixture
def small(ws: Path) -> Path:
    """A workspace below the limit with a secret file in its third level."""
    shutil.rmtree(ws / "wide")
    (ws / "deep/a/b/.env").write_text("SECRET=1")
    return ws


@pytest.mark.parametrize("way", [f"{MAKE_MANY}", f"{MAKE_MANY}; echo ready; sleep 60 # kill"])
def test_case_atk_f6_directories_that_a_command_makes_displace_no_others(small: Path, way: str) -> None:
    assert command(small, way) == []
    assert command(small, PLANT) == [PLANTED]
    assert "SECRET" not in printed(small, "cat deep/a/b/.env")
    assert read_regions(small.parent / "notes") == ()


def test_directories_made_in_many_commands_displace_no_others(small: Path) -> None:
    for number in range(LIMIT - 10):
        (small / f"users/{number}").mkdir(parents=True)
    for number in range(3):
        command(small, f"mkdir -p many/{number}.1 many/{number}.2 many/{number}.3")
    assert command(small, PLANT) == [PLANTED]


def test_the_depth_of_a_truncated_scan_stays(ws: Path) -> None:
    """The two last levels change places: there are as many directories as before, but nearer ones."""
    (ws / "deep/.env").write_text("SECRET=1")
    command(ws, f"rm -r wide; {MAKE_MANY.replace('many', 'm')}; mv m/* .")
    (ws / "deep/a").mkdir(exist_ok=True)
    plant = PLANT.replace("/a/b/c", "/a")
    assert command(ws, plant) == ["deep/a/.git/config"]


def test_too_many_directories_for_any_scan_are_refused(small: Path) -> None:
    command(small, MAKE_MANY.replace(str(LIMIT * 2), str(LIMIT * 12)))
    words = [sys.executable, "-c", SERVICE, str(small), str(small.parent / "notes"), "true"]
    failed = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "commands created more than 200 directories here" in failed.stderr
    shutil.rmtree(small / "many")
    assert command(small) == []


A, B, C = Path("/a"), Path("/a/b"), Path("/a/b/c")


def test_unscanned_regions_are_recorded_until_completely_scanned(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    for deepest in ("1/2/3", "1/2", "1/2/3"):
        mark_unscanned(notes, (A,), [A / deepest])
    assert read_regions(notes) == (UnscannedRegion(A, 2),)
    mark_scanned(notes, (B,), ())
    assert read_regions(notes) == (UnscannedRegion(A, 2, (B,)),)
    assert [path for path in (A / "x", A / "x/y", B / "y", B, C) if read_regions(notes)[0].contains(path)] == [
        A / "x/y"
    ]
    mark_scanned(notes, (B,), [C / "d"])
    assert read_regions(notes) == (UnscannedRegion(A, 2, (B,)), UnscannedRegion(B, 2))
    mark_scanned(notes, (A,), [A / "1/2/3/4"])
    assert read_regions(notes) == (UnscannedRegion(A, 4),)
    mark_scanned(notes, (A,), ())
    assert read_regions(notes) == ()


def test_unscanned_regions_are_remembered_without_a_writable_directory(tmp_path: Path) -> None:
    (tmp_path / "notes").touch()
    for place in (None, tmp_path / "notes"):
        mark_unscanned(place, (A,), [A / "1/2"])
        assert read_regions(place) == (UnscannedRegion(A, 2),)
        mark_scanned(place, (A,), ())
        assert read_regions(place) == ()


def test_directories_beyond_the_limit_have_one_depth(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yarrow.policy.sandbox.git_directories.MAX_DIRECTORIES", LIMIT)
    other = ws.with_name("other")
    (other / "x/y/z").mkdir(parents=True)
    found = scan_git_directories((ws, other))
    mark_unscanned(None, (ws, other), found.unscanned)
    assert read_regions(None) == (UnscannedRegion(ws, 3), UnscannedRegion(other, 3))
    mark_scanned(None, (ws, other), ())
