"""A file of secrets may be a link: what it leads to is covered, and where there is nothing to cover, commands run."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace
from sandboxed import SECRET, Corner, git

pytestmark = pytest.mark.xdist_group("sandbox")


@pytest.fixture
def place(place: Corner) -> Corner:
    (place.workspace / "store").mkdir()
    (place.workspace / "store/prod").write_text(SECRET)
    (place.root / "closed").write_text(SECRET)
    (place.root / "closed").chmod(0o600)
    place.own()
    return place


def link(place: Corner, target: str) -> None:
    path = place.workspace / "sub/.env"
    path.symlink_to(target.format(workspace=place.workspace, root=place.root, home=place.home))
    status = place.workspace.stat()
    os.chown(path, status.st_uid, status.st_gid, follow_symlinks=False)


@pytest.mark.parametrize(
    "target",
    ["../store/prod", "{workspace}/store/prod", "../store/../store/prod", "{root}/closed", "{home}/.ssh/id_ed25519"],
)
async def test_the_target_of_a_secret_symlink_is_not_read(place: Corner, target: str) -> None:
    link(place, target)
    output, code = await place.run("cat sub/.env; cat ../closed; cat sub/.env | wc -c; rm sub/.env; echo ran")
    assert SECRET not in output
    assert (output.endswith("ran\n"), code) == (True, 0)
    if "store" in target:
        assert SECRET not in (await place.run("cat store/prod"))[0]
    assert (place.workspace / "store/prod").read_text() == SECRET


@pytest.mark.parametrize(
    "target",
    ["nowhere", "/nowhere/at/all", "../store", ".env", "/etc/passwd", "/dev/null", "/bin/sh", "../.env.example"],
)
async def test_commands_run_without_anything_to_hide(place: Corner, target: str) -> None:
    link(place, target)
    before = sorted(path.name for path in place.workspace.rglob("*"))
    assert await place.run("cat .env.example; echo; echo ran") == ("NAME=example\nran\n", 0)
    assert sorted(path.name for path in place.workspace.rglob("*")) == before


async def test_a_symlink_created_by_a_command_stops_nothing(place: Corner) -> None:
    assert await place.run("ln -s /etc/passwd a; mv a .env.x; ln -s /bin/bash .env.y; echo ran") == ("ran\n", 0)
    assert await place.run("echo again") == ("again\n", 0)


async def test_a_tracked_symlink_looks_unchanged_to_git(place: Corner) -> None:
    link(place, "../store/prod")
    git(place.workspace, "add", "-f", "sub/.env")
    git(place.workspace, "commit", "-q", "-m", "first")
    place.own()
    assert await place.run("git status --short sub") == ("?? sub/.env.production\n", 0)


async def test_a_hard_link_of_a_secret_file_is_not_read(place: Corner) -> None:
    (place.workspace / "sub/deep").mkdir()
    names = ["plain.txt", "sub/deep/.hidden", "node_modules"]
    for name in names:
        os.link(place.workspace / ".env", place.workspace / name)
    place.own()
    output, code = await place.run(f"cat .env {' '.join(names)}; mv sub other; cat other/deep/.hidden; echo ran")
    assert SECRET not in output
    assert (output.endswith("ran\n"), code) == (True, 0)
    assert {(place.workspace / name).read_text() for name in names} == {(place.workspace / ".env").read_text()}


async def test_a_hard_link_in_another_root_is_not_read(place: Corner) -> None:
    beside = place.root / "beside"
    beside.mkdir()
    os.link(place.workspace / ".env", beside / "plain.txt")
    place.own()
    output, code = await replace(place, roots=(beside,)).run(f"cat {beside}/plain.txt; echo ran")
    assert SECRET not in output
    assert (output.endswith("ran\n"), code) == (True, 0)


async def test_links_beyond_the_limit_are_reported(place: Corner) -> None:
    for number in range(1_600):
        path = Path(place.workspace, f"d{number}/.env")
        path.parent.mkdir()
        path.touch()
    with pytest.raises(
        OSError, match=r"the workspace contains .* files such as .env \(1,602\) .* Work in a subdirectory"
    ):
        await place.run("true")
