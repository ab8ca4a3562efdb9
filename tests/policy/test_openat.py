"""Opened paths lie below their root even while another process swaps a directory and a symlink."""

import errno
import os
import shutil
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from yarrow.platform import linux_syscalls
from yarrow.policy.refusal import Refused
from yarrow.policy.symlink_free_open import PATH_CHANGED_ERRORS, open_beneath, open_directory
from yarrow.policy.workspace import Workspace
from yarrow.tool.atomic_file_change import open_writable
from yarrow.tool.base import ToolFailed

TRIES = 1_500
INSIDE, OUTSIDE = b"inside", b"outside"


@pytest.fixture(params=["openat2", "step by step"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "step by step":
        monkeypatch.setattr(linux_syscalls, "is_supported", lambda: False)
    return request.param


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "ws/dir/deep").mkdir(parents=True)
    (tmp_path / "ws/dir/f").write_bytes(INSIDE)
    (tmp_path / "out/deep").mkdir(parents=True)
    (tmp_path / "out/f").write_bytes(OUTSIDE)
    return tmp_path


@contextmanager
def flipping(root: Path) -> Generator[None]:
    """Turn `ws/dir` into a link that leaves, and back, until the end."""
    over = threading.Event()
    place, kept = root / "ws/dir", root / "ws/kept"

    def until_done(act: Callable[[], object]) -> None:
        while True:
            try:
                act()
            except OSError:  # a concurrent writer created the missing directory
                shutil.rmtree(place, ignore_errors=True)
            else:
                return

    def flip() -> None:
        while not over.is_set():
            place.rename(kept)
            until_done(lambda: place.symlink_to(root / "out"))
            place.unlink()
            until_done(lambda: kept.rename(place))

    thread = threading.Thread(target=flip)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def read_all(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 100)
    finally:
        os.close(descriptor)


def test_existing_paths_are_opened(root: Path, way: str) -> None:
    assert read_all(open_beneath(root, root / "ws/dir/f", os.O_RDONLY)) == INSIDE
    for path in (root, root / "ws/dir"):
        os.close(open_beneath(root, path, os.O_RDONLY | os.O_DIRECTORY))
        os.close(open_directory(root, path))


@pytest.mark.parametrize("name", ["link/f", "linked", "dir/up/out/f", "dir/f/x"])
def test_a_symlink_on_the_path_is_an_error(root: Path, way: str, name: str) -> None:
    (root / "ws/link").symlink_to(root / "out")
    (root / "ws/linked").symlink_to("dir/f")
    (root / "ws/dir/up").symlink_to("../..")
    with pytest.raises(OSError, match=r".") as caught:
        open_beneath(root / "ws", root / "ws" / name, os.O_RDONLY)
    assert caught.value.errno in PATH_CHANGED_ERRORS


def test_directories_are_created_but_never_through_a_symlink(root: Path, way: str) -> None:
    os.close(open_directory(root / "ws", root / "ws/new/and/deeper", make=True))
    assert (root / "ws/new/and/deeper").is_dir()
    (root / "ws/link").symlink_to(root / "out")
    with pytest.raises(OSError, match=r".") as caught:
        open_directory(root / "ws", root / "ws/link/new", make=True)
    assert caught.value.errno in PATH_CHANGED_ERRORS
    assert not (root / "out/new").exists()


def test_missing_paths_raise_the_usual_error(root: Path, way: str) -> None:
    with pytest.raises(FileNotFoundError):
        open_beneath(root, root / "ws/nothing", os.O_RDONLY)
    with pytest.raises(FileNotFoundError):
        open_directory(root, root / "ws/nothing/x")


def test_no_descriptor_leaks(root: Path, way: str) -> None:
    (root / "ws/link").symlink_to(root / "out")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for name in ("dir/f", "nothing", "link/f", "dir/f/x", "a/b/c"):
        for act in (partial_read(root, name), partial_parent(root, name)):
            try:
                os.close(act())
            except OSError:
                continue
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def partial_read(root: Path, name: str) -> Callable[[], int]:
    return lambda: open_beneath(root / "ws", root / "ws" / name, os.O_RDONLY)


def partial_parent(root: Path, name: str) -> Callable[[], int]:
    return lambda: open_directory(root / "ws", root / "ws" / name)


def test_reading_never_escapes_while_a_symlink_is_swapped(root: Path, way: str) -> None:
    workspace = Workspace.make(root / "ws")
    seen: set[bytes] = set()
    numbers: set[int] = set()
    with flipping(root):
        for _ in range(TRIES):
            try:
                found = workspace.open_read(root / "ws/dir/f")
            except OSError as error:
                numbers.add(error.errno or 0)
                continue
            seen.add(b"refused" if isinstance(found, Refused) else read_all(found))
    assert OUTSIDE not in seen
    assert numbers <= {*PATH_CHANGED_ERRORS, errno.ENOENT}
    found = workspace.open_read(root / "ws/dir/f")
    assert isinstance(found, int)
    assert read_all(found) == INSIDE


def test_writing_never_escapes_while_a_symlink_is_swapped(root: Path, way: str) -> None:
    workspace = Workspace.make(root / "ws")
    written = 0
    numbers: set[int] = set()
    with flipping(root):
        for number in range(TRIES // 5):
            try:
                with open_writable(root / f"ws/dir/deep/{number}", workspace) as target:
                    if not isinstance(target, ToolFailed):
                        target.replace(b"x")
                        written += 1
            except OSError as error:
                numbers.add(error.errno or 0)
    assert written
    assert numbers <= {*PATH_CHANGED_ERRORS, errno.ENOENT, errno.EACCES}
    assert not list((root / "out/deep").iterdir())
    assert sorted(path.name for path in (root / "out").iterdir()) == ["deep", "f"]


def test_a_naive_open_does_escape(root: Path) -> None:
    """Shows that the race is real: without the guard it reads outside. It ends when that was observed."""
    workspace = Workspace.make(root / "ws")
    with flipping(root):
        for _ in range(200_000):
            real = workspace.resolve_read(root / "ws/dir/f")
            try:
                if isinstance(real, Path) and real.read_bytes() == OUTSIDE:
                    return
            except OSError:
                continue
    pytest.fail("the race was never lost, so that the tests beside this one prove nothing")
