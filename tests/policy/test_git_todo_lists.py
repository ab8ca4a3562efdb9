"""Commands that a run puts into the list of a stopped git operation are found as git reads them."""

import os
import subprocess
from pathlib import Path

import pytest

from yarrow.policy import git_refs_snapshot
from yarrow.policy.git_refs_snapshot import MAX_TODO_BYTES, TODO_FILES, TOO_MANY_STEPS, new_exec_commands

COMMANDS = [
    "exec touch x",
    "x touch x",
    "  exec touch x",
    "\tx\ttouch x",
    "exec  touch x\r",
    "exec touch x \t",
    "exec\ttouch x",
]
OTHERS = [
    "# exec touch x",
    "pick abc exec touch x",
    "execute touch x",
    "X touch x",
    "xtouch x",
    "break",
    "label x",
    "reset x",
]


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    directory = tmp_path / "ws/.git"
    for name in ("objects", "refs", "rebase-merge", "rebase-apply", "sequencer"):
        (directory / name).mkdir(parents=True)
    (directory / "HEAD").write_text("ref: refs/heads/main\n")
    return directory


def look(roots: list[Path]) -> dict[Path, tuple[str, ...]]:
    return git_refs_snapshot.read_exec_commands(git_refs_snapshot.scan_repositories(roots).states)


def written(path: Path, *lines: str) -> Path:
    path.write_bytes("\n".join(lines).encode())
    return path


@pytest.mark.parametrize("name", TODO_FILES)
@pytest.mark.parametrize("line", COMMANDS)
def test_case_at_07_a_command_is_found(repository: Path, name: str, line: str) -> None:
    roots = [repository.parent]
    todo = written(repository / name, "pick abc", "noop")
    before = look(roots)
    for lines in ([line], ["pick abc", line], ["pick abc", line, "pick def", ""]):
        written(todo, *lines)
        assert new_exec_commands(before, look(roots)) == [(todo, "exec touch x")]
        assert new_exec_commands(look(roots), look(roots)) == []


@pytest.mark.parametrize("line", OTHERS)
def test_case_at_07_other_lines_are_not_commands(repository: Path, line: str) -> None:
    written(repository / TODO_FILES[0], "pick abc", line)
    assert look([repository.parent]) == {}


def test_case_at_07_a_symlinked_or_overlong_todo_list_is_found(repository: Path) -> None:
    roots, todo = [repository.parent], repository / TODO_FILES[0]
    todo.symlink_to(written(repository.parent / "list", "exec touch x"))
    assert look(roots) == {todo: ("exec touch x",)}
    written(repository.parent / "list", *["# line"] * (MAX_TODO_BYTES // 7), "exec touch x")
    assert look(roots) == {todo: (TOO_MANY_STEPS,)}
    todo.unlink()
    os.mkfifo(todo)
    assert look(roots) == {}


def test_case_at_07_todo_lists_of_worktrees_are_found_except_the_users(tmp_path: Path) -> None:
    def git(*words: str, cwd: Path) -> None:
        subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=a@b.c", *words], cwd=cwd, check=True)

    main, tree = tmp_path / "main", tmp_path / "tree"
    main.mkdir()
    git("init", "-q", cwd=main)
    git("commit", "-q", "--allow-empty", "-m", "a", cwd=main)
    git("worktree", "add", "-q", str(tree), cwd=main)
    todo = main / ".git/worktrees/tree" / TODO_FILES[0]
    todo.parent.mkdir()
    written(todo, "exec make test", "pick abc")
    before = look([tree])
    assert before == {todo: ("exec make test",)}
    written(todo, "pick abc", "exec make test", "exec evil")
    assert new_exec_commands(before, look([tree])) == new_exec_commands(before, look([main])) == [(todo, "exec evil")]
    assert git_refs_snapshot.new_exec_commands(before, {}) == []
