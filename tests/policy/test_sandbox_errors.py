"""A place that cannot be judged counts as executed by git, and stops neither a command nor the judging of others."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sandboxed import Corner

from yarrow.platform.real_path import real_path
from yarrow.policy.deep_tree_operations import remove_tree, walk_tree
from yarrow.policy.sandbox import git_directories
from yarrow.policy.sandbox.git_baseline import find_planted, rescan, take_baseline
from yarrow.policy.workspace import Workspace

pytestmark = pytest.mark.xdist_group("sandbox")

LINKS = 1_500
"""Links of a chain, more than `os.path.realpath` follows."""
LEVELS = 1_100
"""Levels of a tree, more than `os.walk` descends."""
CHAIN = f"for i in $(seq 0 {LINKS}); do ln -s l$((i+1)) l$i; done; "


def chain(directory: Path) -> Path:
    directory.mkdir(parents=True)
    for number in range(LINKS):
        (directory / f"l{number}").symlink_to(f"l{number + 1}")
    return directory / "l0"


@pytest.mark.parametrize("broken", ["harmless_settings", "included_files", "digest_path", "common_directory"])
@pytest.mark.parametrize("when", ["always", "afterwards"])
def test_case_atk_f1_a_repository_that_provokes_an_error_is_quarantined_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str, when: str
) -> None:
    for name in ("a", "b"):
        subprocess.run(["git", "init", "-q", "--template=", str(tmp_path / name)], check=True)
    works = getattr(git_directories, broken)

    def failing(path: Path, *more: Any) -> Any:
        if path.is_relative_to(tmp_path / "a"):
            raise RecursionError
        return works(path, *more)

    if when == "always":
        monkeypatch.setattr(git_directories, broken, failing)
    before = take_baseline([tmp_path], [], [])
    monkeypatch.setattr(git_directories, broken, failing)
    for name in ("a", "b"):
        subprocess.run(["git", "-C", str(tmp_path / name), "config", "core.fsmonitor", "evil"], check=True)
    found = {finding.path for finding in find_planted(before, rescan(before))}
    assert found == {tmp_path / "a/.git/config", tmp_path / "b/.git/config"}


def test_case_atk_f7_a_pointer_that_provokes_an_error_is_quarantined_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = take_baseline([tmp_path], [], [])
    subprocess.run(["git", "init", "-q", str(tmp_path / "b")], check=True)
    subprocess.run(["git", "-C", str(tmp_path / "b"), "config", "core.fsmonitor", "evil"], check=True)
    (tmp_path / "a").mkdir()
    (tmp_path / "a/.git").write_text("gitdir: /nowhere\n")

    def failing(*_: Any) -> Iterator[None]:
        raise RecursionError

    monkeypatch.setattr("yarrow.policy.sandbox.git_baseline._pointer_digest", failing)
    found = {finding.path for finding in find_planted(before, rescan(before))}
    assert found == {tmp_path / "a/.git", tmp_path / "b/.git/config"}


async def test_case_atk_f7_a_chain_of_symlinks_stops_no_command(place: Corner) -> None:
    await place.run(f"mkdir x && cd x && {CHAIN} ln -s l0 .git")
    assert await place.run("echo works") == ("works\n", 0)


def test_case_atk_f2_a_new_directory_with_a_too_long_path_is_quarantined(tmp_path: Path) -> None:
    above = tmp_path
    while len(str(above)) + 201 <= git_directories.MAX_JUDGED_PATH_BYTES:
        above = above / ("n" * 200)
    (above / ("u" * 200)).mkdir(parents=True)
    before = take_baseline([tmp_path], [], [])
    (above / ("m" * 200)).mkdir()
    assert [finding.path for finding in find_planted(before, rescan(before))] == [above / ("m" * 200)]


def test_a_chain_beyond_the_systems_limit_keeps_its_path(tmp_path: Path) -> None:
    first = chain(tmp_path / "x")
    assert real_path(first) == str(first)
    assert Workspace.make(tmp_path).realpath(first) == first


def test_a_deep_tree_is_walked_up_to_the_path_limit(tmp_path: Path) -> None:
    path = tmp_path / ".git/modules"
    path.mkdir(parents=True)
    for _ in range(LEVELS):
        path = path / "a"
        path.mkdir()
    (path / "HEAD").touch()
    try:
        assert len(list(walk_tree(tmp_path))) == LEVELS + 3
        assert list(git_directories.module_directories(tmp_path / ".git")) == [path]
    finally:
        remove_tree(tmp_path / ".git")


def test_a_subdirectory_whose_name_is_removed_is_not_walked(tmp_path: Path) -> None:
    for name in ("a/b", "c/d"):
        (tmp_path / name).mkdir(parents=True)
    seen: list[str] = []
    for directory, names, _ in walk_tree(tmp_path):
        seen.append(os.path.relpath(directory, tmp_path))
        names[:] = sorted(name for name in names if name != "a")
    assert seen == [".", "c", "c/d"]
