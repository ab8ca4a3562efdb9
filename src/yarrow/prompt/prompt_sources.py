"""Reads once, for a new session, what its system prompt tells of the user's and the project's files."""

from pathlib import Path

from msgspec import Struct

from yarrow.prompt.context_files import ContextFile, read_context_files
from yarrow.prompt.resources import limit_warnings
from yarrow.prompt.session_directories import SessionDirectories
from yarrow.prompt.skills import Skill, read_skills, select_outside


class PromptSources(Struct, frozen=True):
    """What was found."""

    context: tuple[ContextFile, ...] = ()
    """From the most general to the nearest."""
    skills: tuple[Skill, ...] = ()
    readable: tuple[Path, ...] = ()
    """Directories outside the working directory that skills lie in, to be read besides the workspace."""
    warnings: tuple[str, ...] = ()
    """What was left out or cut, each in one sentence that names the path."""


def read_prompt_sources(places: SessionDirectories) -> PromptSources:
    """Read context files and the front matter of skills; whatever is wrong with a file is a warning."""
    context, of_context = read_context_files(places)
    skills, of_skills = read_skills(places)
    return PromptSources(context, skills, select_outside(skills, places), limit_warnings(of_context + of_skills))
