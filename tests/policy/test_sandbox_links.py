"""What is bound into a sandbox cannot be exchanged between the look at it and the bind."""

import os
from pathlib import Path

import pytest
from sandboxed import SECRET, Corner

from yarrow.policy.process import Command
from yarrow.policy.sandbox.sandbox import Boxed, binds_descriptors

pytestmark = pytest.mark.xdist_group("sandbox")


def words(boxed: Boxed, option: str) -> dict[str, str]:
    """What is bound by an option, by where."""
    argv = boxed.command.argv
    return {argv[at + 2]: argv[at + 1] for at, word in enumerate(argv) if word == option}


def test_what_commands_can_exchange_is_bound_by_descriptor(place: Corner) -> None:
    assert binds_descriptors(), "this bubblewrap is older than what scripts/system.sh installs"
    (place.workspace / ".yarrow").mkdir()
    boxed = Boxed(place.box, Command(("true",), place.workspace, {}, 10))
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


async def test_no_descriptor_is_open_inside(place: Corner) -> None:
    output, _ = await place.run("ls /proc/self/fd; ls -l /proc/1/fd 2>&1 | grep -c workspace")
    assert output.split() == ["0", "1", "2", "3", "0"]


@pytest.mark.parametrize("name", ["sub", ".git/hooks", ".yarrow"])
async def test_a_link_put_there_after_the_look_stops_the_command(
    place: Corner, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place.workspace / name
    path.mkdir(exist_ok=True)
    place.own()

    def swap(*_: object) -> dict[Path, Path]:
        path.rename(place.workspace / "aside")
        path.symlink_to(place.service)
        return {}

    monkeypatch.setattr("yarrow.policy.sandbox.sandbox.covers", swap)
    with pytest.raises(OSError, match="became a link while its sandbox was made"):
        await place.run("touch ran")
    assert not (place.workspace / "ran").exists()


@pytest.mark.parametrize("name", ["sub", ".git/hooks", ".yarrow"])
async def test_a_link_put_there_before_the_launcher_binds_shows_nothing(
    place: Corner, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = place.workspace / name
    path.mkdir(exist_ok=True)
    place.own()
    own = Corner.own

    def swap(self: Corner) -> None:
        own(self)
        path.rename(place.workspace / "aside")
        path.symlink_to(place.service)

    monkeypatch.setattr(Corner, "own", swap)
    output, code = await place.run(f"cat {name}/token {place.service}/token; touch ran")
    assert SECRET not in output
    assert code != 0
    assert not (place.workspace / "ran").exists()
