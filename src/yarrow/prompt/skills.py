"""Skills: directories with a `SKILL.md` of instructions, which the model opens for a matching task."""

from pathlib import Path

from msgspec import Struct

from yarrow.prompt.markdown_resources import (
    MAX_FRONT_MATTER_BYTES,
    Resource,
    ResourceKind,
    UnusableDocument,
    list_resources,
    read_document,
    to_one_line,
)
from yarrow.prompt.resource_directories import SessionDirectories, format_path

SKILL_KIND = ResourceKind("skill", (".yarrow/skills", ".agents/skills"), ending="", file="SKILL.md", max_count=100)
MAX_LIST_BYTES = 64 << 10
"""Maximum bytes of the skill list in the system prompt; skills that do not fit are omitted with a warning."""

_INTRODUCTION = "Skills describe how to do something. When one fits the task, read its file first and follow it:"


class Skill(Struct, frozen=True):
    """A skill as listed for the model."""

    name: str
    description: str
    """One line."""
    path: Path
    """Real path of its `SKILL.md`."""

    def format_line(self) -> str:
        """Return the line for the system prompt."""
        return f"- {self.name}: {self.description} ({format_path(self.path)})"


def read_skills(directories: SessionDirectories) -> tuple[tuple[Skill, ...], tuple[str, ...]]:
    """Return the skills of the user and the project by name, and warnings. Reads only front matter."""
    found = list_resources(directories, SKILL_KIND)
    warnings = list(found.warnings)
    skills: list[Skill] = []
    size = 0
    for name, offer in found.resources.items():
        skill = _read_skill(name, offer, places=directories, warnings=warnings)
        if skill is None:
            continue
        size += len(skill.format_line().encode())
        if size > MAX_LIST_BYTES:
            first = directories.format_path(offer.path)
            warnings.append(f"{first} and later skills are skipped: their list is limited to {MAX_LIST_BYTES} bytes")
            break
        skills.append(skill)
    return tuple(sorted(skills, key=lambda skill: skill.name)), tuple(warnings)


def format_skills(skills: tuple[Skill, ...]) -> str:
    """Return the skills section of the system prompt; empty if there are no skills."""
    return "\n".join((_INTRODUCTION, *(skill.format_line() for skill in skills))) if skills else ""


def find_skill_directories(places: SessionDirectories) -> tuple[Path, ...]:
    """Return the skill directories outside the working directory, which the model may read."""
    return select_outside(read_skills(places)[0], places)


def select_outside(skills: tuple[Skill, ...], places: SessionDirectories) -> tuple[Path, ...]:
    """Return the directories of these skills that are outside the working directory."""
    return tuple(skill.path.parent for skill in skills if not skill.path.is_relative_to(places.cwd))


def _read_skill(name: str, offer: Resource, *, places: SessionDirectories, warnings: list[str]) -> Skill | None:
    """Return the skill in one directory; problems become warnings."""
    path = places.format_path(offer.path)
    file = read_document(offer, most=MAX_FRONT_MATTER_BYTES, largest=None)
    if isinstance(file, UnusableDocument):
        warnings.append(f"{path} {file.why}")
        return None
    if not (description := to_one_line(file.values.get("description", ""))):
        warnings.append(f"{path} is skipped: its front matter has no description of when to use it")
        return None
    if (said := file.values.get("name") or name) != name:
        warnings.append(f"{path} sets the name {to_one_line(said)!r}, but the name of its folder, {name}, is used")
    return Skill(name, description, file.real)
