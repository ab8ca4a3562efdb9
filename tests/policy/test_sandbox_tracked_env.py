"""Files of secrets that git tracks: open in the sandbox as git has recorded them, else closed and unchanged to git."""

import asyncio
import os
import shutil
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sandboxed import PYTHON, SECRET, Corner, git

from yarrow.policy.environment import with_git_settings
from yarrow.policy.refusal import Refused
from yarrow.policy.sandbox import git_internal_files
from yarrow.policy.sandbox.git_internal_files import MAX_RECORDED_BYTES, is_recorded, is_tracked
from yarrow.policy.sandbox.mounts import DEV_NULL, MAX_MASK_FILES, TRUST_STAT_SETTINGS, make_masks
from yarrow.policy.workspace import Workspace

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


async def test_git_works_with_a_tracked_env_file(place: Corner) -> None:
    script = """set -e
        git status --porcelain; echo 2 > two; echo more >> file.txt
        git add -A; git commit -qm second; echo 3 >> two; git commit -qam third; git status --porcelain
        git stash list; git diff HEAD~1 --stat; git checkout -q -b other; git checkout -q main"""
    output, code = await place.run(script)
    assert (output, code) == (" two | 1 +\n 1 file changed, 1 insertion(+)\n", 0)
    assert git(place.workspace, "show", "HEAD:.env") == SECRET
    assert git(place.workspace, "show", "HEAD:sub/.env.production") == SECRET
    assert git(place.workspace, "status", "--porcelain") == ""


async def test_a_changed_env_file_cannot_be_read_or_written(place: Corner) -> None:
    for name in (".env", "sub/.env.production"):
        (place.workspace / name).write_text(f"{SECRET}2")
    place.own()
    output, _ = await place.run("cat .env sub/.env.production; echo x > .env; chmod 600 .env; cat .env; cp .env y")
    assert SECRET not in output
    assert (place.workspace / ".env").read_text() == f"{SECRET}2"


@pytest.mark.parametrize("script", ["git add -A", "git commit -qam x", "git add .env", "git stash"])
async def test_a_changed_env_file_is_never_committed_with_other_content(place: Corner, script: str) -> None:
    (place.workspace / ".env").write_text("changed\n")
    place.own()
    output, code = await place.run(f"echo 2 > file.txt; {script}")
    assert code != 0
    assert "Permission denied" in output
    assert git(place.workspace, "show", ":.env") == SECRET
    assert git(place.workspace, "show", "HEAD:.env") == SECRET
    assert (place.workspace / ".env").read_text() == "changed\n"


async def test_a_changed_env_file_can_be_left_out_of_a_commit(place: Corner) -> None:
    (place.workspace / ".env").write_text("changed\n")
    place.own()
    script = "echo 2 > file.txt; git add -A -- . ':(exclude).env' && git commit -qm second && git show --stat --format="
    output, code = await place.run(script)
    assert code == 0
    assert "file.txt" in output
    assert git(place.workspace, "show", "HEAD:.env") == SECRET


