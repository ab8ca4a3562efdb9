"""Files that send git elsewhere: `.git`, `commondir`, `core.worktree`; and directories that cannot be listed."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path
from unittest.mock import patch

import pytest
from sandboxed import NOBODY, Corner

from yarrow.policy.git_write_protection import is_executed_by_git
from yarrow.policy.sandbox.git_baseline import find_planted, rescan, take_baseline
from yarrow.policy.sandbox.git_internal_files import read_gitfile, read_path

pytestmark = pytest.mark.xdist_group("sandbox")

REPOSITORY = "mkdir -p {at}/objects {at}/refs; echo 'ref: refs/heads/main' > {at}/HEAD; "
"""A git directory without a configuration."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A workspace beside a directory that commands can write to as well."""
    for name in ("ws/docs", "out/e/objects", "out/e/refs"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "out/e/HEAD").write_text("ref: refs/heads/main\n")
    return tmp_path / "ws"


def played(tree: Path, script: str) -> set[str]:
    """Run a script without a sandbox, and return what is to be quarantined of it."""
    before = take_baseline([tree], [], [])
    subprocess.run(["bash", "-ec", script.replace("{out}", str(tree.parent / "out"))], cwd=tree, check=True)
    return {str(verdict.path.relative_to(tree)) for verdict in find_planted(before, rescan(before))}


LEADING_OUT = {
    "absolute": "echo 'gitdir: {out}/e' > docs/.git",
    "relative": "echo 'gitdir: ../../out/e' > docs/.git",
    "with a blank": "mv {out}/e '{out}/e e'; echo 'gitdir: {out}/e e' > docs/.git",
    "not there yet": "echo 'gitdir: {out}/later' > docs/.git",
    "carriage return": "printf 'gitdir: {out}/e\\r\\n' > docs/.git",
    "a NUL": "printf 'gitdir: {out}/e\\0x' > docs/.git",
    "by a symlink within": "ln -s {out}/e l; echo 'gitdir: ../l' > docs/.git",
    "a symlink": "ln -s {out}/e docs/.git",
    "a symlink to a file": "echo 'gitdir: {out}/e' > {out}/f; ln -s {out}/f docs/.git",
    "a symlink to a file that leads back": "mkdir g; echo 'gitdir: ../g' > {out}/f; ln -s {out}/f docs/.git",
    "too long": "{ printf 'gitdir: '; printf './%.0s' $(seq 5000); echo ../out/e; } > docs/.git",
    "in capitals": "echo 'gitdir: {out}/e' > docs/.GIT",
    "in node_modules": "mkdir -p node_modules/x; echo 'gitdir: {out}/e' > node_modules/x/.git; mv node_modules/x/.git "
    "docs/.git",
}


@pytest.mark.parametrize("name", LEADING_OUT)
def test_case_at_01_a_pointer_out_of_the_workspace_is_quarantined(tree: Path, name: str) -> None:
    expected = "docs/.GIT" if name == "in capitals" else "docs/.git"
    assert played(tree, LEADING_OUT[name]) == {expected}


async def test_case_at_01_a_repository_in_the_sessions_tmp_is_not_reached(place: Corner) -> None:
    script = 'T=$(awk \'$5=="/tmp"{print $4}\' /proc/self/mountinfo); mkdir docs; echo "gitdir: $T/e" > docs/.git'
    await place.run(REPOSITORY.replace("{at}", "/tmp/e") + script)
    assert [entry.path for entry in place.taken] == [place.workspace / "docs/.git"]


@pytest.mark.parametrize(
    "script",
    [
        "mkdir store; echo 'gitdir: ../store' > docs/.git",
        "mkdir 'a store'; echo 'gitdir: ../a store' > docs/.git",
        "mkdir store; ln -s ../store docs/.git",
        "echo 'no pointer: {out}/e' > docs/.git",
        "git init -q docs; echo {out}/e/objects > docs/.git/objects/info/alternates",
        "git init -q m; cd m; git -c user.name=n -c user.email=n@e commit -q --allow-empty -m m; git worktree add ../w",
    ],
)
def test_pointers_within_the_workspace_stay(tree: Path, script: str) -> None:
    assert played(tree, script) == set()


INCOMPLETE = "mkdir -p e; echo 'ref: refs/heads/main' > e/HEAD; printf '[core]\\n\\tfsmonitor = id\\n' > e/config; "


@pytest.mark.parametrize("pointer", ["echo 'gitdir: ../e' > docs/.git", "ln -s ../e docs/.git"])
def test_the_target_of_a_pointer_is_judged_before_it_is_complete(tree: Path, pointer: str) -> None:
    assert played(tree, INCOMPLETE + pointer) == {"e/config"}


