"""Finds skills: folders whose `SKILL.md` tells how to do something, and which the model opens when a task fits."""

from pathlib import Path

from msgspec import Struct

from yarrow.prompt.document import Unusable, read_document
from yarrow.prompt.front_matter import FRONT_BYTES, one_line
from yarrow.prompt.listing import Kind, Offer, listing
from yarrow.prompt.places import Places, shown

SKILLS = Kind("skill", (".yarrow/skills", ".agents/skills"), ending="", file="SKILL.md", most=100)
LINES_BYTES = 64 << 10
"""Of all skills in the system prompt; those that no longer fit are left out, and said so."""

_USE = "Skills tell how to do something. When a task fits one of them, read its file first and follow it:"


class Skill(Struct, frozen=True):
    """A skill as the model is told of it."""

    name: str
    description: str
    """On one line."""
    path: Path
    """The real path of its `SKILL.md`."""

    def line(self) -> str:
        """Return the line of the system prompt."""
        return f"- {self.name}: {self.description} ({shown(self.path)})"


def read_skills(places: Places) -> tuple[tuple[Skill, ...], tuple[str, ...]]:
    """Return the skills of the user and the project by name, and what was left out. Only front matter is read."""
    found = listing(places, SKILLS)
    warnings = list(found.warnings)
    skills: list[Skill] = []
    size = 0
    for name, offer in found.offers.items():
        skill = _skill(name, offer, places=places, warnings=warnings)
        if skill is None:
            continue
        size += len(skill.line().encode())
        if size > LINES_BYTES:
            warnings.append(
                f"{places.shown(offer.path)} and what follows are left out: skills have {LINES_BYTES} bytes"
            )
            break
        skills.append(skill)
    return tuple(sorted(skills, key=lambda skill: skill.name)), tuple(warnings)


def render(skills: tuple[Skill, ...]) -> str:
    """Return what the system prompt says of skills; nothing when there are none."""
    return "\n".join((_USE, *(skill.line() for skill in skills))) if skills else ""


def skill_directories(places: Places) -> tuple[Path, ...]:
    """Return the folders of skills that lie outside the working directory: the model may read what is in them."""
    return outside(read_skills(places)[0], places)


def outside(skills: tuple[Skill, ...], places: Places) -> tuple[Path, ...]:
    """Return the folders of these skills that lie outside the working directory."""
    return tuple(skill.path.parent for skill in skills if not skill.path.is_relative_to(places.cwd))


def _skill(name: str, offer: Offer, *, places: Places, warnings: list[str]) -> Skill | None:
    """Return the skill in one folder; what is wrong with it is a warning."""
    path = places.shown(offer.path)
    file = read_document(offer, most=FRONT_BYTES, largest=None)
    if isinstance(file, Unusable):
        warnings.append(f"{path} {file.why}")
        return None
    if not (description := one_line(file.values.get("description", ""))):
        warnings.append(f"{path} is left out: its front matter has no description, which says when to use it")
        return None
    if (said := file.values.get("name") or name) != name:
        warnings.append(f"{path} calls itself {one_line(said)!r}; its name is that of its folder, {name}")
    return Skill(name, description, file.real)
