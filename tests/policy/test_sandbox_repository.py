"""Commands of a workspace that is a subdirectory of a repository use the whole repository, but for what is guarded."""

import asyncio
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from msgspec.structs import replace
from sandboxed import NOBODY, SECRET, Corner, git

from yarrow.policy.environment import child_environment
from yarrow.policy.sandbox_factory import SandboxAccess, SandboxFactory, find_enclosing_repository
from yarrow.policy.workspace import Workspace

pytestmark = pytest.mark.xdist_group("sandbox")
WORK = (
    "git switch -q topic",
    "git switch -q -c fresh && git commit -q --allow-empty -m fresh",
    "git switch -q topic && git rebase -q main",
    "git rebase -q main topic && git switch -q main && git merge -q topic",
    "echo more >> here.txt && echo more >> ../../shared.txt && git stash -q && git stash pop -q",
    "echo more >> ../../shared.txt && git commit -qam more && git reset -q --hard HEAD~1",
    "git rm -q ../../shared.txt && git mv here.txt there.txt",
    "cd ../.. && git bisect start topic topic~1 && git bisect reset",
    "git switch -q topic && git branch -q -d main",
    "cd .. && git checkout -q topic -- . && cd .. && git add -A",
)
"""Programs of git that change the branch, the index and files outside the subdirectory."""


def settle(place: Corner, reach: SandboxAccess = SandboxAccess()) -> Corner:  # noqa: B008 (it is frozen)
    """Return the corner with a branch to switch to, and a sandbox made for a subdirectory of its repository."""
    app = place.workspace / "packages/app"
    app.mkdir(parents=True)
    (app / "here.txt").write_text("here\n")
    (place.workspace / "shared.txt").write_text("shared\n")
    (place.workspace / ".gitignore").write_text(".env\n.env.production\n")
    git(place.workspace, "add", "-A")
    git(place.workspace, "commit", "-q", "-m", "first")
    git(place.workspace, "switch", "-q", "-c", "topic")
    (place.workspace / "shared.txt").write_text("topic\n")
    (place.workspace / "topic.txt").write_text("topic\n")
    git(place.workspace, "add", "-A")
    git(place.workspace, "commit", "-q", "-m", "topic")
    git(place.workspace, "switch", "-q", "main")
    place.own()
    box = SandboxFactory("workspace", home=place.home, hidden=(place.service,), access=reach).create(
        "s", Workspace.make(app)
    )
    assert box is not None
    return replace(place, given=replace(box, session_dir=place.root / "private"))


def state(repository: Path) -> tuple[str, ...]:
    """Return what git says of the repository from outside: files, branches, and their trees."""
    words = (("status", "--porcelain", "--branch"), ("branch", "--format=%(refname) %(tree)"), ("stash", "list"))
    return tuple(git(repository, *one) for one in words)


@pytest.mark.parametrize("work", WORK)
async def test_case_rb_05_git_in_a_subdirectory_works_as_without_a_sandbox(
    place: Corner, tmp_path: Path, work: str
) -> None:
    place = settle(place)
    plain = shutil.copytree(place.workspace, tmp_path / "plain")
    environment = child_environment({**os.environ, "HOME": str(tmp_path)})
    without = ("bash", "-c", f"git config --global safe.directory '*'; {work}")
    await asyncio.to_thread(
        subprocess.run, without, cwd=plain / "packages/app", env=environment, check=True, capture_output=True
    )
    output, code = await place.run(work, cwd=place.workspace / "packages/app")
    assert code == 0, output
    assert state(place.workspace) == state(plain)


async def test_a_subdirectory_has_the_same_protected_paths(place: Corner) -> None:
    place = settle(place)
    app = place.workspace / "packages/app"
    hook = place.workspace / ".git/hooks/pre-commit"
    for path in (hook, place.workspace / ".git/config", place.workspace / ".yarrow/config.json"):
        before = path.read_bytes() if path.exists() else None
        await place.run(f"mkdir -p $(dirname {path}); echo x > {path}; echo x >> {path}", cwd=app)
        assert (path.read_bytes() if path.exists() else None) == before
    output, _ = await place.run("cat ../../.env ../../sub/.env.production", cwd=app)
    assert SECRET not in output
    assert await place.run("echo new > ../../new.txt && cat ../../new.txt", cwd=app) == ("new\n", 0)
    assert (place.workspace / "new.txt").read_text() == "new\n"