@pytest.mark.parametrize("pointer", ["echo 'gitdir: ../e' > docs/.git", "ln -s ../e docs/.git"])
def test_a_pointer_to_files_of_the_user_is_quarantined_not_the_files(tree: Path, pointer: str) -> None:
    subprocess.run(["bash", "-ec", INCOMPLETE], cwd=tree, check=True)
    assert played(tree, pointer) == {"docs/.git"}


def test_the_target_of_a_users_pointer_stays_until_changed(tree: Path) -> None:
    subprocess.run(["bash", "-ec", INCOMPLETE + "echo 'gitdir: ../e' > docs/.git"], cwd=tree, check=True)
    assert played(tree, "touch more") == set()
    assert played(tree, "echo >> e/config") == {"e/config"}


def test_a_users_pointer_stays_until_changed(tree: Path) -> None:
    own = tree / "docs/.git"
    own.write_text(f"gitdir: {tree.parent}/out/e\n")
    assert played(tree, "touch more") == set()
    assert played(tree, "echo 'gitdir: {out}/other' > docs/.git") == {"docs/.git"}


POINTED = REPOSITORY.replace("{at}", "docs/.git") + REPOSITORY.replace("{at}", "e")
ARMED = "printf '[core]\\n\\tfsmonitor = id\\n' > e/config; "
COMMON = {
    "no UTF-8": ("mv e $'e\\377'; printf '../../e\\377\\n' > docs/.git/commondir", "config"),
    "a blank at the end": ("mv e 'e '; echo '../../e ' > docs/.git/commondir", "config"),
    "a NUL": ("printf '../../e\\0x' > docs/.git/commondir", "config"),
    "too long": ("{ printf './%.0s' $(seq 5000); echo ../../e; } > docs/.git/commondir", "commondir"),
    "out of the workspace": ("echo {out}/e > docs/.git/commondir", "commondir"),
    "a pipe": ("mkfifo docs/.git/commondir", "commondir"),
    "a directory": ("mkdir docs/.git/commondir", "commondir"),
    "of a worktree": (("mkdir -p docs/.git/worktrees/w; mv docs/.git/HEAD docs/.git/worktrees/w; "
        "printf '../../../../e\\r\\n' > docs/.git/worktrees/w/commondir"), "config"),
    "of a submodule": (("mkdir -p .git/modules/m; mv docs/.git/HEAD .git/modules/m; "
        "echo ../../../e > .git/modules/m/commondir"), "config"),
}  # fmt: skip


@pytest.mark.parametrize("name", COMMON)
def test_case_at_02_a_common_directory_is_resolved_as_git_does(tree: Path, name: str) -> None:
    script, expected = COMMON[name]
    assert expected in {Path(path).name for path in played(tree, POINTED + ARMED + script)}


@pytest.mark.parametrize(
    ("content", "expected"),
    [(b" a \r\n\n", " a "), (b"a\0b\n", "a"), (b"\xff\n", "\udcff"), (b"a\n", "a"), (b"\ta", "\ta"), (b"\n", "")],
)
def test_paths_are_parsed_as_git_does(tmp_path: Path, content: bytes, expected: str) -> None:
    (tmp_path / "file").write_bytes(content)
    assert read_path(tmp_path / "file") == expected
    (tmp_path / "file").write_bytes(b"gitdir: " + content)
    assert read_gitfile(tmp_path / "file") == tmp_path / expected


FOREIGN_TREES = {
    "the project's": "git init -q .; git init -q s; git config -f s/.git/config core.worktree $PWD/.git",
    "below the project's": "git init -q .; git init -q s; git config -f s/.git/config core.worktree ../../.git/hooks",
    "a bare one": "git init -q --bare b; git init -q s; git config -f s/.git/config core.worktree ../../b",
    "the workspace": "git init -q s; git config -f s/.git/config core.worktree ../..",
    "outside": "git init -q s; git config -f s/.git/config core.worktree {out}",
    "the home": "git init -q s; git config -f s/.git/config core.worktree '~'",
    "a tab": "git init -q s; ln -s {out} $'s/w\\t'; printf '[core]\\nworktree = ../w\\\\t\\n' >> s/.git/config",
    "a quoted blank": "git init -q s; ln -s {out} 's/w '; printf '[core]\\nworktree = \"../w \"\\n' >> s/.git/config",
    "a backspace": "git init -q s; ln -s {out} $'s/w\\b'; printf '[core]\\nworktree = ../w\\\\b\\n' >> s/.git/config",
    "in config.worktree": "git init -q s; printf '[core]\\nworktree = {out}\\n' > s/.git/config.worktree",
    "no value": "git init -q s; printf '[core]\\nworktree\\n' >> s/.git/config",
}


