"""A scan of the workspace finds all relevant names each time, although most directories are cached."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from yarrow.policy.sandbox import directory_listing
from yarrow.policy.sandbox.directory_listing import DirectoryListing, list_directory
from yarrow.policy.sandbox.protected_paths import scan


@pytest.fixture(autouse=True)
def reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Directories that were read, once all changes have settled; `tmp_path` itself is excluded."""
    read: list[str] = []
    scandir = os.scandir

    def counting(path: str) -> Iterator[os.DirEntry[str]]:
        read.append(path)
        return scandir(path)

    monkeypatch.setattr(directory_listing, "SETTLED_SECONDS", 0.0)
    monkeypatch.setattr("yarrow.policy.sandbox.directory_listing.os.scandir", counting)
    yield read
    directory_listing._cache.clear()  # pyright: ignore[reportPrivateUsage]


def settle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_listing, "SETTLED_SECONDS", -1.0)


def test_a_directory_is_read_once(tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    settle(monkeypatch)
    (tmp_path / "a").mkdir()
    (tmp_path / "a/.env").touch()
    for _ in range(3):
        assert scan(tmp_path).secrets == [tmp_path / "a/.env"]
    assert sorted(reads) == [str(tmp_path), str(tmp_path / "a")]


def test_created_and_deleted_entries_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(monkeypatch)
    (tmp_path / "a/b").mkdir(parents=True)
    assert scan(tmp_path).secrets == []
    (tmp_path / "a/b/.env").touch()
    assert scan(tmp_path).secrets == [tmp_path / "a/b/.env"]
    # A program can set the times back that it may set.
    (tmp_path / "a/b/.env").rename(tmp_path / "a/b/.env.production")
    os.utime(tmp_path / "a/b", (0, 0))
    assert scan(tmp_path).secrets == [tmp_path / "a/b/.env.production"]
    (tmp_path / "a/b").rename(tmp_path / "a/c")
    assert scan(tmp_path).secrets == [tmp_path / "a/c/.env.production"]
    (tmp_path / "a/c/.git").mkdir()
    assert tmp_path / "a/c/.git" in scan(tmp_path).pinned


def test_a_replaced_directory_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(monkeypatch)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "b/.env").touch()
    assert list_directory(str(tmp_path / "a")).notable == ()
    (tmp_path / "a").rename(tmp_path / "c")
    (tmp_path / "b").rename(tmp_path / "a")
    assert list_directory(str(tmp_path / "a")).notable == (".env",)


def test_a_just_changed_directory_is_read_again(
    tmp_path: Path, reads: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_listing, "SETTLED_SECONDS", 3_600.0)
    for _ in range(2):
        list_directory(str(tmp_path))
    assert len(reads) == 2


def test_a_symlink_is_not_scanned(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a/.env").touch()
    (tmp_path / "link").symlink_to("a")
    assert list_directory(str(tmp_path / "link")) == DirectoryListing(0, (), ())


def test_the_cache_of_listings_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settle(monkeypatch)
    monkeypatch.setattr(directory_listing, "MAX_CACHED_DIRECTORIES", 3)
    for number in range(10):
        (tmp_path / str(number)).mkdir()
        list_directory(str(tmp_path / str(number)))
        assert sum(map(len, directory_listing._cache.values())) <= 3  # pyright: ignore[reportPrivateUsage]
