"""Project files that editors, agents, shells and CI execute or obey without the user running them."""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path, PurePath
from typing import TypeAlias

from msgspec import Struct

GIT_HOOKS = (
    *("applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit", "prepare-commit-msg"),
    *("commit-msg", "post-commit", "pre-rebase", "post-checkout", "post-merge", "pre-push", "pre-receive", "update"),
    *("proc-receive", "post-receive", "post-update", "reference-transaction", "push-to-checkout", "pre-auto-gc"),
    *("post-rewrite", "sendemail-validate", "fsmonitor-watchman", "post-index-change"),
)
"""Names of the hooks that git runs."""
GIT_CONFIG = "config"
"""Name of a git directory's configuration; a file of this name is executed if a setting in it is."""
EXECUTED_PATHS = (
    # Agents: instructions, skills, hooks and servers.
    *(".agents", ".claude", ".codex", ".cursor", ".gemini", ".opencode", ".windsurf", ".clinerules", ".roo", ".kiro"),
    *(".continue", ".junie", "AGENTS.md", "AGENTS.override.md", "CLAUDE.md", "CLAUDE.local.md", "GEMINI.md"),
    *(".cursorrules", ".windsurfrules", ".roorules", ".mcp.json", "opencode.json", ".aider.conf.yml"),
    *(".github/copilot-instructions.md", ".github/instructions", ".github/agents", ".github/prompts"),
    # Editors: tasks, run configurations, interpreters, extensions.
    *(".vscode", ".idea", ".zed", ".fleet", ".devcontainer", ".devcontainer.json", ".dir-locals.el"),
    *(".exrc", ".nvimrc", ".nvim.lua", ".vimrc", ".lvimrc"),
    # Shells, when they enter the directory.
    *(".envrc", ".autoenv", ".autoenv.zsh", "mise.toml", "mise.local.toml", ".mise.toml", ".mise.local.toml"),
    *(".mise", "mise/config.toml", ".config/mise", ".config/mise.toml", ".rtx.toml", ".devenv"),
    # Version control, and hooks that it can be configured to run from the work tree.
    *(".hg/hgrc", ".hg/hgrc-not-shared", ".jj/repo/config.toml", ".husky", ".githooks", ".hooks"),
    *(".pre-commit-config.yaml", ".pre-commit-config.yml", "lefthook.yml", "lefthook-local.yml", ".lefthook.yml"),
    ".lefthook",
    # Hooks that git runs once the user makes the directory above a git directory, as with `--separate-git-dir`.
    *(f"hooks/{name}" for name in GIT_HOOKS),
    # Modules that every Python imports at its start if PYTHONPATH leads to them.
    *("sitecustomize.py", "usercustomize.py"),
    # Debuggers and language servers that an editor starts.
    *(".gdbinit", ".lldbinit", ".cargo/config.toml", ".cargo/config"),
    # Continuous integration, which has secrets of its own.
    *(".github/workflows", ".github/actions", ".gitea/workflows", ".forgejo/workflows", ".gitlab-ci.yml"),
    *(".circleci", ".travis.yml", ".drone.yml", ".woodpecker", ".woodpecker.yml", ".buildkite", "Jenkinsfile"),
    *("azure-pipelines.yml", "bitbucket-pipelines.yml", ".cirrus.yml", "appveyor.yml", ".appveyor.yml"),
)
"""Paths below the root of a project: files, and directories with everything in them."""
EDITOR_STATE = frozenset({(".idea", "workspace.xml"), (".idea", "shelf"), (".idea", "usage.statistics.xml")})
"""Files that an editor itself writes all the time, as pairs of directory and name."""
MAX_ENTRIES = 500
"""Maximum entries examined in one listed directory; later ones are ignored."""
MAX_NESTED_ENTRIES = 500
"""Maximum existing entries compared around one command, the nearest first; as many new ones are added."""

FileState: TypeAlias = tuple[int, int, int, int]
_ROWS = tuple(tuple(PurePath(row).parts) for row in EXECUTED_PATHS)
_ROWS_BY_NAME: dict[str, list[tuple[str, str]]] = {}
for _row in EXECUTED_PATHS:
    _first, _slash, _rest = _row.partition("/")
    _ROWS_BY_NAME.setdefault(_first.casefold(), []).append((_row, _slash + _rest))
