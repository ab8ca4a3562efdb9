"""Programs that Yarrow itself starts are looked for where no workspace can plant one."""

import os
from pathlib import Path

import pytest

from yarrow.platform import search_path
from yarrow.platform.search_path import filter_environment, filter_path, find_program, remember_roots


@pytest.fixture(autouse=True)
def _forgotten(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:  # pyright: ignore[reportUnusedFunction] (pytest calls it)
    monkeypatch.setattr(search_path, "_roots", {})
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")


def program(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    "planted",
    [".venv/bin", "node_modules/.bin", "bin", ".", "a/b/c", "packages/app/../../bin", ".direnv/python/bin"],
)
def test_case_rs_m2_a_directory_of_the_workspace_is_skipped(tmp_path: Path, planted: str) -> None:
    workspace = tmp_path / "ws"
    (workspace / "packages/app").mkdir(parents=True)
    program(workspace / planted / "pass")
    own = program(tmp_path / "home/bin/pass")
    remember_roots(workspace)
    path = os.pathsep.join((str(workspace / planted), str(own.parent)))
    assert find_program("pass", {"PATH": path}) == str(own)
    assert find_program("pass", {"PATH": str(workspace / planted)}) is None
    assert filter_path(path) == str(own.parent)


def test_an_unreadable_directory_hides_no_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, closed = program(tmp_path / "home/bin/pass"), tmp_path / "closed"
    closed.mkdir(0)
    lstat = Path.lstat

    def refused(path: Path) -> os.stat_result:  # as an ordinary user finds it; root may look everywhere
        if closed in path.parents:
            raise PermissionError(13, "Permission denied", str(path))
        return lstat(path)

    monkeypatch.setattr(Path, "lstat", refused)
    for first in (str(closed / "bin"), f"/{'n' * 300}/bin"):
        assert find_program("pass", {"PATH": os.pathsep.join((first, str(own.parent)))}) == str(own)


@pytest.mark.parametrize("relative", ["", ".", "bin", "./bin", "../ws/bin"])
def test_a_relative_directory_is_skipped(tmp_path: Path, relative: str) -> None:
    program(tmp_path / "elsewhere/bin/pass")
    program(tmp_path / "elsewhere/pass")
    assert find_program("pass", {"PATH": f"{relative}{os.pathsep}/nowhere"}) is None


def test_an_empty_path_finds_nothing_in_the_working_directory(tmp_path: Path) -> None:
    program(tmp_path / "elsewhere/pass")
    assert find_program("pass", {"PATH": ""}) is None


def test_the_working_directory_is_a_workspace_before_any_session(tmp_path: Path) -> None:
    program(tmp_path / "elsewhere/bin/pass")
    assert find_program("pass", {"PATH": str(tmp_path / "elsewhere/bin")}) is None


def test_the_repository_around_a_workspace_counts_and_extra_roots_do(tmp_path: Path) -> None:
    (tmp_path / "mono/.git").mkdir(parents=True)
    (tmp_path / "mono/packages/app").mkdir(parents=True)
    program(tmp_path / "mono/.venv/bin/pass")
    program(tmp_path / "home/extra/bin/pass")
    remember_roots(tmp_path / "mono/packages/app", ["~/extra", "a\0b", "~nobody-of-that-name/x"])
    assert find_program("pass", {"PATH": str(tmp_path / "mono/.venv/bin")}) is None
    assert find_program("pass", {"PATH": str(tmp_path / "home/extra/bin")}) is None


@pytest.mark.parametrize("way", ["into", "out", "through", "program"])
def test_a_symlink_does_not_hide_a_programs_location(tmp_path: Path, way: str) -> None:
    workspace, outside = tmp_path / "ws", tmp_path / "outside"
    planted, own = program(workspace / "bin/pass"), program(outside / "bin/pass")
    remember_roots(workspace)
    directory = tmp_path / "on-path"
    match way:
        case "into":
            directory.symlink_to(planted.parent)
        case "out":
            directory = workspace / "link"
            directory.symlink_to(own.parent)
        case "through":  # a link of the workspace decides where it leads
            (workspace / "link").symlink_to(own.parent)
            directory.symlink_to(workspace / "link")
        case _:
            directory.mkdir()
            (directory / "pass").symlink_to(planted)
    assert find_program("pass", {"PATH": str(directory)}) is None


def test_a_home_that_is_the_workspace_keeps_its_programs(tmp_path: Path) -> None:
    own = program(tmp_path / "home/bin/pass")
    remember_roots(tmp_path / "home")
    assert find_program("pass", {"PATH": str(own.parent)}) == str(own)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root gives files away")
def test_directories_of_a_workspaces_other_owner_are_skipped(tmp_path: Path) -> None:
    workspace = tmp_path / "ws"
    workspace.mkdir()
    theirs, own = program(tmp_path / "theirs/pass"), program(tmp_path / "own/pass")
    for path in (workspace, theirs.parent):
        os.chown(path, 65_534, 65_534)
    path = os.pathsep.join((str(theirs.parent), str(own.parent)))
    assert find_program("pass", {"PATH": path}) == str(theirs)
    remember_roots(workspace)
    assert find_program("pass", {"PATH": path}) == str(own)


def test_libraries_of_programs_are_searched_outside_too(tmp_path: Path) -> None:
    remember_roots(tmp_path / "ws")
    given = {"PYTHONPATH": f"{tmp_path}/ws/src{os.pathsep}/usr/lib/x", "LD_PRELOAD": f"{tmp_path}/ws/a.so", "LANG": "."}
    assert filter_environment(given) == {"PYTHONPATH": "/usr/lib/x", "LD_PRELOAD": "", "LANG": "."}


@pytest.mark.parametrize(
    ("where", "is_used"),
    [
        *((f"proj/{name}/bin", False) for name in (".venv", "venv", "node_modules", ".tox/py", ".direnv/python")),
        *(("repo/bin", False), ("repo/a/b", False), ("home/dotfiles/bin", False), ("home/.x/repo/bin", False)),
        *(("home/.pyenv/shims", True), ("home/bin", True), ("home/.venv/bin", True), ("tools/venvs/uv/bin", True)),
        ("node/lib/node_modules/npm/bin", True),
    ],
)
@pytest.mark.parametrize("is_link", [False, True])
def test_programs_of_another_project_are_skipped(tmp_path: Path, where: str, is_used: bool, is_link: bool) -> None:
    for name in ("repo", "home/dotfiles", "home/.pyenv", "home/.x/repo"):
        (tmp_path / name / ".git").mkdir(parents=True)
    found, own = program(tmp_path / where / "pass"), program(tmp_path / "last/pass")
    if is_link:
        (tmp_path / "links").mkdir()
        (tmp_path / "links/pass").symlink_to(found)
    path = os.pathsep.join((str(tmp_path / "links" if is_link else found.parent), str(own.parent)))
    expected = tmp_path / "links/pass" if is_link else found
    answer = find_program("pass", {"PATH": path})
    assert answer == (str(expected) if is_used else None if is_link else str(own))
    if not is_link:
        assert (filter_path(path) == path) == is_used
    assert find_program(str(found), {"PATH": path}) == str(found)  # the user named it
