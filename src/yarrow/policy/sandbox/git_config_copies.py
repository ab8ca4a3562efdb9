"""Copies of git configurations that commands change instead of the user's files; harmless changes are carried over.

Inside, `.git/config` is a symlink to the copy: git renames its lock file over the symlink's target, whereas the kernel
refuses to rename a file over a mounted one.
"""

import os
import re
import stat
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from yarrow import platform
from yarrow.platform import system
from yarrow.platform.real_path import real_path
from yarrow.policy.deep_tree_operations import remove_tree
from yarrow.policy.git_config import CONFIG_BYTES, WORKTREE_CONFIG, decode_config, is_settable_change
from yarrow.policy.sandbox.mounts import BindMount
from yarrow.policy.sandbox.quarantine import Quarantine, QuarantineEntry
from yarrow.policy.symlink_free_open import open_beneath, open_directory

MAX_COPIES = 16
"""Maximum configurations that one command can change; later ones are read-only."""
SANDBOX_DIRECTORY = "/tmp/.yarrow-git"  # noqa: S108 (the session's own)
"""Directory of the copies, as commands see it."""
COPIES, LINKS = "configs", "links"
"""Session directories for the copies of each command, and for the symlinks to them."""
GIT_COMMAND = re.compile(r"\bgit\b")
CHANGING_WORDS = re.compile(
    r"\b(?:config|remote|branch|push|set-upstream|switch|checkout|submodule|worktree|init|lfs|flow|sparse-checkout|"
    r"maintenance)\b"
)
"""Pattern of words after `git` in a command that may change a configuration; only then a process is spent on it."""
OTHER_PROGRAMS = re.compile(r"\b(?:gh|husky|hub)\b")
"""Pattern of other programs that change configurations."""
COPYING = re.compile(
    r"\b(?:tar|rsync|cpio|zip|7z|scp|copytree)\b|\bcp\b[^;&|\n]*[ \t](?:-[A-Za-z]*[aRrd]|--(?:archive|recursive)\b)"
)
"""Pattern of programs that copy directories: the copy of a repository would hold the symlink instead of its content."""
MOUNT_PROGRAM = Path(platform.__file__).with_name("symlink_mount_program.py")
"""Program that mounts symlinks, run by path."""
SYSTEM_PYTHON = "/usr/bin/python3"
GUARDS_MARK = "--guards"
"""Placeholder in the launcher's command line for the read-only mounts of the user's files."""
FILE_MODE = re.compile(rb"^([ \t]*filemode[ \t]*=[ \t]*)(true|false)\b", re.MULTILINE | re.IGNORECASE)
EXECUTES_REASON = "it changes settings that make git execute or read something"
CHANGED_REASON = "another program changed the file while the command ran"
UNWRITABLE_REASON = "the file could not be written"


class GitConfigCopy(Struct, frozen=True):
    """The copy of one configuration."""

    config: Path
    """The user's file."""
    original: bytes
    """Content before the command."""
    copy: Path
    """Path of the copy outside the sandbox."""


class GitConfigCopies(Struct, frozen=True):
    """The copies that one command can change."""

    interpreter: str
    """Python interpreter that mounts the symlinks."""
    directory: Path
    links: tuple[Path, ...]
    copies: tuple[GitConfigCopy, ...]
    sets_file_mode: bool
    """True if the command names `core.fileMode`; otherwise git changed it only because it found a symlink."""

    @property
    def configs(self) -> frozenset[Path]:
        """The user's files."""
        return frozenset(copy.config for copy in self.copies)

    def mount(self) -> BindMount:
        """Return the mount of the copies."""
        return BindMount(str(self.directory), SANDBOX_DIRECTORY, writable=True)

    def wrap_launcher(self, guards: Sequence[str], program: Sequence[str]) -> list[str]:
        """Return the command line that mounts the symlinks and runs `program`; `guards` are used if mounting fails."""
        pairs = zip(self.links, self.copies, strict=True)
        links = [word for link, copy in pairs for word in (str(link), str(copy.config))]
        words = [GUARDS_MARK, str(len(links)), *links, str(len(guards)), *guards, *program]
        return [self.interpreter, "-I", "-S", str(MOUNT_PROGRAM), *words]

    def apply_changes(self, quarantine: Quarantine) -> list[QuarantineEntry]:
        """Copy harmless changes to the user's files; quarantine the other copies and return their entries."""
        entries: list[QuarantineEntry] = []
        for copy in self.copies:
            content = _read(self.directory, copy.copy)
            if content is None or content == copy.original:
                continue
            if not self.sets_file_mode:
                content = _with_file_mode(content, copy.original)
            is_harmless = is_settable_change(copy.config, decode_config(copy.original), decode_config(content))
            if reason := _replace(copy, content) if is_harmless else EXECUTES_REASON:
                entries.append(quarantine.store_content(content, copy.config, reason=reason))
        return entries