@pytest.mark.parametrize("name", FOREIGN_TREES)
def test_case_at_05_a_foreign_work_tree_setting_is_quarantined(tree: Path, name: str) -> None:
    expected = "s/.git/config.worktree" if name == "in config.worktree" else "s/.git/config"
    assert expected in played(tree, FOREIGN_TREES[name])


@pytest.mark.parametrize(
    "script",
    [
        "git init -q s; git config -f s/.git/config core.worktree ..",
        "git init -q s; git config -f s/.git/config core.worktree $PWD/s",
        "git init -q --separate-git-dir=store s; git config -f store/config core.worktree ../s",
        (
            "git init -q s; mkdir -p .git/modules; mv s/.git .git/modules/s; "
            "echo 'gitdir: ../.git/modules/s' > s/.git; git config -f .git/modules/s/config core.worktree ../../../s"
        ),
        (
            "git init -q s; mkdir -p .git/modules; mv s/.git .git/modules/s; rmdir s; "
            "git config -f .git/modules/s/config core.worktree ../../../s"
        ),
    ],
)
def test_a_repositorys_own_work_tree_setting_stays(tree: Path, script: str) -> None:
    assert played(tree, script) == set()


UNLISTED = {
    "a git directory": ("chmod 311 docs/.git", "docs/.git/config"),
    "without any right": ("chmod 0 docs/.git", "docs/.git/config"),
    "not to be entered": ("chmod 600 docs/.git", "docs/.git/config"),
    "above not to be entered": ("chmod 644 docs", "docs/.git/config"),
    "a directory": ("chmod 311 docs", "docs/.git/config"),
    "the workspace": ("chmod 311 .", "docs/.git/config"),
    "each": ("chmod 311 docs/.git docs .", "docs/.git/config"),
    "hooks": ("rm docs/.git/config; echo > docs/.git/hooks/pre-commit; chmod 311 docs/.git/hooks",
        "docs/.git/hooks/pre-commit"),
}  # fmt: skip


def judged_as_nobody(root: Path, script: str, prepared: str = "true") -> set[str]:
    """Run a script and judge what it left without the rights of root, which can list everything."""
    root.chmod(0o755)
    read, write = os.pipe()
    if not (child := os.fork()):
        try:
            if os.geteuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            subprocess.run(["bash", "-ec", prepared], cwd=root, check=True)
            os.write(write, "\n".join(played(root, script)).encode())
        finally:
            os._exit(0)
    os.close(write)
    os.waitpid(child, 0)
    with os.fdopen(read) as answer:
        return set(answer.read().split("\n")) - {""}


@pytest.fixture
def open_root() -> Generator[Path]:
    """A directory that an ordinary user owns and can reach."""
    root = Path(os.path.realpath(tempfile.mkdtemp(prefix="unlisted-")))
    if os.geteuid() == 0:
        os.chown(root, NOBODY, NOBODY)
    yield root
    shutil.rmtree(root)


@pytest.mark.parametrize("name", UNLISTED)
def test_case_at_04_an_unlistable_directory_is_judged(open_root: Path, name: str) -> None:
    closing, expected = UNLISTED[name]
    planted = "git init -q docs; mkdir -p docs/.git/hooks; git config -f docs/.git/config core.fsmonitor id; "
    assert expected in judged_as_nobody(open_root, planted + closing)


def test_a_directory_closed_by_the_user_is_unchanged(open_root: Path) -> None:
    prepared = "mkdir -p data; git init -q data; git config -f data/.git/config core.fsmonitor id; chmod 311 data"
    assert judged_as_nobody(open_root, "touch more", prepared) == set()
    assert (open_root / "data").stat().st_mode & 0o777 == 0o311


def test_a_directory_closed_by_another_user_stays(open_root: Path) -> None:
    if os.geteuid():
        pytest.skip("only root can make a directory of another user")
    (open_root / "data").mkdir(mode=0o700)
    assert judged_as_nobody(open_root, "mkdir more") == set()


def test_a_file_tool_cannot_complete_an_unlistable_git_directory(open_root: Path) -> None:
    (open_root / "d/objects").mkdir(parents=True)
    (open_root / "d/refs").mkdir()
    with patch("os.listdir", side_effect=PermissionError):
        assert is_executed_by_git(open_root / "d/HEAD", open_root, [open_root])
        assert not is_executed_by_git(open_root / "e/HEAD", open_root, [open_root])


def test_case_atk_f16_a_directory_named_like_a_bare_repository_is_judged(tmp_path: Path) -> None:
    file = tmp_path / "site.git/config/a.ts"
    file.parent.mkdir(parents=True)
    assert is_executed_by_git(file, tmp_path, [tmp_path])
    (tmp_path / "site.git/.git").mkdir()
    assert not is_executed_by_git(file, tmp_path, [tmp_path])
