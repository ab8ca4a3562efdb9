"""`yarrow init`: begins the settings and the AGENTS.md of a project, or in the home directory the user's settings."""

import os
from collections.abc import Sequence
from pathlib import Path

from yarrow.cli.creating import create
from yarrow.cli.init_texts import AGENTS, PROJECT_SETTINGS, USER_SETTINGS
from yarrow.cli.main import say
from yarrow.cli.places import home_directory, working_directory
from yarrow.client.inert import inert
from yarrow.config.files import DIRECTORY, FILE, user_file
from yarrow.errors import UsageError

INSTEAD = ("CLAUDE.md", "GEMINI.md")
"""What is read where there is no AGENTS.md; one beside it would no longer be."""


def init(words: Sequence[str]) -> int:
    """Write what is not there yet, and say what that was. Raises `UsageError` and `StorageError`."""
    if words:
        raise UsageError(f"yarrow init takes nothing, not {' '.join(words)!r}: run it in the directory that it is for")
    home, directory = home_directory(), Path(working_directory())
    settings, users = directory / DIRECTORY / FILE, user_file(home, os.environ)
    if _same(directory, home) or _same(settings, users):
        return _begin_user(users)
    _begin(settings, PROJECT_SETTINGS, "settings, all of them commented out")
    _begin_agents(directory)
    return _tell(
        "\nNext: fill them in; what needs trust applies after `yarrow trust`. See what `yarrow doctor` says, then run "
        '`yarrow "PROMPT"`.'
    )


def _begin_user(users: Path) -> int:
    _tell("Settings kept here are yours and hold for every project; for a project's own, run `yarrow init` in it.")
    # Whoever keeps such directories elsewhere has made a link of this one.
    path = Path(os.path.realpath(users.parent)) / users.name
    _begin(path, USER_SETTINGS, "your settings, all of them commented out", private=True)
    return _tell(
        '\nNext: name a provider and a model in it, see what `yarrow doctor` says, then run `yarrow "PROMPT"`.'
    )


def _begin_agents(directory: Path) -> None:
    path = directory / "AGENTS.md"
    instead = next((name for name in INSTEAD if (directory / name).exists()), "")
    if instead and not os.path.lexists(path):
        _tell(f"left   {path.name} out: {instead} is what a model reads here, and would not be read beside it")
    else:
        _begin(path, AGENTS, "an outline of what a model must know here")


def _begin(path: Path, text: str, what: str, *, private: bool = False) -> None:
    is_new = create(path, text, private=private)
    here = Path.cwd()
    shown = path.relative_to(here) if path.is_relative_to(here) else path
    _tell(f"wrote  {shown}: {what}" if is_new else f"kept   {shown}: it is there already")


def _same(one: Path, other: Path) -> bool:
    return os.path.realpath(one) == os.path.realpath(other)


def _tell(line: str) -> int:
    return say(f"{inert(line)}\n")
