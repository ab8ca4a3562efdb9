"""Where things are looked for: the project's root, found without running anything."""

import os
from pathlib import Path

import pytest
from project import Project

from yarrow.prompt.resource_directories import SessionDirectories, format_path


def test_the_root_is_the_nearest_repository(project: Project) -> None:
    assert project.places().root == project.root
    assert project.places().list_project_directories() == (project.root, project.root / "src", project.cwd)
    (project.root / "src" / ".git").write_text("gitdir: /elsewhere")
    assert project.places().root == project.root / "src"


def test_without_a_repository_below_home_the_root_is_the_working_directory(project: Project) -> None:
    (project.root / ".git").rmdir()
    for directory in (project.home, project.base):
        (directory / ".git").mkdir()
        assert project.places().root == project.cwd
    home = SessionDirectories.make(home=project.home, user_directory=project.users, cwd=project.home)
    assert home.root == project.home


def test_a_repository_outside_the_home_is_found(project: Project) -> None:
    cwd = project.base / "other" / "deep"
    cwd.mkdir(parents=True)
    (project.base / "other" / ".git").mkdir()
    assert (
        SessionDirectories.make(home=project.home, user_directory=project.users, cwd=cwd).root == project.base / "other"
    )


@pytest.mark.parametrize("kind", ["pipe", "link to nothing", "ring"])
def test_a_special_file_named_git_is_not_a_repository(project: Project, kind: str) -> None:
    git = project.cwd / ".git"
    if kind == "pipe":
        os.mkfifo(git)
    else:
        git.symlink_to(".git" if kind == "ring" else "nothing")
    assert project.places().root == project.root


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_repository_of_another_user_is_skipped(project: Project) -> None:
    os.chown(project.root, 12345, 12345)
    assert project.places().root == project.cwd
    os.chown(project.cwd, 12345, 12345)
    assert project.places().root == project.root


def test_paths_are_resolved_and_shown_on_one_line(project: Project) -> None:
    link = project.base / "link"
    link.symlink_to(project.cwd)
    places = SessionDirectories.make(home=project.home, user_directory=project.users, cwd=link)
    assert places == project.places()
    assert places.format_path(project.root / "a") == "~/code/project/a"
    assert places.format_path(Path("/usr")) == "/usr"
    assert format_path(os.fsdecode(b"/a\nb\xff\xe2\x80\xae")) == "/a\ufffdb\ufffd\ufffd"
