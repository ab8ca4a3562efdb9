"""`yarrow init`: begins the settings and the AGENTS.md of a project, or in the home directory the user's settings."""

import os
from collections.abc import Sequence
from pathlib import Path

from yarrow.cli.atomic_create import create_file
from yarrow.cli.init_templates import AGENTS, PROJECT_SETTINGS, USER_SETTINGS
from yarrow.cli.main import write_stdout
from yarrow.cli.paths import home_directory, working_directory
from yarrow.client.sanitizer import sanitize
from yarrow.config.files import DIRECTORY_NAME, FILE_NAME, get_user_file
from yarrow.errors import UsageError

AGENTS_ALTERNATIVES = ("CLAUDE.md", "GEMINI.md")
"""What is read where there is no AGENTS.md; one beside it would no longer be."""


def run_init(words: Sequence[str]) -> int:
    """Write what is not there yet, and say what that was. Raises `UsageError` and `StorageError`."""
    if words:
        raise UsageError(f"yarrow init takes nothing, not {' '.join(words)!r}: run it in the directory that it is for")
    home, directory = home_directory(), Path(working_directory())
    settings, users = directory / DIRECTORY_NAME / FILE_NAME, get_user_file(home, os.environ)
    if _is_same_file(directory, home) or _is_same_file(settings, users):
        return _init_user(users)
    _create_and_report(settings, PROJECT_SETTINGS, "settings, all of them commented out")
    _init_agents(directory)
    return _print_line(
        "\nNext: fill them in; what needs trust applies after `yarrow trust`. See what `yarrow doctor` says, then run "
        '`yarrow "PROMPT"`.'
    )


def _init_user(users: Path) -> int:
    _print_line(
        "Settings kept here are yours and hold for every project; for a project's own, run `yarrow init` in it."
    )
    # Whoever keeps such directories elsewhere has made a link of this one.
    path = Path(os.path.realpath(users.parent)) / users.name
    _create_and_report(path, USER_SETTINGS, "your settings, all of them commented out", private=True)
    return _print_line(
        '\nNext: name a provider and a model in it, see what `yarrow doctor` says, then run `yarrow "PROMPT"`.'
    )


def _init_agents(directory: Path) -> None:
    path = directory / "AGENTS.md"
    instead = next((name for name in AGENTS_ALTERNATIVES if (directory / name).exists()), "")
    if instead and not os.path.lexists(path):
        _print_line(f"left   {path.name} out: {instead} is what a model reads here, and would not be read beside it")
    else:
        _create_and_report(path, AGENTS, "an outline of what a model must know here")


def _create_and_report(path: Path, text: str, what: str, *, private: bool = False) -> None:
    is_new = create_file(path, text, private=private)
    here = Path.cwd()
    shown = path.relative_to(here) if path.is_relative_to(here) else path
    _print_line(f"wrote  {shown}: {what}" if is_new else f"kept   {shown}: it is there already")


def _is_same_file(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _print_line(line: str) -> int:
    return write_stdout(f"{sanitize(line)}\n")
