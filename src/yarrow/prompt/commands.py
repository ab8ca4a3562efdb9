"""Commands that a prompt can begin with: `/template arguments`, or `/skill:name arguments`, in short `/name`."""

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from yarrow.errors import InvalidArgument
from yarrow.prompt.document import DOCUMENT_BYTES, Document, Unusable, read_document
from yarrow.prompt.front_matter import FRONT_BYTES, one_line
from yarrow.prompt.listing import NAME, Offer, listing, told
from yarrow.prompt.places import Places, shown
from yarrow.prompt.skills import SKILLS, read_skills
from yarrow.prompt.templates import TEMPLATES, check_length, fill
from yarrow.prompt.untrusted import wrap

NEAR = 0.8
"""How alike a word after a slash and a command must be, from 0 to 1, for the word to be taken for a slip."""

SKILL = "skill:"
"""What the command of a skill begins with; where no template has the name, the name alone will do."""

Source = Literal["template", "skill"]


class Command(Struct, frozen=True):
    """A command as it is listed."""

    name: str
    description: str
    """On one line; empty when the file says nothing."""
    source: Source


class Expanded(Struct, frozen=True):
    """What a command stands for."""

    text: str
    name: str
    source: Source


def list_commands(places: Places) -> tuple[tuple[Command, ...], tuple[str, ...]]:
    """Return the commands by name, and what was left out."""
    templates = listing(places, TEMPLATES)
    skills, skill_warnings = read_skills(places)
    warnings = [*templates.warnings, *skill_warnings]
    commands: list[Command] = []
    for name, offer in templates.offers.items():
        document = read_document(offer, most=FRONT_BYTES)
        if isinstance(document, Unusable):
            warnings.append(f"{places.shown(offer.path)} {document.why}")
        else:
            commands.append(Command(name, _description(document), "template"))
    commands += [Command(f"{SKILL}{skill.name}", skill.description, "skill") for skill in skills]
    return tuple(sorted(commands, key=lambda command: command.name)), told(warnings)


def expand(text: str, places: Places, others: Iterable[str] = ()) -> Expanded | None:
    """Return what a text stands for that begins with a command; None when it is a plain text.

    Only directories and the one file are read. Raises `InvalidArgument` when the file cannot be used, or when the
    name is nearly that of a command, to which `others` belong; `LimitExceeded` when the result is too long.
    """
    found = re.match(rf"/({SKILL})?({NAME})(?:\s|\Z)", text)
    if found is None:
        return None
    is_skill, name, arguments = bool(found[1]), found[2], text[found.end() :]
    templates: Mapping[str, Offer] = {} if is_skill else listing(places, TEMPLATES).offers
    if offer := templates.get(name):
        return Expanded(fill(_document(offer, places).body.strip(), arguments), name, "template")
    skills = listing(places, SKILLS).offers
    if offer := skills.get(name):
        return Expanded(_skill(name, _document(offer, places), arguments.strip()), name, "skill")
    if is_skill:
        there = f"there are {', '.join(sorted(skills))}" if skills else "there are none"
        raise InvalidArgument("text", f"there is no skill {name}; {there}. A space before the slash sends it as it is")
    _refuse_slip(name, [*templates, *skills, *others])
    return None


def _description(document: Document) -> str:
    """Return what a template says of itself, else its first line."""
    first = next((line for line in document.body.splitlines() if line.strip()), "")
    description = document.values.get("description") or first
    hint = document.values.get("argument-hint")
    return one_line(f"{description} (arguments: {hint})" if hint else description)


def _document(offer: Offer, places: Places) -> Document:
    document = read_document(offer, most=DOCUMENT_BYTES)
    if isinstance(document, Unusable):
        raise InvalidArgument("text", f"{places.shown(offer.path)} {document.why}")
    return document


def _skill(name: str, document: Document, arguments: str) -> str:
    check_length(len(arguments))
    text = f"Skill {name} ({shown(document.real)}):\n\n{document.body.strip()}"
    return f"{text}\n\nArguments: {wrap(arguments)}" if arguments else text


def _refuse_slip(name: str, names: list[str]) -> None:
    # Here, since only a word after a slash that is no command needs it.
    from difflib import get_close_matches

    if near := get_close_matches(name, names, n=1, cutoff=NEAR):
        raise InvalidArgument(
            "text",
            f"there is no command /{name}; the nearest is /{near[0]}. A space before the slash sends it as it is",
        )
