"""Repositories in a sandbox: nested ones, submodules, worktrees, and symlinks in their place."""

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace
from sandboxed import NOBODY, Corner, corner, git

from yarrow.policy.command_execution import Command
from yarrow.policy.sandbox.failure_causes import FinishedCommand, explain_failure
from yarrow.policy.sandbox.sandboxed_command import SandboxedCommand

pytestmark = pytest.mark.xdist_group("sandbox")


@pytest.mark.parametrize(
    "plant",
    [
        "mv sub/inner i; mkdir -p sub/inner/.git/hooks; echo evil > sub/inner/.git/hooks/x",
        "mv sub s; mkdir -p sub/inner/.git/hooks; echo evil > sub/inner/.git/hooks/x",
    ],
)
async def test_a_nested_repository_is_not_quarantined(place: Corner, plant: str) -> None:
    inner = place.workspace / "sub/inner"
    inner.mkdir()
    git(inner, "init", "-q")
    place.own()
    await place.run(f"{plant}; true")
    assert not (inner / ".git/hooks/x").exists()


async def test_a_submodules_repository_is_not_quarantined(place: Corner) -> None:
    git(place.workspace, "init", "-q", "--bare", ".git/modules/a/b")
    place.own()
    hook = ".git/modules/a/b/hooks/evil"
    await place.run(f"echo > {hook}; mv .git/modules .git/m; cp -r .git/m .git/modules; echo > {hook}")
    await place.run(f"mv .git/modules/a .git/modules/c; cp -r .git/modules/c .git/modules/a; echo > {hook}")
    assert not (place.workspace / hook).exists()


async def test_a_worktree_can_be_committed_to_and_its_repository_is_protected(place: Corner) -> None:
    main = place.root / "main"
    place.workspace.rename(main)
    git(main, "commit", "-q", "--allow-empty", "-m", "first")
    git(main, "worktree", "add", "-q", str(place.workspace))
    place.own()
    output, code = await place.run("echo x > f && git add f && git commit -q -m second && git log --format=%s 2>&1")
    assert (output, code) == ("second\nfirst\n", 0)
    before = (place.workspace / ".git").read_bytes()
    await place.run(f"echo x > {main}/.git/hooks/x; echo x > {main}/file.txt; rm .git; echo 'gitdir: /tmp' > .git")
    assert (place.workspace / ".git").read_bytes() == before
    assert not (main / ".git/hooks/x").exists()
    assert (main / "file.txt").read_text() == "mine\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can close a directory to its owner")
def test_an_unreadable_worktree_stops_no_command() -> None:
    with corner("nobody") as place:
        git(place.workspace, "commit", "-q", "--allow-empty", "-m", "first")
        git(place.workspace, "worktree", "add", "-q", str(place.workspace / "inner"))
        place.own()
        os.chown(place.workspace / "inner", 0, 0)
        (place.workspace / "inner").chmod(0o700)
        script = (
            "import sys; from pathlib import Path; from yarrow.policy.sandbox.directory_listing import start_scan;"
            "from yarrow.policy.sandbox.protected_paths import scan;"
            "from yarrow.policy.secret_names import SecretFiles;"
            "root = Path(sys.argv[1]); scan(root, (root,), SecretFiles(), lister=start_scan(SecretFiles()))"
        )
        user = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
        environment = {name: text for name, text in os.environ.items() if not name.startswith("COVERAGE")}
        words = [*user, sys.executable, "-c", script, place.workspace]
        done = subprocess.run(words, capture_output=True, text=True, env=environment)
        assert (done.stderr, done.returncode) == ("", 0)


@pytest.mark.parametrize("below", ["", "/worktrees/w"])
async def test_a_pointer_to_a_foreign_repository_reveals_nothing(place: Corner, below: str) -> None:
    other = place.root / "other"
    git(place.root, "init", "-q", str(other))
    git(other, "commit", "-q", "--allow-empty", "-m", "first")
    git(other, "worktree", "add", "-q", str(place.root / "w"))
    (place.workspace / ".git").rename(place.workspace / "old")
    (place.workspace / ".git").write_text(f"gitdir: {other}/.git{below}\n")
    place.own()
    await place.run(f"echo > {other}/.git/evil")
    assert not (other / ".git/evil").exists()


