"""Nothing of a process stays in the system's directory for temporary files, also when it was killed."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from sandboxed import SECRET, USERS, Corner, corner

from yarrow.policy.sandbox_factory import SandboxFactory
from yarrow.policy.temp_dir import PREFIX, temp_directory
from yarrow.policy.workspace import Workspace

MAKES = "from yarrow.policy.temp_dir import *; p = temp_directory(); (p / 'x').touch(); print(p, flush=True); input()"


def started(folder: Path) -> tuple[subprocess.Popen[bytes], Path]:
    """A process with a directory of its own, that lives until its input ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAKES],
        env=os.environ | {"TMPDIR": str(folder)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().decode().strip())


def test_leftovers_of_a_killed_process_are_removed_and_used_ones_stay(tmp_path: Path) -> None:
    other = tmp_path / "yarrow-of-somebody"
    other.mkdir()
    (link := tmp_path / f"{PREFIX}link").symlink_to(other)
    (killed, left), (living, used), (ending, own) = (started(tmp_path) for _ in range(3))
    killed.kill()
    killed.communicate()
    assert left.is_dir()
    assert ending.communicate(b"\n")[0] == b""
    assert ending.returncode == 0
    assert sorted(tmp_path.iterdir()) == sorted([other, link, used.parents[1]])
    assert (used / "x").exists()
    assert not own.exists()
    living.communicate(b"\n")
    assert sorted(tmp_path.iterdir()) == sorted([other, link])


def test_a_temporary_directory_in_the_workspace_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (within := tmp_path / "tmp").mkdir()
    monkeypatch.chdir(tmp_path)
    process, made = started(within)
    process.communicate(b"\n")
    assert not made.is_relative_to(tmp_path)
    assert not list(within.iterdir())


LOOKS: dict[str, Callable[[Path, Path], str]] = {
    "grep": lambda folder, _: f"grep -rs '' {folder} | rev; true",
    "opened first": lambda folder, _: f"chmod -R 777 {folder}; grep -rs '' {folder} | rev; true",
    "moved aside": lambda folder, top: f"mv {top} {folder}/there; cat {folder}/there/*/*/* | rev; true",
    "from within": lambda _, top: f"cd {top}/own && (cat */* | rev; ls -la .); true",
    "guessed": lambda _, top: f"cd {top}/own && for n in 0 1 output work; do cat $n/x | rev; done; true",
    "by copy": lambda _, top: f"cp -a {top} copy; tar cf - {top} | rev; cat copy/*/*/* | rev; true",
    "in a namespace": lambda folder, _: f"unshare -Ur grep -rs '' {folder} | rev; true",
}


@pytest.mark.parametrize("user", USERS)
@pytest.mark.parametrize("look", LOOKS)
async def test_case_RS_S6_another_session_is_hidden_in_the_temporary_directory(
    user: str, look: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with corner(user) as made:
        folder = made.root / "temporary"
        folder.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        monkeypatch.setattr("yarrow.policy.temp_dir._created", [])
        private = temp_directory()
        (private / "x").write_text(SECRET)
        output, code = await shown(made, folder).run(LOOKS[look](folder, private.parents[1]))
        assert code == 0
        assert SECRET[::-1] not in output
        assert private.name not in output
        assert (private / "x").read_text() == SECRET


@pytest.mark.parametrize("user", USERS)
async def test_case_RS_S6_a_session_of_the_same_service_is_masked(user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mount table of a sandbox names the directory that holds those of all sessions."""
    with corner(user) as made:
        folder = made.root / "temporary"
        folder.mkdir()
        monkeypatch.setattr(tempfile, "tempdir", str(folder))
        monkeypatch.setattr("yarrow.policy.temp_dir._created", [])
        boxes = SandboxFactory("workspace", home=made.home)
        workspace = Workspace.make(made.workspace, read=[str(folder)])
        given = [boxes.create(name, workspace) for name in ("one", "two")]
        places: list[Corner] = [Corner(made.root, user, given=replace(box, owner=None)) for box in given if box]
        assert await places[0].run(f"echo {SECRET} > /tmp/x; cat /tmp/x") == (f"{SECRET}\n", 0)
        sources = "$(cut -d' ' -f4 /proc/self/mountinfo | grep yarrow-scratch)"
        look = f"for p in {sources}; do ls -R ${{p%/*/*}}; cat ${{p%/*/*}}/*/*/x; done | rev; cat /tmp/x"
        output, _ = await places[1].run(look)
        assert SECRET[::-1] not in output
        assert "No such file" in output


def shown(made: Corner, folder: Path) -> Corner:
    """A sandbox that shows a directory, as one shows a temporary directory outside /tmp."""
    return Corner(made.root, made.user, given=replace(made.box, readable=(folder,)))
