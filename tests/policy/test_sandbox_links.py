"""Paths bound into a sandbox cannot be swapped between the check and the bind."""

import os
from pathlib import Path

import pytest
from sandboxed import SECRET, Corner

from yarrow.policy.command_execution import Command, LauncherError
from yarrow.policy.sandbox.probe import can_bind_descriptors
from yarrow.policy.sandbox.sandboxed_command import SandboxedCommand

pytestmark = pytest.mark.xdist_group("sandbox")


def words(boxed: SandboxedCommand, option: str) -> dict[str, str]:
    """Paths bound by an option, by mount point."""
    argv = boxed.command.argv
    return {argv[at + 2]: argv[at + 1] for at, word in enumerate(argv) if word == option}


def test_replaceable_paths_are_bound_by_descriptor(place: Corner) -> None:
    assert can_bind_descriptors(), "this bubblewrap is older than what scripts/system.sh installs"
    (place.workspace / ".yarrow").mkdir()
    boxed = SandboxedCommand(place.box, Command(("true",), place.workspace, {}, 10))
    try:
        bound = words(boxed, "--bind-fd") | words(boxed, "--ro-bind-fd")
        at = {str(place.workspace / name) for name in ("", ".git", ".git/hooks", ".git/config", ".yarrow", "sub")}
        assert set(bound) == at
        for path, number in bound.items():
            assert os.path.samestat(os.fstat(int(number)), Path(path).stat())
            assert int(number) in boxed.command.descriptors
    finally:
        boxed.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(int(bound[str(place.workspace)]))


async def test_no_descriptor_leaks_into_the_sandbox(place: Corner) -> None:
    output, _ = await place.run("ls /proc/self/fd; ls -l /proc/1/fd 2>&1 | grep -c workspace")
    assert output.split() == ["0", "1", "2", "3", "0"]


@pytest.fixture(params=["sub", ".git/hooks", ".yarrow"])
def exchanged(place: Corner, request: pytest.FixtureRequest) -> Path:
    """A directory of the workspace that is bound into a sandbox."""
    path = place.workspace / request.param
    path.mkdir(exist_ok=True)
    place.own()
    return path


def exchange(place: Corner, path: Path) -> None:
    """Put a link to the service's own directory in the place of one of the workspace."""
    path.rename(place.workspace / "aside")
    path.symlink_to(place.service)


async def test_a_symlink_created_after_the_scan_stops_the_command(
    place: Corner, exchanged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swap(*_: object) -> dict[Path, Path]:
        exchange(place, exchanged)
        return {}

    monkeypatch.setattr("yarrow.policy.sandbox.sandboxed_command.make_masks", swap)
    with pytest.raises(OSError, match="became a symlink during the sandbox setup"):
        await place.run("touch ran")
    assert not (place.workspace / "ran").exists()


async def test_a_symlink_created_before_the_bind_shows_nothing(
    place: Corner, exchanged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = Corner.own

    def swap(self: Corner) -> None:
        own(self)
        exchange(place, exchanged)

    monkeypatch.setattr(Corner, "own", swap)
    name = exchanged.relative_to(place.workspace)
    with pytest.raises(LauncherError) as refused:
        await place.run(f"cat {name}/token {place.service}/token; touch ran")
    assert SECRET not in str(refused.value)
    assert not (place.workspace / "ran").exists()