def test_only_tracked_files_get_their_own_mask(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    for name in ("a/.env", ".env"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("KEY=1\n")
    git(tmp_path, "add", "a/.env")
    paths = [tmp_path / "a/.env", tmp_path / ".env"]
    made = make_masks(paths, tmp_path / "covers")
    assert made[paths[1]] == DEV_NULL
    cover = made[paths[0]]
    assert cover.stat().st_size == 6
    assert cover.stat().st_mtime_ns == paths[0].stat().st_mtime_ns
    assert cover.stat().st_mode & 0o777 == 0
    git(tmp_path, "add", ".env")
    assert make_masks(paths, tmp_path / "covers")[paths[1]] != DEV_NULL


def test_masks_are_few(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    path = tmp_path / ".env"
    path.write_text("x")
    git(tmp_path, "add", ".env")
    for number in range(MAX_MASK_FILES + 5):
        os.utime(path, (number, number))
        make_masks([path], tmp_path / "covers")
    assert len(list((tmp_path / "covers").iterdir())) <= MAX_MASK_FILES


@pytest.mark.parametrize("data", [b"", b"DIRC", b"DIRC" + struct.pack(">II", 2, 9), b"x" * 100])
def test_an_invalid_index_tracks_nothing(tmp_path: Path, data: bytes) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/index").write_bytes(data)
    (tmp_path / ".env").write_text("x")
    assert make_masks([tmp_path / ".env"], tmp_path / "covers") == {tmp_path / ".env": DEV_NULL}


def test_later_index_versions_are_parsed(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    (tmp_path / "a").mkdir()
    for name in ("a/.env", "a/.env.x"):
        (tmp_path / name).write_text("x")
    git(tmp_path, "add", ".")
    git(tmp_path, "update-index", "--index-version=4")
    made = make_masks([tmp_path / "a/.env", tmp_path / "a/.env.x"], tmp_path / "covers")
    assert DEV_NULL not in made.values()


def test_existing_git_settings_stay() -> None:
    before = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "a.b", "GIT_CONFIG_VALUE_0": "c"}
    after = with_git_settings(before, TRUST_STAT_SETTINGS)
    assert after["GIT_CONFIG_COUNT"] == "3"
    assert before.items() - after.items() == {("GIT_CONFIG_COUNT", "1")}
    assert {after["GIT_CONFIG_KEY_1"], after["GIT_CONFIG_KEY_2"]} == {"core.checkStat", "core.trustctime"}
    assert with_git_settings({"GIT_CONFIG_COUNT": "-1"}, TRUST_STAT_SETTINGS)["GIT_CONFIG_COUNT"] == "2"


async def test_a_file_as_recent_as_its_index_is_never_committed_with_other_content(place: Corner) -> None:
    later = time.time() + 10_000
    os.utime(place.workspace / ".env", (later, later))
    git(place.workspace, "add", "-A")
    place.own()
    script = "echo 2 > file.txt; git status --porcelain; git commit -qam x; git add -A; git status --porcelain"
    output, code = await place.run(script)
    assert code == 0
    assert "file.txt" in output
    assert git(place.workspace, "show", "HEAD:.env") == SECRET
    assert git(place.workspace, "show", "HEAD:file.txt") == "2\n"
    assert git(place.workspace, "status", "--porcelain") == ""


async def outside(cwd: Path, script: str) -> None:
    """Run a script as the user does, without a sandbox."""
    names = ("safe.directory", "user.name", "user.email")
    environment = with_git_settings({**os.environ}, dict(zip(names, ("*", "N", "n@example.org"), strict=True)))
    await asyncio.to_thread(subprocess.run, ["sh", "-ec", script], cwd=cwd, env=environment, check=True)


OTHER_BRANCH = f"""set -e; git switch -qc other; printf {SECRET}-of-other > .env; git rm -q sub/.env.production
git commit -qam other; git switch -q main; git commit -q --allow-empty -m more"""


@pytest.mark.parametrize(
    "script",
    [
        "echo 2 > file.txt; git stash -q; git stash pop -q; git checkout -q file.txt",
        "echo 2 > file.txt; git commit -qam second",
        "git switch -q other",
        "git switch -q other; git switch -q main",
        "git checkout -q other; git checkout -q -",
        "git rebase -q other",
        "git merge -q other",
        "git pull -q --rebase . other",
        "git reset -q --hard other",
        "git cherry-pick other",
        "git switch -q other && git revert --no-edit HEAD",
        "git worktree add -q beside other; git -C beside status --porcelain; git worktree remove beside",
        "git bisect start HEAD HEAD~1; git bisect reset",
        "printf changed >> .env; git commit -qam changed; git checkout -q HEAD~1 .env; git commit -qam back",
    ],
)
async def test_branches_with_other_secrets_work_as_without_a_sandbox(place: Corner, script: str) -> None:
    await outside(place.workspace, f"git branch -qm main; {OTHER_BRANCH}")
    place.own()
    twin = place.root / "twin"
    shutil.copytree(place.workspace, twin, symlinks=True)
    await outside(twin, script)
    assert (await place.run(f"set -e; {script}"))[1] == 0
    for words in (("status", "--porcelain"), ("log", "--format=%s %T"), ("diff", "HEAD"), ("ls-files", "-s")):
        assert git(place.workspace, *words) == git(twin, *words), words
    for name in (".env", "sub/.env.production"):
        assert [(one / name).exists() for one in (place.workspace,)] == [(twin / name).exists()]
    assert (place.workspace / ".env").read_bytes() == (twin / ".env").read_bytes()


STATES = {
    "as recorded": ("", True),
    "as staged": ("echo 2 > .env; git add .env", True),
    "changed": ("echo 2 > .env", False),
    "changed and back": (f"echo 2 > .env; printf {SECRET} > .env", True),
    "of another branch": (f"git stash -q; printf {SECRET}x > .env", False),
    "not tracked": ("git rm -q --cached .env", False),
    "not tracked any more in HEAD": ("git rm -q --cached .env; git commit -qm x", False),
    "to be added": ("git rm -q --cached .env; git add -N .env", False),
    "encrypted by git": (
        "git config filter.c.clean 'rev'; echo '.env filter=c' > .gitattributes; git add --renormalize .",
        False,
    ),
    "other ends of lines": (r"printf 'A=1\n' > .env; git add .env; printf 'A=1\r\n' > .env", False),
    "skipped": (f"git update-index --skip-worktree .env; echo {SECRET}2 > .env", False),
    "version 4": ("git update-index --index-version 4", True),
    "version 4, changed": ("git update-index --index-version 4; echo 2 > .env", False),
    "split index": ("git update-index --split-index", False),
    "hard link": ("ln .env copy", True),
    "hard link, changed": ("ln .env copy; echo 2 > copy", False),
    "larger than is compared": (f"head -c {MAX_RECORDED_BYTES + 1} /dev/zero > .env; git add .env", False),
}


@pytest.mark.parametrize("state", STATES)
async def test_file_tools_and_commands_agree_on_what_is_secret(place: Corner, state: str) -> None:
    script, is_open = STATES[state]
    await outside(place.workspace, script)
    place.own()
    for name in (".env", "copy") if (place.workspace / "copy").exists() else (".env",):
        output, code = await place.run(f"cat {name}")
        readable = Workspace.make(place.workspace).resolve_read(place.workspace / name)
        assert (code == 0, isinstance(readable, Path)) == (is_open, is_open)
        assert is_open or not output.startswith(SECRET)


async def test_a_reverted_env_file_is_readable_again(place: Corner) -> None:
    (place.workspace / ".env").write_text("changed\n")
    place.own()
    assert (await place.run("cat .env"))[1] != 0
    (place.workspace / ".env").write_text(SECRET)
    place.own()
    assert await place.run("cat .env") == (SECRET, 0)


def test_an_env_file_beside_the_workspace_is_hidden_even_if_tracked(place: Corner) -> None:
    read_only = Workspace.make(place.home, read=[str(place.workspace)])
    assert isinstance(read_only.resolve_read(place.workspace / ".env"), Refused)
    assert isinstance(Workspace.make(place.workspace).resolve_write(place.workspace / ".env"), Refused)


def test_a_distant_name_in_a_compressed_index_is_uncertain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    git(tmp_path, "init", "-q")
    for name in ("a", "b", "c.env", "d"):
        (tmp_path / name).write_text("x")
    git(tmp_path, "add", ".")
    git(tmp_path, "update-index", "--index-version=4")
    names = ("a", "c.env", "d", "e")
    assert [is_tracked(tmp_path / name) for name in names] == [True, True, True, False]
    git_internal_files._read_entries.cache_clear()
    monkeypatch.setattr(git_internal_files, "MAX_COMPRESSED_ENTRIES", 2)
    assert [is_tracked(tmp_path / name) for name in names] == [True, True, True, True]
    assert [is_recorded(tmp_path / name) for name in names] == [True, False, False, False]
    git_internal_files._read_entries.cache_clear()


async def test_an_env_file_changed_by_a_command_is_hidden_from_the_next(place: Corner) -> None:
    await place.run("printf more >> .env; cat .env")
    output, code = await place.run("cat .env")
    assert code != 0
    assert SECRET not in output


GUESS = """
import hashlib, struct, sys
found = []
for text in sys.argv[2:]:
    blob = b"blob %d\\0" % len(text) + text.encode()
    flags = struct.pack(">H", 4)
    found.append(bytes(40) + hashlib.sha1(blob).digest() + flags + b".env\\0" + bytes(5))
open(sys.argv[1], "wb").write(struct.pack(">4sII", b"DIRC", 2, len(found)) + b"".join(found))
"""


@pytest.mark.parametrize("guesses", [f"wrong {SECRET}", SECRET])
@pytest.mark.parametrize("index", [".git/index", "own/.git/index"])
async def test_an_index_written_by_a_command_confirms_no_content(place: Corner, guesses: str, index: str) -> None:
    file = place.workspace / ("own/.env" if index.startswith("own") else ".env")
    git(place.workspace, "rm", "-q", "--cached", ".env")
    file.parent.mkdir(exist_ok=True)
    file.write_text(SECRET)
    place.own()
    assert SECRET not in (await place.run(f"cat {file}"))[0]
    script = f"mkdir -p {index.removesuffix('/index')} && {PYTHON} -c '{GUESS}' {index} {guesses}"
    assert await place.run(script) == ("", 0)
    assert SECRET not in (await place.run(f"cat {file}"))[0]
    assert isinstance(Workspace.make(place.workspace).resolve_read(file), Refused)


async def test_a_separate_process_cannot_confirm_guessed_content(place: Corner) -> None:
    (place.workspace / ".git/index").unlink()
    script = f"{PYTHON} -c '{GUESS}' .git/index wrong {SECRET} other"
    await place.run(script)
    git_internal_files._differing.clear()  # as in a process that begins
    assert SECRET not in (await place.run("cat .env"))[0]
    assert isinstance(Workspace.make(place.workspace).resolve_read(place.workspace / ".env"), Refused)


def test_if_too_many_differ_none_counts_as_tracked(place: Corner, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_recorded(place.workspace / ".env")
    monkeypatch.setattr(git_internal_files, "MAX_DIFFERING", 0)
    assert not is_recorded(place.workspace / ".env")


@pytest.mark.parametrize("form", ["sha1", "sha256"])
@pytest.mark.parametrize("version", [2, 3, 4])
@given(
    names=st.lists(
        st.sampled_from([".env", "a/.env", "a/.env.b", "b/a/.env", "é/.env", "a b/.env~"]), unique=True, min_size=1
    )
)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_tracked_files_are_those_of_git(tmp_path: Path, form: str, version: int, names: list[str]) -> None:
    top = Path(tempfile.mkdtemp(dir=tmp_path))
    git(top, "init", "-q", f"--object-format={form}")
    for number, name in enumerate(names):
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text("KEY=1\n" * number)
        git(top, "add", name)
    if version == 3:
        git(top, "update-index", "--skip-worktree", names[0])
    git(top, "update-index", f"--index-version={version}")
    (top / names[-1]).write_text("KEY=of this machine\n")
    recorded = [is_recorded(top / name) for name in names]
    known = (form, version) != ("sha256", 4)  # such an index is not read
    assert recorded == [known and number + 1 < len(names) for number in range(len(names))]
