"""A file of secrets that git tracks: closed in the sandbox, and to git there as unchanged as it is."""

import os
import struct
import time
from pathlib import Path

import pytest
from sandboxed import SECRET, Corner, git

from yarrow.policy.environment import with_git_settings
from yarrow.policy.sandbox.covers import COVER_FILES, NOTHING, TRUSTING, covers

pytestmark = pytest.mark.xdist_group("sandbox")
LONG_AGO = time.time() - 10_000


@pytest.fixture
def place(place: Corner) -> Corner:
    for path in (place.workspace / ".env", place.workspace / "sub/.env.production"):
        os.utime(path, (LONG_AGO, LONG_AGO))  # git looks again at what is as young as its index
    git(place.workspace, "add", "-A")
    git(place.workspace, "commit", "-qm", "first")
    place.own()
    return place


async def test_git_works_around_it(place: Corner) -> None:
    script = """set -e
        git status --porcelain; echo 2 > two; echo more >> file.txt
        git add -A; git commit -qm second; echo 3 >> two; git commit -qam third; git status --porcelain
        git stash list; git diff HEAD~1 --stat; git checkout -q -b other; git checkout -q main"""
    output, code = await place.run(script)
    assert (output, code) == (" two | 1 +\n 1 file changed, 1 insertion(+)\n", 0)
    assert git(place.workspace, "show", "HEAD:.env") == SECRET
    assert git(place.workspace, "show", "HEAD:sub/.env.production") == SECRET
    assert git(place.workspace, "status", "--porcelain") == ""


async def test_it_cannot_be_read_or_written(place: Corner) -> None:
    output, _ = await place.run("cat .env sub/.env.production; echo x > .env; chmod 600 .env; cat .env; cp .env y")
    assert SECRET not in output
    assert (place.workspace / ".env").read_text() == SECRET


@pytest.mark.parametrize("script", ["git add -A", "git commit -qam x", "git add .env", "git stash"])
async def test_one_that_was_changed_is_never_recorded_as_something_else(place: Corner, script: str) -> None:
    (place.workspace / ".env").write_text("changed\n")
    place.own()
    output, code = await place.run(f"echo 2 > file.txt; {script}")
    assert code != 0
    assert "Permission denied" in output
    assert git(place.workspace, "show", ":.env") == SECRET
    assert git(place.workspace, "show", "HEAD:.env") == SECRET
    assert (place.workspace / ".env").read_text() == "changed\n"


async def test_it_can_be_left_out(place: Corner) -> None:
    (place.workspace / ".env").write_text("changed\n")
    place.own()
    script = "echo 2 > file.txt; git add -A -- . ':(exclude).env' && git commit -qm second && git show --stat --format="
    output, code = await place.run(script)
    assert code == 0
    assert "file.txt" in output
    assert git(place.workspace, "show", "HEAD:.env") == SECRET


def test_only_what_git_tracks_gets_a_cover_of_its_own(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    for name in ("a/.env", ".env"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("KEY=1\n")
    git(tmp_path, "add", "a/.env")
    paths = [tmp_path / "a/.env", tmp_path / ".env"]
    made = covers(paths, tmp_path / "covers")
    assert made[paths[1]] == NOTHING
    cover = made[paths[0]]
    assert cover.stat().st_size == 6
    assert cover.stat().st_mtime_ns == paths[0].stat().st_mtime_ns
    assert cover.stat().st_mode & 0o777 == 0
    git(tmp_path, "add", ".env")
    assert covers(paths, tmp_path / "covers")[paths[1]] != NOTHING


def test_covers_are_few(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    path = tmp_path / ".env"
    path.write_text("x")
    git(tmp_path, "add", ".env")
    for number in range(COVER_FILES + 5):
        os.utime(path, (number, number))
        covers([path], tmp_path / "covers")
    assert len(list((tmp_path / "covers").iterdir())) <= COVER_FILES


@pytest.mark.parametrize("data", [b"", b"DIRC", b"DIRC" + struct.pack(">II", 2, 9), b"x" * 100])
def test_an_index_that_is_none_tracks_nothing(tmp_path: Path, data: bytes) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/index").write_bytes(data)
    (tmp_path / ".env").write_text("x")
    assert covers([tmp_path / ".env"], tmp_path / "covers") == {tmp_path / ".env": NOTHING}


def test_later_kinds_of_index_are_understood(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a").mkdir()
    for name in ("a/.env", "a/.env.x"):
        (tmp_path / name).write_text("x")
    git(tmp_path, "add", ".")
    git(tmp_path, "update-index", "--index-version=4")
    made = covers([tmp_path / "a/.env", tmp_path / "a/.env.x"], tmp_path / "covers")
    assert NOTHING not in made.values()


def test_settings_of_git_that_were_there_stay() -> None:
    before = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "a.b", "GIT_CONFIG_VALUE_0": "c"}
    after = with_git_settings(before, TRUSTING)
    assert after["GIT_CONFIG_COUNT"] == "3"
    assert before.items() - after.items() == {("GIT_CONFIG_COUNT", "1")}
    assert {after["GIT_CONFIG_KEY_1"], after["GIT_CONFIG_KEY_2"]} == {"core.checkStat", "core.trustctime"}
    assert with_git_settings({"GIT_CONFIG_COUNT": "-1"}, TRUSTING)["GIT_CONFIG_COUNT"] == "2"


async def test_one_as_young_as_its_index_is_never_recorded_as_something_else(place: Corner) -> None:
    later = time.time() + 10_000
    os.utime(place.workspace / ".env", (later, later))
    git(place.workspace, "add", "-A")
    place.own()
    script = (
        "echo 2 > file.txt; git status --porcelain; git commit -qam x; git add -A; git add file.txt; git commit -qm x"
    )
    output, code = await place.run(script)
    assert code == 0
    assert "file.txt" in output
    assert git(place.workspace, "show", "HEAD:.env") == SECRET
    assert git(place.workspace, "show", "HEAD:file.txt") == "2\n"
    assert git(place.workspace, "status", "--porcelain") == ""