async def test_case_rs_s8_a_repository_is_readable_except_its_secrets(place: Corner) -> None:
    place = settle(place)
    app = place.workspace / "packages/app"
    assert await place.run("cat ../../shared.txt && git log --format=%s", cwd=app) == ("shared\nfirst\n", 0)
    output, _ = await place.run("cat ../../.env | rev; git grep --no-index -h . -- ../../.env | rev", cwd=app)
    assert SECRET[::-1] not in output


async def test_a_read_repository_is_writable_only_in_the_workspace(place: Corner) -> None:
    place = settle(place, SandboxAccess(repository="read"))
    app, before = place.workspace / "packages/app", state(place.workspace)
    assert await place.run("cat ../../shared.txt && git log --format=%s", cwd=app) == ("shared\nfirst\n", 0)
    for write in ("echo x > ../../x", "git switch -q topic", "git commit -q --allow-empty -m x", "touch ../x"):
        output, code = await place.run(write, cwd=app)
        assert code != 0
        assert "Read-only file system" in output
    assert state(place.workspace) == before
    output, _ = await place.run("cat ../../.env", cwd=app)
    assert SECRET not in output
    assert await place.run("echo more > here.txt", cwd=app) == ("", 0)


def test_the_line_at_the_start_names_the_repository(place: Corner) -> None:
    settle(place)
    app = place.workspace / "packages/app"
    said = f"Workspace: packages/app; commands can change the repository {place.workspace}"
    assert SandboxFactory("workspace", home=place.home).describe_repository(app) == said
    reading = SandboxFactory("strict", home=place.home, access=SandboxAccess(repository="read"))
    assert reading.describe_repository(app) == said.replace("change", "read")
    assert SandboxFactory("workspace", home=place.root / "other").describe_repository(place.workspace) == ""
    assert SandboxFactory("off", home=place.home).describe_repository(app) == ""


def make_repository(top: Path) -> Path:
    (top / ".git").mkdir(parents=True)
    (top / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (top / "a/b").mkdir(parents=True)
    return top / "a/b"


def test_a_repository_that_contains_the_home_is_not_used(tmp_path: Path) -> None:
    below = make_repository(tmp_path)
    assert find_enclosing_repository(below, ()) == tmp_path
    assert find_enclosing_repository(below, (tmp_path,)) is None
    assert find_enclosing_repository(below, (tmp_path / "a",)) is None
    assert find_enclosing_repository(below, (tmp_path.parent,)) == tmp_path
    assert find_enclosing_repository(tmp_path, ()) is None
    assert find_enclosing_repository(tmp_path / ".git", ()) is None


def test_the_nearest_repository_or_worktree_is_used(tmp_path: Path) -> None:
    below = make_repository(tmp_path)
    (tmp_path / "a/.git").write_text("gitdir: /elsewhere\n")
    assert find_enclosing_repository(below, ()) == tmp_path / "a"
    (tmp_path / "a/.git").unlink()
    (tmp_path / "a/.git").mkdir()  # git passes over an empty one
    assert find_enclosing_repository(below, ()) == tmp_path


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("given", [".", ".git", "a/b"])
def test_a_repository_of_another_owner_is_not_used(tmp_path: Path, given: str) -> None:
    """Anybody can put a `.git` into /tmp."""
    below = make_repository(tmp_path)
    os.chown(tmp_path / given, NOBODY, NOBODY)
    assert find_enclosing_repository(below, ()) is None


@pytest.mark.parametrize("has_network", [True, False])
async def test_the_network_is_available_unless_turned_off(place: Corner, *, has_network: bool) -> None:
    box = SandboxFactory("workspace", home=place.home, access=SandboxAccess(network=has_network)).create(
        "s", Workspace.make(place.workspace)
    )
    assert box is not None
    place = replace(place, given=replace(box, session_dir=place.root / "private"))
    output, _ = await place.run("readlink /proc/self/ns/net")
    assert (output.strip() == str(Path("/proc/self/ns/net").readlink())) is has_network
