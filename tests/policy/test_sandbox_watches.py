"""A directory that is not asked for again is as it was: no change of any kind goes unseen."""

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sandboxed import corner

from yarrow.platform import system
from yarrow.policy.command_execution import Command
from yarrow.policy.sandbox import directory_listing
from yarrow.policy.sandbox.directory_listing import DirectoryListing, start_scan
from yarrow.policy.sandbox.directory_watches import DirectoryWatches
from yarrow.policy.sandbox.git_directories import scan_git_directories
from yarrow.policy.sandbox.sandboxed_command import SandboxedCommand
from yarrow.policy.secret_names import ENV_FILES

PLACES = ("a", "b", "a/c", "a/d", "b/c", "a/c/e", ".git", "a/.git")
FILES = (".env", "HEAD", "config", "file", "AGENTS.md")
_EXCHANGE = 2

HELD: list[int] = []
"""Descriptors that a process holds."""

Tree = dict[str, DirectoryListing]


@pytest.fixture(autouse=True)
def settled(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every directory counts as unchanged for long, so that only inotify events, not times, reveal a change."""
    monkeypatch.setattr("yarrow.policy.sandbox.directory_listing.watches", own := DirectoryWatches())
    monkeypatch.setattr("yarrow.policy.sandbox.sandboxed_command.watches", own)
    own.enable()
    monkeypatch.setattr(directory_listing, "SETTLED_SECONDS", -1.0)
    yield
    while HELD:
        os.close(HELD.pop())
    directory_listing._cache.clear()  # pyright: ignore[reportPrivateUsage]


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """All changes happen within one tick, so that no time of a change differs from another."""
    lstat = os.lstat

    def asking(path: str) -> SimpleNamespace:
        status = lstat(path)
        return SimpleNamespace(st_dev=status.st_dev, st_ino=status.st_ino, st_mode=status.st_mode, st_ctime_ns=0)

    monkeypatch.setattr("yarrow.policy.sandbox.directory_listing.os", SimpleNamespace(lstat=asking, scandir=os.scandir))


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The directories whose state the system was asked for."""
    paths: list[str] = []
    lstat = os.lstat

    def asking(path: str, *, dir_fd: int | None = None) -> os.stat_result:
        paths.append(path)
        return lstat(path, dir_fd=dir_fd)

    monkeypatch.setattr("yarrow.policy.sandbox.directory_listing.os.lstat", asking)
    return paths


def tree(root: Path, look: Callable[[str], DirectoryListing]) -> Tree:
    """Result of a scan of all directories."""
    found: Tree = {}
    waiting = [str(root)]
    while waiting:
        with suppress(OSError):
            one = found[waiting[0]] = look(waiting[0])
            waiting += sorted((*one.subdirectories, *one.build_directories))
        del waiting[0]
    return {path: sorted_names(one) for path, one in found.items()}


def sorted_names(one: DirectoryListing) -> DirectoryListing:
    fields = {field: getattr(one, field) for field in one.__struct_fields__}
    fields = {field: tuple(sorted(value)) if isinstance(value, tuple) else value for field, value in fields.items()}
    return DirectoryListing(**fields | {"file_names": "/".join(sorted(one.file_names.split("/")))})


def fresh(root: Path) -> Tree:
    return tree(root, lambda path: directory_listing._read_listing(path, ENV_FILES))  # pyright: ignore[reportPrivateUsage]


def exchange(one: Path, other: Path) -> None:
    """Exchange two paths in one step."""
    renameat2 = ctypes.CDLL(None).renameat2
    renameat2(-100, os.fsencode(one), -100, os.fsencode(other), _EXCHANGE)


def replace_held(path: Path) -> None:
    """Remove a directory that a process holds, and make another of its name."""
    HELD.append(os.open(path, os.O_RDONLY | os.O_DIRECTORY))
    shutil.rmtree(path)
    path.mkdir()


def step(root: Path, change: tuple[str, str, str]) -> None:
    kind, one, other = change
    path = root / one
    with suppress(OSError):
        match kind:
            case "make":
                path.mkdir(parents=True)
            case "write":
                (path / FILES[len(other) % len(FILES)]).touch()
            case "rename":
                path.rename(root / other)
            case "exchange":
                exchange(path, root / other)
            case "link":
                path.symlink_to(other)
            case "replace":
                replace_held(path)
            case "close":
                path.chmod(0o500)
            case _:
                shutil.rmtree(path)


KINDS = st.sampled_from(("make", "write", "rename", "exchange", "link", "replace", "close", "remove", "look"))


@pytest.mark.usefixtures("stopped_clock")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(KINDS, st.sampled_from(PLACES), st.sampled_from(PLACES)), max_size=40))
def test_a_scan_is_correct_after_any_changes(changes: list[tuple[str, str, str]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "work")
        for place in PLACES:
            (root / place).mkdir(parents=True, exist_ok=True)
        try:
            for change in changes:
                if change[0] == "look":
                    assert tree(root, start_scan(ENV_FILES)) == fresh(root)
                step(root, change)
            assert tree(root, start_scan(ENV_FILES)) == fresh(root)
        finally:
            while HELD:
                os.close(HELD.pop())


def test_an_unchanged_directory_is_not_checked(tmp_path: Path, asked: list[str]) -> None:
    for place in PLACES:
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
    before = tree(tmp_path, start_scan(ENV_FILES))
    asked.clear()
    assert tree(tmp_path, start_scan(ENV_FILES)) == before
    assert asked == [str(tmp_path)]
    (tmp_path / "a/c/f").touch()
    (tmp_path / "b/c").chmod(0o700)
    asked.clear()
    tree(tmp_path, start_scan(ENV_FILES))
    assert asked == [str(tmp_path), str(tmp_path / "a/c"), str(tmp_path / "b/c")]


def test_from_the_third_scan_on_no_directories_are_checked(asked: list[str]) -> None:
    directory_listing.watches._is_wanted = False  # pyright: ignore[reportPrivateUsage]
    with corner("root" if system.is_root() else "self") as place:
        for number in range(9):
            (place.workspace / str(number)).mkdir()
        # The system module is the same in all modules, so those that others ask for are left out.
        within = [str(path) for path in place.workspace.rglob("*") if path.is_dir() and path.name.isdigit()]
        counts: list[int] = []
        for _ in range(3):
            asked.clear()
            boxed = SandboxedCommand(place.box, Command(("true",), place.workspace, {}, 9))
            boxed.quarantine_leftovers()
            boxed.close()
            counts.append(sum(path in within for path in asked))
        assert counts == [18, 9, 0]


def replaced_root(root: Path) -> None:
    root.rename(root.with_name("before"))
    (root / "a/.git").mkdir(parents=True)


def replaced_above_root(root: Path) -> None:
    root.parent.rename(root.parent.with_name("before"))
    (root / "a/.git").mkdir(parents=True)


def replaced_held_root(root: Path) -> None:
    replace_held(root)
    (root / "a/.git").mkdir(parents=True)


def moved_above(root: Path) -> None:
    (root / "a").rename(root / "b")
    (root / "a/c/.git").mkdir(parents=True)


def moved_there_and_back(root: Path) -> None:
    (root / "a").rename(root.with_name("away"))
    (root.with_name("away") / "c/.git").mkdir()
    root.with_name("away").rename(root / "a")


def replaced_held(root: Path) -> None:
    replace_held(root / "a/c")
    (root / "a/c/.git").mkdir()


def linked(root: Path) -> None:
    exchange(root / "a/c", root / "link")
    (root / "link/.git").mkdir()


STALE: dict[str, Callable[[Path], object]] = {
    "the root is another": replaced_root,
    "the directory above the root is another": replaced_above_root,
    "the root is another, and a process holds the one before": replaced_held_root,
    "a directory above is another": moved_above,
    "a directory above went away and came back": moved_there_and_back,
    "another of the same name, and a process holds the one before": replaced_held,
    "a symlink in its place": linked,
    "a change just now": lambda root: (root / "a/c/.git").mkdir(),
    "a name was changed": lambda root: (root / "a/c/x").rename(root / "a/c/.git"),
    "it came from elsewhere": lambda root: root.with_name("elsewhere").rename(root / "a/c/.git"),
}


@pytest.mark.usefixtures("stopped_clock")
@pytest.mark.parametrize("change", STALE.values(), ids=STALE)
def test_a_stale_scan_is_not_used(tmp_path: Path, change: Callable[[Path], object]) -> None:
    root = tmp_path / "above/work"
    (root / "a/c/x").mkdir(parents=True)
    (root / "link").symlink_to("nowhere")
    root.with_name("elsewhere").mkdir()
    for _ in range(2):
        assert scan_git_directories([root]).git_names == {}
    change(root)
    assert any(".git" in found for found in scan_git_directories([root]).git_names.values())
    for path in set(fresh(root)) - {str(root)}:
        Path(path, "HEAD").touch()
    assert tree(root, start_scan(ENV_FILES)) == fresh(root)


MOUNTING = """
import json, subprocess, sys
from pathlib import Path
from yarrow.policy.sandbox import directory_listing
from yarrow.policy.sandbox.git_directories import scan_git_directories
directory_listing.SETTLED_SECONDS = -1.0
directory_listing.watches.enable()
root, other = map(Path, sys.argv[1:])
seen = [list(map(str, scan_git_directories([root]).git_names)) for _ in range(2)]
subprocess.run(["mount", "--bind", other, root / "a"], check=True)
seen.append(list(map(str, scan_git_directories([root]).git_names)))
(root / "a/c/.git").mkdir(parents=True)
seen.append(list(map(str, scan_git_directories([root]).git_names)))
subprocess.run(["umount", root / "a"], check=True)
seen.append(list(map(str, scan_git_directories([root]).git_names)))
print(json.dumps(seen))
"""


@pytest.mark.skipif(not system.is_root(), reason="only root mounts")
def test_a_directory_mounted_over_another_is_scanned(tmp_path: Path) -> None:
    root, other = tmp_path / "work", tmp_path / "other"
    (root / "a/c").mkdir(parents=True)
    (other / ".git").mkdir(parents=True)
    words = ["unshare", "-m", sys.executable, "-c", MOUNTING, str(root), str(other)]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    git, deep = str(root / "a"), str(root / "a/c")
    assert [set(found) for found in json.loads(done.stdout)] == [set(), set(), {git}, {git, deep}, set()]


REMOTE = """
import os, sys
from yarrow.platform import linux_syscalls
from yarrow.policy.sandbox import directory_listing
from yarrow.policy.sandbox.git_directories import scan_git_directories
from pathlib import Path
linux_syscalls.LOCAL_FILE_SYSTEMS -= {"tmpfs"}
directory_listing.SETTLED_SECONDS = -1.0
directory_listing.watches.enable()
asked, lstat = [], os.lstat
directory_listing.os.lstat = lambda path: asked.append(path) or lstat(path)
for _ in range(3):
    asked.clear()
    scan_git_directories([Path(sys.argv[1])])
print(*asked)
"""


@pytest.mark.skipif(not system.is_root(), reason="only root mounts")
def test_a_nested_remote_file_system_is_checked_each_time(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    mounting = 'mount -t tmpfs remote "$1/b" && mkdir "$1/b/c" && exec "$2" -c "$3" "$1"'
    words = ["unshare", "-m", "sh", "-ec", mounting, "sh", str(tmp_path), sys.executable, REMOTE]
    done = subprocess.run(words, check=True, capture_output=True, text=True)
    assert done.stdout.split() == [str(tmp_path), str(tmp_path / "b"), str(tmp_path / "b/c")]


def test_many_changes_hide_none(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "f").touch()
    for _ in range(2):
        assert scan_git_directories([tmp_path]).git_names == {}
    most = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    for number in range(most // 2 + 1):
        (tmp_path / f"f{number or ''}").rename(tmp_path / f"f{number + 1}")
    (tmp_path / "a/.git").mkdir()
    assert scan_git_directories([tmp_path]).git_names == {tmp_path / "a": (".git",)}


def test_unread_inotify_events_end_all_watches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").mkdir()
    for _ in range(2):
        tree(tmp_path, start_scan(ENV_FILES))
    monkeypatch.setattr("yarrow.platform.linux_syscalls.MAX_READS", 0)
    assert directory_listing.watches.begin_round().unchanged == {}
    (tmp_path / "a/.git").mkdir()
    assert scan_git_directories([tmp_path]).git_names == {tmp_path / "a": (".git",)}


def test_a_scan_started_before_an_event_is_not_used(tmp_path: Path) -> None:
    own = DirectoryWatches()
    own.enable()
    own.begin_round()
    (tmp_path / "a").mkdir()
    first = own.begin_round()
    assert first.watch(str(tmp_path))
    assert first.watch(str(tmp_path / "a"))
    (tmp_path / "a/b").mkdir()
    second = own.begin_round()
    status = os.lstat(tmp_path / "a")
    first.confirm(str(tmp_path / "a"), (status.st_dev, status.st_ino, status.st_ctime_ns))
    assert second.unchanged == {}
    second.confirm(str(tmp_path / "a"), (status.st_dev, status.st_ino, status.st_ctime_ns))
    assert set(second.unchanged) == {str(tmp_path / "a")}


def test_each_scan_adds_a_few_watches(tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yarrow.policy.sandbox.directory_watches.MAX_ADDED", 3)
    for number in range(8):
        (tmp_path / str(number)).mkdir()
    counts: list[int] = []
    for _ in range(5):
        asked.clear()
        tree(tmp_path, start_scan(ENV_FILES))
        counts.append(len(asked))
    assert counts == [9, 7, 4, 1, 1]


def test_watches_are_bounded(tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yarrow.policy.sandbox.directory_watches.MAX_WATCHED", 4)
    for number in range(8):
        (tmp_path / str(number)).mkdir()
    for _ in range(3):
        tree(tmp_path, start_scan(ENV_FILES))
    asked.clear()
    tree(tmp_path, start_scan(ENV_FILES))
    assert len(asked) == 9 - 3
    monkeypatch.setattr("yarrow.policy.sandbox.directory_watches.RENEW_SECONDS", 0.0)
    asked.clear()
    tree(tmp_path, start_scan(ENV_FILES))
    assert len(asked) == 9


def test_a_remote_file_system_is_checked_each_time(
    tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yarrow.platform.linux_syscalls.LOCAL_FILE_SYSTEMS", frozenset())
    (tmp_path / "a/b").mkdir(parents=True)
    for _ in range(3):
        asked.clear()
        tree(tmp_path, start_scan(ENV_FILES))
        assert len(asked) == 3
    assert not directory_listing.watches._added  # pyright: ignore[reportPrivateUsage]


def test_without_inotify_all_are_checked(tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yarrow.policy.sandbox.directory_watches.system.open_directory_changes", lambda: None)
    (tmp_path / "a/b").mkdir(parents=True)
    for _ in range(2):
        asked.clear()
        tree(tmp_path, start_scan(ENV_FILES))
        assert len(asked) == 3
