"""Symlinks named `.git`, or in git directories, and git directories that cannot be read: commands run beside them."""

import os
import shutil
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from sandboxed import NOBODY, Corner, git

from yarrow.policy.sandbox.git_baseline import find_planted, rescan, take_baseline
from yarrow.policy.sandbox.protected_paths import merge_earlier, protection_gaps, scan

pytestmark = pytest.mark.xdist_group("sandbox")

EVIL = "git config -f {0}/config core.fsmonitor id; echo id > {0}/hooks/evil; chmod 755 {0}/hooks/evil; "


async def test_a_dangling_symlink_of_the_user_stops_no_command_and_stays(place: Corner) -> None:
    link = place.workspace / "n/.git"
    link.parent.mkdir()
    link.symlink_to("../zz")
    place.own()
    for _ in range(2):
        assert await place.run("touch ran; ls -A n") == (".git\n", 0)
        assert place.taken == []
    assert str(link.readlink()) == "../zz"
    assert await place.run("rm n/.git") == ("", 0)
    assert not link.is_symlink()


async def test_a_dangling_symlink_of_a_command_is_quarantined(place: Corner) -> None:
    await place.run("mkdir n; ln -s ../zz n/.git")
    assert [entry.path for entry in place.taken] == [place.workspace / "n/.git"]
    assert await place.run("echo ran") == ("ran\n", 0)


@pytest.mark.parametrize("name", ["store", ".repo/projects/n.git"])
async def test_the_target_of_a_git_symlink_is_protected(place: Corner, name: str) -> None:
    store, link = place.workspace / name, place.workspace / "n/.git"
    store.parent.mkdir(parents=True, exist_ok=True)
    git(place.root, "init", "-q", "--separate-git-dir", str(store), str(place.workspace / "n"))
    (store / "hooks").mkdir(exist_ok=True)
    link.unlink()
    link.symlink_to(os.path.relpath(store, link.parent))
    config = (store / "config").read_bytes()
    place.own()
    output, code = await place.run(
        "cd n; git status --short && touch a && git add a && git -c user.name=n -c user.email=e commit -qm a 2>&1"
    )
    assert (output, code) == ("", 0)
    assert place.taken == []
    output, _ = await place.run(f"{EVIL.format(name)} mv {name} moved; true")
    assert "Read-only" in output
    assert (store / "config").read_bytes() == config
    assert not (store / "hooks/evil").exists()


async def test_the_layout_of_androids_repo_is_protected(place: Corner) -> None:
    """As Android's `repo` makes it: `.git` is a symlink, and so are hooks and objects in what it leads to."""
    project, shared = place.workspace / ".repo/projects/n.git", place.workspace / ".repo/project-objects/n.git"
    project.parent.mkdir(parents=True)
    git(place.root, "init", "-q", "--separate-git-dir", str(project), str(place.workspace / "n"))
    (project / "hooks").mkdir(exist_ok=True)
    shared.mkdir(parents=True)
    for name in ("hooks", "objects"):
        (project / name).rename(shared / name)
        (project / name).symlink_to(f"../../project-objects/n.git/{name}")
    (place.workspace / "n/.git").unlink()
    (place.workspace / "n/.git").symlink_to("../.repo/projects/n.git")
    place.own()
    assert await place.run("cd n; touch a; git add a && git -c user.name=n -c user.email=e commit -qm a 2>&1") == (
        "",
        0,
    )
    assert place.taken == []
    await place.run(EVIL.format(".repo/projects/n.git"))
    assert not (shared / "hooks/evil").exists()
    await place.run("cd .repo/projects/n.git; rm hooks; mkdir hooks; echo id > hooks/evil; chmod 755 hooks/evil")
    assert [entry.path for entry in place.taken] == [project / "hooks/evil"]


async def test_a_replaced_symlink_is_judged(place: Corner) -> None:
    (place.workspace / "n").mkdir()
    (place.workspace / "n/.git").symlink_to("../zz")
    place.own()
    await place.run("rm n/.git; git init -q n; git -C n config core.fsmonitor id")
    assert [entry.path for entry in place.taken] == [place.workspace / "n/.git/config"]


async def test_symlinked_modules_stop_no_command(place: Corner) -> None:
    git(place.root, "init", "-q", "--bare", str(place.workspace / "store/m"))
    (place.workspace / ".git/modules").symlink_to("../store")
    place.own()
    for _ in range(2):
        assert await place.run("echo ran") == ("ran\n", 0)


async def test_a_directory_replaced_by_a_symlink_stops_no_command(place: Corner) -> None:
    git(place.root, "init", "-q", str(place.workspace / "a/b"))
    place.own()
    await place.run("true")
    (place.workspace / "a").rename(place.workspace / "c")
    (place.workspace / "a").symlink_to("c")
    assert await place.run("echo ran") == ("ran\n", 0)


def test_a_symlink_to_a_changing_repository_elsewhere_stays(tmp_path: Path) -> None:
    (tmp_path / "ws/n").mkdir(parents=True)
    git(tmp_path, "init", "-q", "--bare", "store")
    (tmp_path / "ws/n/.git").symlink_to(tmp_path / "store")
    before = take_baseline([tmp_path / "ws"], [], [])
    (tmp_path / "store/packed-refs").write_text("# by the user\n")
    assert find_planted(before, rescan(before)) == []


@pytest.fixture
def corner_root() -> Generator[Path]:
    """A directory that everybody can reach."""
    root = Path(os.path.realpath(tempfile.mkdtemp(prefix="closed-")))
    root.chmod(0o755)
    yield root
    shutil.rmtree(root)


def as_nobody(look: Callable[[], list[str]]) -> list[str]:
    """Return what a look returns without the rights of root, which can read everything."""
    read, write = os.pipe()
    if not (child := os.fork()):
        try:
            if os.geteuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            os.write(write, "\n".join(look()).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as answer:
        return answer.read().split("\n")


@pytest.mark.parametrize("mode", [0o000, 0o600, 0o311])
def test_an_unreadable_git_directory_stops_no_command(corner_root: Path, mode: int) -> None:
    closed = corner_root / "n/.git"
    git(corner_root, "init", "-q", "n")
    for path in (corner_root, *corner_root.rglob("*")):
        if os.geteuid() == 0:
            os.chown(path, NOBODY, NOBODY)
    closed.chmod(mode)

    def look() -> list[str]:
        found = merge_earlier(corner_root, scan(corner_root))
        before = take_baseline([corner_root], [], [])
        planted = find_planted(before, rescan(before))
        return [*map(str, found.unreadable), *protection_gaps([corner_root]), *(str(one.path) for one in planted)]

    expected = [str(closed), f"{closed}: permission denied, so commands cannot see it"]
    assert as_nobody(look) == ([""] if mode == 0o311 else expected)
    assert closed.stat().st_mode & 0o777 == mode
