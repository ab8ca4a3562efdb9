"""Commands run as the owner of the workspace where Yarrow is root."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace
from sandboxed import NOBODY, SECRET, Corner, corner

from yarrow.policy.sandbox.sandbox_spec import CommandUser, owner_of, owner_problem
from yarrow.policy.sandbox_factory import SandboxFactory
from yarrow.policy.temp_dir import temp_directory
from yarrow.policy.workspace import Workspace

pytestmark = [
    pytest.mark.xdist_group("sandbox"),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away"),
]


def given(place: Corner) -> Corner:
    """Return the corner with a workspace of another owner, and a home of root."""
    for path in (place.workspace, *place.workspace.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    place.home.chmod(0o700)
    box = SandboxFactory("workspace", home=place.home, hidden=(place.service,)).create(
        place.root.name, Workspace.make(place.workspace)
    )
    assert box is not None
    return replace(place, given=box)


async def test_case_rb_16_commands_change_a_workspace_of_another_owner() -> None:
    with corner("root") as made:
        place = given(made)
        assert await place.run("echo more >> file.txt && touch new && mkdir build && id -u") == (f"{NOBODY}\n", 0)
        assert (place.workspace / "file.txt").read_text() == "mine\nmore\n"
        assert {path.stat().st_uid for path in place.workspace.iterdir()} == {NOBODY}
        assert await place.run("echo x > ~/.x && echo y > /tmp/y && cat ~/.x /tmp/y") == ("x\ny\n", 0)
        assert await place.run("git add file.txt && git commit -q -m work && git log --format=%s") == ("work\n", 0)
        output, _ = await place.run("cat .env ~/papers.txt ~/.netrc; id -G; grep CapEff /proc/self/status")
        assert SECRET not in output
        assert output.endswith(f"{NOBODY}\nCapEff:\t0000000000000000\n")
        said = SandboxFactory("workspace", home=place.home).describe_user(place.workspace)
        assert said == f"Yarrow runs as root; commands run as user {NOBODY}, who owns {place.workspace}"


async def test_a_workspace_unreachable_by_its_owner_is_reported_and_works_as_root() -> None:
    with corner("root") as made:
        made.root.chmod(0o700)
        place = given(made)
        assert place.box.owner is None
        assert await place.run("cat file.txt") == ("mine\n", 0)
        said = SandboxFactory("workspace", home=place.home).describe_user(place.workspace)
        assert said.endswith(f"that user has no access to {place.root}")


@pytest.mark.parametrize("missing", ["-chown", "-setuid,-setgid"])
def test_a_failing_change_of_user_is_reported(missing: str) -> None:
    with corner("root") as made:
        place = given(made)
        script = (
            "import sys; from pathlib import Path; from yarrow.policy.sandbox_factory import SandboxFactory;"
            "print(SandboxFactory('workspace', home=Path(sys.argv[1])).describe_user(Path(sys.argv[2])))"
        )
        words = ("setpriv", f"--bounding-set={missing}", "--inh-caps=-all", sys.executable, "-c", script)
        done = subprocess.run([*words, place.home, place.workspace], capture_output=True, text=True, check=True)
        assert done.stdout.rstrip().endswith("root cannot act as that user here (Operation not permitted)")


async def test_root_that_owns_the_workspace_works_beside_files_of_others() -> None:
    with corner("root") as made:
        (made.workspace / "theirs").mkdir()
        (made.workspace / "theirs/file").write_text("theirs\n")
        for path in (made.workspace / "theirs", made.workspace / "theirs/file"):
            os.chown(path, NOBODY, NOBODY)
        assert await made.run("cat theirs/file && echo more >> file.txt && id -u") == ("theirs\n0\n", 0)
        assert owner_of(made.workspace) is None
        assert SandboxFactory("workspace", home=made.home).describe_user(made.workspace) == ""


@pytest.mark.parametrize("level", ["off", "workspace"])
def test_running_as_root_is_not_reported_for_roots_workspace(level: str, tmp_path: Path) -> None:
    boxes = SandboxFactory("off" if level == "off" else "workspace", home=tmp_path / "home")
    if level == "off":
        os.chown(tmp_path, NOBODY, NOBODY)
    assert boxes.describe_user(tmp_path) == ""


def test_the_path_to_a_workspace_is_checked_for_its_owner(tmp_path: Path) -> None:
    owner = CommandUser(NOBODY, NOBODY)
    below = tmp_path / "a/b"
    below.mkdir(parents=True)
    for path in (tmp_path, *tmp_path.parents):
        if path.parent != path and path.stat().st_uid == 0 and not path.stat().st_mode & 1:
            assert not owner.can_reach(str(below))
            return
    for mode, user, group, reached in ((0o701, 0, 0, True), (0o770, 0, 0, False), (0o710, 0, NOBODY, True)):
        os.chown(tmp_path / "a", user, group)
        (tmp_path / "a").chmod(mode)
        assert owner.can_reach(str(below)) is reached
    assert owner_problem(owner, below, temp_directory()) == ""
