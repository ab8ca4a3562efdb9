"""`yarrow init`: creates settings and `AGENTS.md` from templates."""

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from yarrow.cli.path_arguments import home_directory, working_directory
from yarrow.cli.settings_template import format_project_settings, format_user_settings
from yarrow.cli.standard_streams import write_stdout
from yarrow.client.terminal_text_sanitizer import sanitize
from yarrow.config.files import DIRECTORY_NAME, FILE_NAME, get_user_file
from yarrow.errors import StorageError, UsageError
from yarrow.platform import system
from yarrow.platform.real_path import real_path
from yarrow.session.disk_access import describe_os_error

AGENTS_ALTERNATIVES = ("CLAUDE.md", "GEMINI.md")
"""Files that are read only if there is no AGENTS.md, so that creating one would hide them."""
_NOTHING_TO_CREATE = "\nNothing to create. Edit these files, then check the setup with yarrow doctor."


def run_init(words: Sequence[str]) -> int:
    """Create the files that do not exist yet, and report them. Raises `UsageError` and `StorageError`."""
    if words:
        raise UsageError(f"unexpected argument {' '.join(words)!r}: run yarrow init in the project's directory")
    home, directory = home_directory(), Path(working_directory())
    settings, users = directory / DIRECTORY_NAME / FILE_NAME, get_user_file(home, os.environ)
    if _is_same_file(directory, home) or _is_same_file(settings, users):
        return _init_user(users)
    has_new_settings = _create_and_report(settings, format_project_settings(), "all defaults, commented out")
    guide, is_new_guide = _init_agents(directory)
    steps = f"1. edit {guide} 2. yarrow doctor 3. yarrow"
    return _print_line(f"\nNext: {steps}" if has_new_settings or is_new_guide else _NOTHING_TO_CREATE)


def _init_user(users: Path) -> int:
    _print_line("These settings apply to all your projects. For a single project, run `yarrow init` in its directory.")
    # Users who keep such directories elsewhere have replaced this one by a symlink.
    path = Path(real_path(users.parent)) / users.name
    is_new = _create_and_report(path, format_user_settings(), "all defaults, commented out", private=True)
    steps = "1. set a provider and a model 2. yarrow doctor 3. yarrow"
    return _print_line(f"\nNext: {steps}" if is_new else _NOTHING_TO_CREATE)


def _init_agents(directory: Path) -> tuple[str, bool]:
    """Create AGENTS.md unless it or an alternative exists; return the name of the file to edit, and if it is new."""
    path = directory / "AGENTS.md"
    instead = next((name for name in AGENTS_ALTERNATIVES if (directory / name).exists()), "")
    if instead and not os.path.lexists(path):
        _print_line(f"Skipped {path.name} ({instead} would no longer be read)")
        return instead, False
    return path.name, _create_and_report(path, AGENTS, "template")


def _create_and_report(path: Path, text: str, what: str, *, private: bool = False) -> bool:
    is_new = create_file(path, text, private=private)
    here = Path.cwd()
    shown = path.relative_to(here) if path.is_relative_to(here) else path
    _print_line(f"Created {shown} ({what})" if is_new else f"Kept {shown} (already exists)")
    return is_new


def _is_same_file(one: Path, other: Path) -> bool:
    return real_path(one) == real_path(other)


def _print_line(line: str) -> int:
    return write_stdout(f"{sanitize(line)}\n")


AGENTS = """\
# Contributor guide

<!-- The agent reads this file before every task. Keep it short and correct: only what it cannot guess. -->

## Overview

<!-- One or two sentences, and where to start reading. -->

## Build and test

<!-- The exact commands, and how to run a single test. -->

## Conventions

<!-- Whatever a reviewer asks for: style, names, commits. -->

## Do not change

<!-- Generated files, vendored code, data, and anything that needs human approval. -->
"""
"""Template of a project's `AGENTS.md`."""


_NO_HARD_LINK_ERRNOS = {errno.EPERM, errno.EACCES, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK}
"""Error numbers with which a file system without hard links fails."""


def create_file(path: Path, text: str, *, private: bool) -> bool:
    """Create a file, and its directory if missing; return False if the name already exists.

    A `private` file is readable only by its owner. The directory must not be a symlink, which could lead anywhere.
    Raises `StorageError`.
    """
    try:
        with suppress(FileExistsError):
            path.parent.mkdir(mode=0o700 if private else 0o777)
        if path.parent.is_symlink():
            raise StorageError(f"cannot write to {path.parent}: it is a symlink; replace it with a directory")
        directory = system.open_directory(path.parent, follow=False)
        try:
            return _create_in(directory, path.name, text.encode(), mode=0o600 if private else 0o666)
        finally:
            os.close(directory)
    except OSError as error:
        raise StorageError(f"cannot write {path}: {describe_os_error(error)}") from None


def _create_in(directory: int, name: str, data: bytes, *, mode: int) -> bool:
    draft = f".{name}.{os.getpid()}.draft"
    descriptor = system.open_at(directory, draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode=mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        return _publish(directory, draft, name)
    finally:
        with suppress(FileNotFoundError):  # it has been renamed
            system.unlink_at(directory, draft)


def _publish(directory: int, draft: str, name: str) -> bool:
    try:
        # Unlike a rename, this fails if the name exists, even as a dangling symlink.
        system.link_at(directory, draft, name)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_HARD_LINK_ERRNOS:
            raise
        with suppress(FileNotFoundError):
            system.stat_at(directory, name)
            return False
        system.replace_at(directory, draft, name)
    return True
