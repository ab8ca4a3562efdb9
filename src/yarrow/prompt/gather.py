"""Reads once, for a new session, what its system prompt tells of the user's and the project's files."""

from pathlib import Path

from msgspec import Struct

from yarrow.prompt.context_files import ContextFile, read_context_files
from yarrow.prompt.listing import told
from yarrow.prompt.places import Places
from yarrow.prompt.skills import Skill, outside, read_skills


class Gathered(Struct, frozen=True):
    """What was found."""

    context: tuple[ContextFile, ...] = ()
    """From the most general to the nearest."""
    skills: tuple[Skill, ...] = ()
    readable: tuple[Path, ...] = ()
    """Directories outside the working directory that skills lie in, to be read besides the workspace."""
    warnings: tuple[str, ...] = ()
    """What was left out or cut, each in one sentence that names the path."""


def gather(places: Places) -> Gathered:
    """Read context files and the front matter of skills; whatever is wrong with a file is a warning."""
    context, of_context = read_context_files(places)
    skills, of_skills = read_skills(places)
    return Gathered(context, skills, outside(skills, places), told(of_context + of_skills))
