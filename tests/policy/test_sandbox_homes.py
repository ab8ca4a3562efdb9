"""Whatever the home is, commands have one, and the keys of the real one are nowhere inside."""

import os
import shutil
from pathlib import Path

import pytest
from msgspec.structs import replace
from sandboxed import SECRET, Corner

from yarrow.policy.sandbox.bwrap_args import WorkspaceMounts, build_arguments
from yarrow.policy.sandbox_factory import SandboxFactory
from yarrow.policy.workspace import Workspace

pytestmark = pytest.mark.xdist_group("sandbox")
SCRIPT = "cd && touch ~/x && ls -A ~ && test $HOME = $PWD && echo ran"


@pytest.mark.parametrize("home", ["missing", "ws/file.txt", "/", "/usr", "/etc", "/opt", "/nowhere", "/proc", "/dev"])
async def test_a_missing_home_exists_in_the_sandbox(place: Corner, home: str) -> None:
    place = replace(place, at_home=place.root / home)
    for _ in range(2):
        assert await place.run(SCRIPT) == ("x\nran\n", 0)
    assert await place.run("test -e /usr/bin/env && test -e /etc/passwd && cat file.txt") == ("mine\n", 0)


def test_keys_of_a_visible_home_are_hidden(place: Corner, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that holds programs cannot have another in its place."""
    monkeypatch.setattr("yarrow.policy.sandbox.sandbox_spec.SYSTEM_DIRECTORIES", (str(place.home / "bin"),))
    words = build_arguments(place.box, WorkspaceMounts([], {}, None), {}, cwd=place.workspace)
    told = " ".join(words)
    for name in (".ssh", ".aws", ".gnupg", ".yarrow"):
        assert f" --tmpfs {place.home}/{name} " in told
        assert f" --remount-ro {place.home}/{name} " in told
    assert f" --ro-bind /dev/null {place.home}/.netrc " in told
    assert f" {place.home} " not in told


async def test_a_symlinked_home_is_its_target(place: Corner) -> None:
    link = place.root / "link"
    link.symlink_to(place.home)
    boxes = SandboxFactory("workspace", home=link)
    box = boxes.create("s", Workspace.make(place.workspace))
    assert box is not None
    assert box.home == place.home
    assert await replace(place, called=str(link)).run(SCRIPT) == ("x\nran\n", 0)


@pytest.mark.parametrize("kept", ["dotfiles/ssh", "ssh", "deep/er/ssh"])
async def test_symlinked_keys_of_the_home_are_hidden(place: Corner, kept: str) -> None:
    target = place.workspace / kept
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(place.home / ".ssh", target)
    (place.home / ".ssh").symlink_to(target)
    (place.root / "netrc").write_text(SECRET)
    (place.home / ".netrc").unlink()
    (place.home / ".netrc").symlink_to(place.root / "netrc")
    place.own()
    first = kept.split("/", maxsplit=1)[0]
    for _ in range(2):
        output, code = await place.run(
            f"cat {kept}/*; cat {place.root}/netrc; mv {first} moved; cat moved/*/* moved/*; echo ran"
        )
        assert SECRET not in output
        assert (output.endswith("ran\n"), code) == (True, 0)
    assert (target / "id_ed25519").read_text() == SECRET


@pytest.mark.parametrize("root", [".git/hooks", ".yarrow", "bare.git/hooks", ".git/modules/x/hooks"])
async def test_commands_cannot_write_in_a_workspace_that_is_protected(place: Corner, root: str) -> None:
    for name in ("bare.git", ".git/modules/x"):
        for part in ("objects", "refs", "hooks"):
            (place.workspace / name / part).mkdir(parents=True)
        (place.workspace / name / "HEAD").touch()
    (place.workspace / root).mkdir(parents=True, exist_ok=True)
    place.own()
    box = SandboxFactory("workspace", home=place.home).create("s", Workspace.make(place.workspace / root))
    assert box is not None
    inside = replace(place, given=replace(box, session_dir=place.root / "private"))
    output, code = await inside.run("echo x > planted; echo ran", cwd=place.workspace / root)
    assert "Read-only file system" in output
    assert (output.endswith("ran\n"), code) == (True, 0)
    assert os.listdir(place.workspace / root) == []  # noqa: PTH208 (the names are all)


async def test_a_write_to_a_hidden_path_fails(place: Corner) -> None:
    inside = replace(place, hidden=(place.workspace / "own",))
    Path(place.workspace, "own").mkdir()
    place.own()
    output, _ = await inside.run("echo x > own/settings || echo refused")
    assert output.endswith("refused\n")