@pytest.mark.parametrize("name", [".git", ".git/hooks", ".git/config", ".yarrow"])
async def test_symlinks_are_refused_before_anything_runs(place: Corner, name: str) -> None:
    path, aside = place.workspace / name, place.workspace / "aside"
    if path.exists():
        path.rename(aside)
    path.symlink_to(aside)
    with pytest.raises(OSError, match="is a symlink"):
        await place.run("touch ran")
    assert not (place.workspace / "ran").exists()


@pytest.fixture
def beside(place: Corner) -> Path:
    """Another worktree of the workspace's repository, with a change that is staged there alone."""
    git(place.workspace, "commit", "-q", "--allow-empty", "-m", "first")
    git(place.workspace, "worktree", "add", "-q", str(place.root / "beside"), "-b", "other")
    (place.root / "beside/staged").write_text("mine\n")
    git(place.root / "beside", "add", "staged")
    place.own()
    return place.root / "beside"


def tree(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "script",
    [
        "git worktree prune -v --expire now",
        "git worktree remove --force beside",
        "git gc -q --prune=now",
        "rm -rf .git/worktrees/beside; rm -rf .git/worktrees",
        "mv .git/worktrees .git/w; mv .git/worktrees/beside .git/x",
        (
            "echo x > .git/worktrees/beside/HEAD; echo x > .git/worktrees/beside/new; "
            "ln -sf / .git/worktrees/beside/gitdir"
        ),
        "git worktree repair beside; git worktree move beside other; git worktree lock beside",
    ],
)
async def test_case_RB_03_another_worktree_is_unchanged(place: Corner, beside: Path, script: str) -> None:
    directory = place.workspace / ".git/worktrees/beside"
    before = tree(directory)
    await place.run(f"{script}; true")
    assert tree(directory) == before
    assert "A  staged" in git(beside, "status", "--short")
    git(place.workspace, "gc", "-q")
    assert git(beside, "show", ":staged") == "mine\n"


async def test_case_RB_03_a_worktree_as_the_workspace_keeps_its_siblings(place: Corner, beside: Path) -> None:
    directory = place.workspace / ".git/worktrees/beside"
    git(place.workspace, "worktree", "add", "-q", str(place.root / "mine"), "-b", "mine")
    before = tree(directory)
    box = replace(place.box, writable=(place.root / "mine",))
    made = Corner(place.root, place.user, given=box)
    made.own()
    script = "echo x > f; git add f; git commit -q -m second && git worktree prune --expire now; git log --format=%s"
    output, _ = await made.run(script, cwd=place.root / "mine")
    assert output.endswith("second\nfirst\n")
    assert tree(directory) == before


ADDED = "git worktree add -q in -b in && cd in && echo x > f && git add f && git commit -qm 2"


async def test_a_worktree_in_the_workspace_can_be_added_used_and_removed(place: Corner) -> None:
    git(place.workspace, "commit", "-q", "--allow-empty", "-m", "first")
    place.own()
    assert await place.run(f"({ADDED}) && git worktree remove in && git worktree list | wc -l") == ("1\n", 0)
    assert not (place.workspace / "in").exists()
    assert git(place.workspace, "log", "--format=%s", "in") == "2\nfirst\n"


async def test_removing_a_users_worktree_fails_with_a_hint(place: Corner) -> None:
    """Its guards are mounts: else a command could exchange its `.git` while an editor of the user looks there."""
    git(place.workspace, "commit", "-q", "--allow-empty", "-m", "first")
    git(place.workspace, "worktree", "add", "-q", "in")
    place.own()
    pointer = (place.workspace / "in/.git").read_bytes()
    script = "git worktree remove in 2>&1"
    output, code = await place.run(script)
    assert code
    with closing(
        SandboxedCommand(place.box, Command(("/bin/sh", "-c", script), place.workspace, {"PATH": ""}, 9.0))
    ) as boxed:
        why = explain_failure(FinishedCommand(script, output, place.workspace, failed=True), boxed.restrictions)
    assert why == "in is protected"
    assert (place.workspace / "in/.git").read_bytes() == pointer
    # The way out.
    (place.workspace / "in/.git").unlink()
    git(place.workspace, "worktree", "prune")
    assert git(place.workspace, "worktree", "list").count("\n") == 1


async def test_git_still_collects_garbage_beside_another_worktree(place: Corner, beside: Path) -> None:
    assert beside.exists()
    directory = place.workspace / ".git/worktrees/beside"
    before = tree(directory)
    assert await place.run("git repack -q; git gc -q 2>&1") == ("", 0)
    assert len(list((place.workspace / ".git/objects/pack").glob("*.pack"))) == 1
    assert tree(directory) == before