EXECUTED_NAMES = frozenset({*_ROWS_BY_NAME, GIT_CONFIG})
"""Lowercase first components of `EXECUTED_PATHS`, and `GIT_CONFIG`."""
_COMMON_NAMES = ("/hooks", f"/{GIT_CONFIG}")
"""Ends of paths that many projects have, and that are compared last."""


def is_executed(path: PurePath) -> bool:
    """Return whether a path below a root is in `EXECUTED_PATHS` or lies in one of them, at any depth."""
    parts = tuple(name.casefold() for name in path.parts)
    return any(
        parts[start : start + len(row)] == tuple(map(str.casefold, row))
        and parts[start : start + 2] not in EDITOR_STATE
        for row in _ROWS
        for start in range(len(parts) - len(row) + 1)
    )


def is_executed_config(path: str) -> bool:
    """Return whether a file is called as a git directory's configuration, and a setting in it executes something."""
    if path[path.rfind("/") + 1 :].casefold() != GIT_CONFIG or not os.path.isfile(path):  # noqa: PTH113 (a string)
        return False
    from yarrow.policy.git_executed_settings import names_commands  # most workspaces have no such file

    return names_commands(Path(path))


def snapshot(
    roots: Iterable[Path], files: Iterable[Path] = (), directories: Iterable[Path] = ()
) -> dict[str, FileState]:
    """Return the states of `EXECUTED_PATHS` below each root, of other files, and of files in other directories."""
    found: dict[str, FileState] = {}
    for root in dict.fromkeys(roots):
        for row in EXECUTED_PATHS:
            _add_states(f"{root}/{row}", row, found)
    for directory in map(str, directories):
        found.update(_states_below(directory, directory))
    for file in map(str, files):
        with suppress(OSError, ValueError):
            status = os.lstat(file)
            if not stat.S_ISDIR(status.st_mode):
                found[file] = _state(status)
    return found


def changed_paths(before: Mapping[str, FileState], after: Mapping[str, FileState]) -> list[str]:
    """Return the paths that are new or have a different state."""
    return [path for path, state in after.items() if before.get(path) != state]


class NestedFiles(Struct, frozen=True):
    """Executed files in all directories of a workspace, before a command."""

    entries: frozenset[str]
    """Paths whose names match `EXECUTED_NAMES`."""
    compared: tuple[str, ...]
    """Paths whose files are compared."""
    states: dict[str, FileState]

    @classmethod
    def snapshot(cls, entries: Iterable[str]) -> "NestedFiles":
        """Record the files before a command; `entries` are the paths whose names match `EXECUTED_NAMES`."""
        found = sorted(entries, key=lambda path: path.endswith(_COMMON_NAMES))
        compared = tuple(found[:MAX_NESTED_ENTRIES])
        return cls(frozenset(found), compared, _nested_states(compared))

    def changed_paths(self, entries: Iterable[str]) -> list[str]:
        """Return the paths that a command created or changed; `entries` are the paths after it."""
        new = (path for path in entries if path not in self.entries)
        return changed_paths(self.states, _nested_states((*self.compared, *islice(new, MAX_NESTED_ENTRIES))))


def _nested_states(entries: Iterable[str]) -> dict[str, FileState]:
    found: dict[str, FileState] = {}
    for path in entries:
        name = path[path.rfind("/") + 1 :].casefold()
        if name == GIT_CONFIG and is_executed_config(path):
            _add_states(path, GIT_CONFIG, found)
        for row, below in _ROWS_BY_NAME.get(name, ()):
            _add_states(path + below, row, found)
    return found


def _add_states(path: str, row: str, found: dict[str, FileState]) -> None:
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return
    if stat.S_ISDIR(status.st_mode):
        found.update(_states_below(path, row))
    else:
        found[path] = _state(status)


def _states_below(directory: str, row: str) -> Iterator[tuple[str, FileState]]:
    waiting, looked = [directory], 0
    while waiting and looked < MAX_ENTRIES:
        try:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    looked += 1
                    if (row, entry.name) in EDITOR_STATE or looked > MAX_ENTRIES:
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(entry.path)
                    else:
                        yield entry.path, _state(entry.stat(follow_symlinks=False))
        except OSError:  # deleted meanwhile, or inaccessible
            continue


def _state(status: os.stat_result) -> FileState:
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
