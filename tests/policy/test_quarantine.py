"""The quarantine keeps what it is given, gives it back, and never writes over anything."""

import errno
import os
from pathlib import Path

import pytest

from yarrow.errors import UsageError
from yarrow.policy.deep_tree_operations import remove_tree
from yarrow.policy.sandbox import quarantine
from yarrow.policy.sandbox.quarantine import (
    Quarantine,
    QuarantineEntry,
    RestoredEntry,
    delete_all,
    describe_entries,
    list_entries,
    restore,
)


@pytest.fixture(params=["one file system", "two file systems", "no store"])
def store(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store beside the workspace, on another file system, or nowhere."""
    if request.param == "two file systems":
        rename, link = os.rename, os.link

        def across(source: str, target: str | Path, **more: int) -> None:
            if "dst_dir_fd" not in more and Path(target).is_relative_to(tmp_path / "store"):
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            rename(source, target, **more)

        def apart(source: Path, target: Path, **more: bool) -> None:
            if Path(source).is_relative_to(tmp_path / "store") != Path(target).is_relative_to(tmp_path / "store"):
                raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
            link(source, target, **more)

        monkeypatch.setattr(os, "rename", across)
        monkeypatch.setattr(os, "link", apart)
    if request.param == "no store":
        (tmp_path / "store").touch()
    return tmp_path / "store"


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    path = Path(os.path.realpath(tmp_path)) / "ws"
    path.mkdir()
    return path


def take(store: Path, path: Path) -> QuarantineEntry | None:
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        return Quarantine(store, "s1").take(directory, path.name, path, reason="it is run")
    finally:
        os.close(directory)


def fill(path: Path, kind: str) -> None:
    match kind:
        case "file":
            path.write_text("x" * 100)
        case "link":
            path.symlink_to("nowhere")
        case "closed":
            path.mkdir()
            (path / "f").write_text("x" * 100)
            path.chmod(0o500)
        case "fifo":
            path.mkdir()
            os.mkfifo(path / "p")
        case _:
            (path / "d").mkdir(parents=True)
            (path / "d/f").write_text("x" * 100)
            (path / "l").symlink_to("/etc/passwd")


def shape(path: Path) -> list[tuple[str, int, str]]:
    """All that lies at a path."""
    found = [path, *path.rglob("*")] if path.is_dir() and not path.is_symlink() else [path]
    return sorted(
        (
            str(each.relative_to(path)),
            each.lstat().st_mode & 0o170000,
            each.read_text() if each.is_file() and not each.is_symlink() else "",
        )
        for each in found
    )


KINDS = ("file", "link", "tree", "closed", "fifo")


@pytest.mark.parametrize("kind", KINDS)
def test_a_quarantined_path_is_removed_and_stored_completely(store: Path, ws: Path, kind: str) -> None:
    fill(ws / "config", kind)
    before = shape(ws / "config")
    entry = take(store, ws / "config")
    assert entry is not None
    assert not os.path.lexists(ws / "config")
    assert shape(entry.item) == before


@pytest.mark.parametrize("kind", KINDS)
def test_a_quarantined_path_can_be_restored(store: Path, ws: Path, kind: str) -> None:
    if store.is_file():
        return  # without a store it lies beside its place, and is put back by hand
    fill(ws / "config", kind)
    before = shape(ws / "config")
    assert (entry := take(store, ws / "config")) is not None
    assert [one.number for one in list_entries(store)] == [entry.number] == [1]
    assert restore(store, 1) == RestoredEntry(ws / "config", None)
    assert shape(ws / "config") == before
    assert list_entries(store) == []


def test_a_missing_path_is_not_quarantined(store: Path, ws: Path) -> None:
    assert take(store, ws / "config") is None
    assert list_entries(store) == []


def test_case_RB_01_nothing_is_quarantined_where_renaming_fails(ws: Path, store: Path) -> None:
    (ws / "other").touch()
    assert take(store, ws / "config") is None
    assert [path.name for path in ws.iterdir()] == ["other"]


@pytest.mark.parametrize("meanwhile", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_restoring_swaps_with_the_current_content(store: Path, ws: Path, kind: str, meanwhile: str) -> None:
    if store.is_file():
        return
    fill(ws / "config", kind)
    first = shape(ws / "config")
    take(store, ws / "config")
    fill(ws / "config", meanwhile)
    second = shape(ws / "config")
    replaced = restore(store, 1).replaced
    assert replaced is not None
    assert (shape(ws / "config"), shape(replaced.item)) == (first, second)
    assert [entry.number for entry in list_entries(store)] == [replaced.number] == [2]
    restore(store, 2)
    assert shape(ws / "config") == second
    assert [shape(entry.item) for entry in list_entries(store)] == [first]


@pytest.mark.parametrize("meanwhile", KINDS)
def test_restoring_into_a_full_store_loses_nothing(
    store: Path, ws: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    if store.is_file():
        return
    fill(ws / "config", "file")
    take(store, ws / "config")
    fill(ws / "config", meanwhile)
    second = shape(ws / "config")
    monkeypatch.setattr(quarantine, "MAX_ENTRIES", 1)
    replaced = restore(store, 1).replaced
    assert replaced is not None
    assert (replaced.number, replaced.item.parent) == (0, ws)
    assert ((ws / "config").read_text(), shape(replaced.item)) == ("x" * 100, second)


@pytest.mark.parametrize("meanwhile", KINDS)
def test_a_failed_restore_changes_nothing(
    tmp_path: Path, ws: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    fill(ws / "config", "file")
    take(tmp_path / "store", ws / "config")
    fill(ws / "config", meanwhile)
    before = shape(ws)
    put = quarantine._move_back

    def fails_once(item: Path, path: Path) -> None:
        monkeypatch.setattr(quarantine, "_move_back", put)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path), None, str(item))

    monkeypatch.setattr(quarantine, "_move_back", fails_once)
    with pytest.raises(OSError, match="No space"):
        restore(tmp_path / "store", 1)
    assert shape(ws) == before
    assert [entry.number for entry in list_entries(tmp_path / "store")] == [1]


def test_restoring_follows_no_symlink(tmp_path: Path, ws: Path) -> None:
    (ws / "d").mkdir()
    fill(ws / "d/f", "file")
    take(tmp_path / "store", ws / "d/f")
    (ws / "d").rename(ws / "e")
    (ws / "d").symlink_to("e")
    with pytest.raises(UsageError, match="leads through a symlink"):
        restore(tmp_path / "store", 1)


def test_an_unknown_number_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no entry 7"):
        restore(tmp_path / "store", 7)


def test_emptying_also_deletes_entries_renamed_in_place(store: Path, ws: Path) -> None:
    fill(ws / "config", "fifo")
    take(store, ws / "config")
    assert delete_all(store) == (0 if store.is_file() else 1)
    assert list(ws.iterdir()) == ([] if not store.is_file() else list(ws.glob("config.quarantined-*")))


def test_case_at_13_a_full_store_keeps_its_entries(tmp_path: Path, ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "MAX_BYTES", 250)
    for name in ("a", "b", "c"):
        fill(ws / name, "file")
        take(tmp_path / "store", ws / name)
    assert [entry.path.name for entry in list_entries(tmp_path / "store")] == ["a", "b"]
    assert [path.name for path in ws.iterdir()] == [next(ws.glob("c.quarantined-*")).name]
    monkeypatch.setattr(quarantine, "MAX_ENTRIES", 2)
    (ws / "d").touch()
    assert (entry := take(tmp_path / "store", ws / "d")) is not None
    assert entry.item.parent == ws
    assert [entry.path.name for entry in list_entries(tmp_path / "store")] == ["a", "b"]


def test_case_at_13_one_entry_above_the_limit_moves_no_other(tmp_path: Path, ws: Path) -> None:
    fill(ws / "work", "file")
    take(tmp_path / "store", ws / "work")
    with (ws / "huge").open("wb") as file:
        file.truncate(quarantine.MAX_BYTES + 1)
    assert (entry := take(tmp_path / "store", ws / "huge")) is not None
    assert entry.item.parent == ws
    assert [entry.path.name for entry in list_entries(tmp_path / "store")] == ["work"]
    assert describe_entries([entry], lambda path: path.name) == (
        f"huge: renamed to {entry.item.name} because it is run; the quarantine is full or unwritable: "
        "to delete all its entries, run `yarrow sandbox quarantine empty`"
    )


def test_case_at_13_many_entries_delete_none(tmp_path: Path, ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine, "MAX_ENTRIES", 20)
    names = ["work", *(f"f{number}" for number in range(30))]
    for name in names:
        (ws / name).write_text(name)
    directory = os.open(ws, os.O_RDONLY)
    store = Quarantine(tmp_path / "store")
    taken = [store.take(directory, name, ws / name, reason="it is run") for name in names]
    os.close(directory)
    assert [entry.item.read_text() for entry in taken if entry is not None] == names
    assert len(list_entries(tmp_path / "store")) == 20
    assert not any((ws / name).exists() for name in names)


def nested(path: Path, levels: int) -> None:
    """Make a directory that holds another, and so on, deeper than a path can say."""
    path.mkdir()
    at = os.open(path, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(os.open("f", os.O_WRONLY | os.O_CREAT, dir_fd=at))
    os.close(at)


def test_case_at_03_deep_trees_are_quarantined(store: Path, ws: Path) -> None:
    nested(ws / "hooks", 1_100)
    entry = take(store, ws / "hooks")
    assert entry is not None
    assert not (ws / "hooks").exists()
    assert entry.item.is_dir()
    remove_tree(entry.item)
    assert not entry.item.exists()


def test_case_at_03_deep_trees_are_emptied(tmp_path: Path, ws: Path) -> None:
    nested(ws / "hooks", 2_500)  # a path has at most 2,048 names
    (ws / "hooks/d").chmod(0o500)
    take(tmp_path / "store", ws / "hooks")
    assert delete_all(tmp_path / "store") == 1
    assert list((tmp_path / "store").iterdir()) == []


def test_a_large_path_is_renamed_in_place(
    store: Path, ws: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(quarantine, "MAX_COPY_BYTES", 10)
    fill(ws / "config", "tree")
    entry = take(store, ws / "config")
    assert entry is not None
    is_moved = request.node.callspec.id == "one file system"  # pyright: ignore[reportUnknownMemberType]
    assert entry.item.is_relative_to(store) == is_moved
    assert (entry.item / "d/f").read_text() == "x" * 100


def test_an_invalid_description_is_skipped(tmp_path: Path, ws: Path) -> None:
    fill(ws / "config", "file")
    take(tmp_path / "store", ws / "config")
    (tmp_path / "store/2").mkdir()
    (tmp_path / "store/3").mkdir()
    (tmp_path / "store/3/entry.json").write_text("{")
    assert [entry.number for entry in list_entries(tmp_path / "store")] == [1]
    fill(ws / "config", "file")
    assert (entry := take(tmp_path / "store", ws / "config")) is not None
    assert entry.number == 4


def test_the_message_names_each_reason_once(tmp_path: Path, ws: Path) -> None:
    for name in ("a", "b"):
        fill(ws / name, "file")
    taken = [entry for name in ("a", "b") if (entry := take(tmp_path / "store", ws / name))]
    assert describe_entries(taken, lambda path: path.name) == (
        "a (1), b (2): quarantined because it is run; to restore an entry, run `yarrow sandbox quarantine restore N`"
    )