def copy_git_configs(
    fixed: Iterable[Path], places: Sequence[Path], roots: Sequence[Path], *, command: str
) -> GitConfigCopies | None:
    """Return copies of the configurations among some read-only files; None if the command changes none.

    They are made in the first of some places that has room; without one, the configurations stay read-only. So they do
    if Python lies in the workspace: a command could change what would run outside the sandbox.
    """
    if not _may_change(command) or (interpreter := _interpreter(roots)) is None:
        return None
    names = ("config", WORKTREE_CONFIG)
    configs = [path for path in fixed if path.name in names and os.path.lexists(path.parent / "HEAD")][:MAX_COPIES]
    contents = [(config, content) for config in configs if (content := _read(Path("/"), config)) is not None]
    if not contents:
        return None
    for place in places:
        directory = place / COPIES / os.urandom(8).hex()
        try:
            made = [_copy(*one, directory / str(number)) for number, one in enumerate(contents)]
            links = tuple(_link(place / LINKS, number) for number in range(len(made)))
        except OSError:  # a full disk
            remove_tree(directory)
        else:
            return GitConfigCopies(interpreter, directory, links, tuple(made), "filemode" in command.casefold())
    return None


def _copy(config: Path, content: bytes, directory: Path) -> GitConfigCopy:
    own = directory / "config"
    directory.mkdir(mode=0o700, parents=True)
    own.write_bytes(content)
    return GitConfigCopy(config, content, own)


def _with_file_mode(content: bytes, before: bytes) -> bytes:
    """Return a configuration with the earlier `core.fileMode`, which `git init` changes if the file is a symlink."""
    known = FILE_MODE.search(before)
    return content if known is None else FILE_MODE.sub(lambda found: found[1] + known[2], content)


def _may_change(command: str) -> bool:
    """Return whether a command may change a configuration and copies no directory; each search scans it once."""
    if COPYING.search(command) is not None:
        return False
    git = GIT_COMMAND.search(command)
    return OTHER_PROGRAMS.search(command) is not None or (
        git is not None and CHANGING_WORDS.search(command, git.end()) is not None
    )


def _link(directory: Path, number: int) -> Path:
    directory.mkdir(mode=0o700, exist_ok=True)
    link = directory / str(number)
    with suppress(FileExistsError):
        link.symlink_to(f"{SANDBOX_DIRECTORY}/{number}/config")
    return link


def _interpreter(roots: Sequence[Path]) -> str | None:
    """Return a usable Python interpreter of which no part lies in the workspace."""
    if any(_lies_in(path, roots) for path in (os.__file__, str(MOUNT_PROGRAM))):
        return None
    found = map(real_path, (sys.executable, SYSTEM_PYTHON))
    return next((path for path in found if os.access(path, os.X_OK) and not _lies_in(path, roots)), None)


def _lies_in(path: str, roots: Sequence[Path]) -> bool:
    real = Path(real_path(path))
    return any(real.is_relative_to(root) for root in roots)


def _read(root: Path, path: Path) -> bytes | None:
    """Return the content of a file below a directory; None if it is a symlink, not a regular file or too large."""
    try:
        with os.fdopen(open_beneath(root, path, os.O_RDONLY | system.BASE_FLAGS | system.NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            content = file.read(CONFIG_BYTES + 1)
    except OSError:
        return None
    return content if len(content) <= CONFIG_BYTES else None


def _replace(copy: GitConfigCopy, content: bytes) -> str:
    """Replace the user's file under git's own lock; return why it was not replaced, empty if it was."""
    try:
        directory = open_directory(Path("/"), copy.config.parent)
    except OSError as error:
        return f"{UNWRITABLE_REASON}: {error.strerror}"
    lock = f"{copy.config.name}.lock"
    try:
        making = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with os.fdopen(system.open_at(directory, lock, making, mode=0o600), "wb") as file:
            is_same = _read(Path("/"), copy.config) == copy.original
            if is_same:
                _write_like(file, content, system.stat_at(directory, copy.config.name))
        if is_same:
            system.replace_at(directory, lock, copy.config.name)
        else:
            system.unlink_at(directory, lock)
    except FileExistsError:
        return "another git process is writing the file"
    except OSError as error:
        with suppress(OSError):
            system.unlink_at(directory, lock)
        return f"{UNWRITABLE_REASON}: {error.strerror}"
    else:
        return "" if is_same else CHANGED_REASON
    finally:
        os.close(directory)


def _write_like(file: BinaryIO, content: bytes, like: os.stat_result) -> None:
    file.write(content)
    file.flush()
    system.set_mode(file.fileno(), stat.S_IMODE(like.st_mode))
    if system.is_root():
        system.copy_owner(file.fileno(), like)
