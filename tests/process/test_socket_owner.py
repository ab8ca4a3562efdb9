"""Attaching to a socket that another user controls is refused in a sentence, before a token is sent."""

import os
import socket
import stat
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest

from doubles.world import World
from yarrow.cli.remote_connection import check_socket_owner
from yarrow.errors import UsageError

STRANGER = 65_533
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")


@pytest.fixture
def place() -> Generator[Path]:
    """A directory below one that is world-writable but sticky."""
    with tempfile.TemporaryDirectory(prefix="owner-") as name:
        yield Path(os.path.realpath(name))


def bound(path: Path) -> Path:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
    return path


def refused(path: Path) -> str:
    with pytest.raises(UsageError) as error:
        check_socket_owner(path)
    return error.value.message


def test_the_users_socket_is_accepted_below_a_sticky_directory(place: Path) -> None:
    place.chmod(0o1777)
    check_socket_owner(bound(place / "run/yarrow.sock"))
    (place / "link").symlink_to(place / "run")
    check_socket_owner(place / "link/yarrow.sock")


def test_symlinks_and_other_files_are_refused(place: Path) -> None:
    real = bound(place / "run/yarrow.sock")
    (place / "link.sock").symlink_to(real)
    assert "is a symlink: pass the path of the socket itself" in refused(place / "link.sock")
    (place / "file").touch()
    assert "is not a socket" in refused(place / "file")


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o722, 0o707])
def test_a_directory_writable_by_others_is_refused(place: Path, mode: int) -> None:
    path = bound(place / "run/yarrow.sock")
    path.parent.chmod(mode)
    assert "is writable by other users" in refused(path)


def test_a_world_writable_parent_is_refused(place: Path) -> None:
    path = bound(place / "a/run/yarrow.sock")
    (place / "a").chmod(0o775)
    check_socket_owner(path)
    (place / "a").chmod(0o777)
    assert f"{place}/a is writable by other users" in refused(path)


@as_root
@pytest.mark.parametrize("theirs", ["yarrow.sock", ".", "..", "link"])
def test_a_socket_of_another_user_is_refused(place: Path, theirs: str) -> None:
    path = bound(place / "a/run/yarrow.sock")
    if theirs == "link":
        (place / "link").symlink_to(path.parent)
        os.chown(place / "link", STRANGER, STRANGER, follow_symlinks=False)
        assert "belongs to another user" in refused(place / "link/yarrow.sock")
        return
    os.chown(path.parent / theirs, STRANGER, STRANGER)
    assert "belongs to another user" in refused(path)


@as_root
async def test_attaching_to_an_insecure_socket_is_reported_and_sends_nothing(world: World, place: Path) -> None:
    path = place / "run/yarrow.sock"
    path.parent.mkdir(mode=0o700)
    (path.parent / "yarrow.sock.token").write_text("secret-token\n")
    (path.parent / "yarrow.sock.token").chmod(0o600)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        server.setblocking(False)
        os.chown(path, STRANGER, STRANGER)
        ended = await world.run("--attach", str(path), "hi")
        assert ended.code == 2
        assert ended.err == (
            f"yarrow: {path} belongs to another user, who would receive your prompts: attach to your own service, "
            "or to HOST:PORT with --tls-pin\n"
        )
        with pytest.raises(BlockingIOError):
            server.accept()
    assert stat.S_ISSOCK(path.lstat().st_mode)
