"""Prompt templates as slash commands: listing, parsing and expansion."""

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from yarrow.errors import Code, InvalidArgument, LimitExceeded
from yarrow.prompt.markdown_resources import (
    MAX_DOCUMENT_BYTES,
    MAX_FRONT_MATTER_BYTES,
    RESOURCE_NAME,
    Document,
    Resource,
    ResourceKind,
    UnusableDocument,
    limit_warnings,
    list_resources,
    read_document,
    to_one_line,
)
from yarrow.prompt.resource_directories import SessionDirectories, format_path
from yarrow.prompt.skills import SKILL_KIND, read_skills
from yarrow.prompt.untrusted import wrap_untrusted

MIN_SIMILARITY = 0.8
"""Minimum similarity, from 0 to 1, at which an unknown slash command counts as a typo of a known one."""

SKILL_PREFIX = "skill:"
"""Prefix of skill commands; it may be omitted if no template has the name."""

CommandSource = Literal["template", "skill"]


class PromptCommand(Struct, frozen=True):
    """A command as shown in a list."""

    name: str
    description: str
    """One line; empty if the file has no description."""
    source: CommandSource


class ExpandedCommand(Struct, frozen=True):
    """The expansion of a command."""

    text: str
    name: str
    source: CommandSource


def list_commands(directories: SessionDirectories) -> tuple[tuple[PromptCommand, ...], tuple[str, ...]]:
    """Return the commands sorted by name, and warnings about omitted ones."""
    templates = list_resources(directories, TEMPLATE_KIND)
    skills, skill_warnings = read_skills(directories)
    warnings = [*templates.warnings, *skill_warnings]
    commands: list[PromptCommand] = []
    for name, offer in templates.resources.items():
        document = read_document(offer, most=MAX_FRONT_MATTER_BYTES)
        if isinstance(document, UnusableDocument):
            warnings.append(f"{directories.format_path(offer.path)} {document.why}")
        else:
            commands.append(PromptCommand(name, _describe_template(document), "template"))
    commands += [PromptCommand(f"{SKILL_PREFIX}{skill.name}", skill.description, "skill") for skill in skills]
    return tuple(sorted(commands, key=lambda command: command.name)), limit_warnings(warnings)


def expand_command(text: str, directories: SessionDirectories, others: Iterable[str] = ()) -> ExpandedCommand | None:
    """Return the expansion of a text that starts with a command; None if it is plain text.

    Reads only directories and the command's file. Raises `InvalidArgument` if the file cannot be used, or if the name
    resembles that of a command (`others` count as commands too); `LimitExceeded` if the result is too long.
    """
    found = re.match(rf"/({SKILL_PREFIX})?({RESOURCE_NAME})(?:\s|\Z)", text)
    if found is None:
        return None
    is_skill, name, arguments = bool(found[1]), found[2], text[found.end() :]
    templates: Mapping[str, Resource] = {} if is_skill else list_resources(directories, TEMPLATE_KIND).resources
    if offer := templates.get(name):
        return ExpandedCommand(
            fill_template(_read_required(offer, directories).body.strip(), arguments), name, "template"
        )
    skills = list_resources(directories, SKILL_KIND).resources
    if offer := skills.get(name):
        return ExpandedCommand(
            _format_skill(name, _read_required(offer, directories), arguments.strip()), name, "skill"
        )
    if is_skill:
        available = f"available skills: {', '.join(sorted(skills))}" if skills else "no skills are available"
        raise InvalidArgument("text", f"unknown skill {name}; {available}. Start with a space to send it as text")
    _refuse_typo(name, [*templates, *skills, *others])
    return None


def _describe_template(document: Document) -> str:
    """Return a template's description, or else its first line."""
    first = next((line for line in document.body.splitlines() if line.strip()), "")
    description = document.values.get("description") or first
    hint = document.values.get("argument-hint")
    return to_one_line(f"{description} (arguments: {hint})" if hint else description)


def _read_required(offer: Resource, places: SessionDirectories) -> Document:
    document = read_document(offer, most=MAX_DOCUMENT_BYTES)
    if isinstance(document, UnusableDocument):
        raise InvalidArgument("text", f"{places.format_path(offer.path)} {document.why}")
    return document


def _format_skill(name: str, document: Document, arguments: str) -> str:
    check_length(len(arguments))
    text = f"Skill {name} ({format_path(document.real)}):\n\n{document.body.strip()}"
    return f"{text}\n\nArguments: {wrap_untrusted(arguments)}" if arguments else text


def _refuse_typo(name: str, names: list[str]) -> None:
    # Imported here because only an unknown slash command needs it.
    from difflib import get_close_matches

    if near := get_close_matches(name, names, n=1, cutoff=MIN_SIMILARITY):
        raise InvalidArgument(
            "text",
            f"unknown command /{name}; did you mean /{near[0]}? Start with a space to send it as text",
        )


TEMPLATE_KIND = ResourceKind("template", (".yarrow/prompts",), ending=".md", file="", max_count=500)
MAX_EXPANDED_CHARACTERS = 1 << 20
"""Maximum characters of an expanded text; a longer one is rejected."""

_NUMBER = "[1-9][0-9]{0,3}"
_SLICE = rf"\{{@:(?P<first>{_NUMBER})(?::(?P<length>0|{_NUMBER}))?\}}"
_PLACEHOLDER = rf"(?P<kept>\$)?\$(?:(?P<all>@|ARGUMENTS(?!\w))|(?P<one>{_NUMBER})(?![0-9])|{_SLICE})"


def fill_template(body: str, arguments: str) -> str:
    """Return a template's body with its placeholders filled in; without placeholders, the arguments are appended.

    Raises `LimitExceeded` if the result exceeds `MAX_EXPANDED_CHARACTERS`.
    """
    check_length(len(body) + len(arguments))
    values = split_words(arguments)
    parts: list[str] = []
    end = length = 0
    has_place = False
    for found in re.finditer(_PLACEHOLDER, body):
        parts += body[end : found.start()], _replace_placeholder(found, values, arguments.strip())
        end = found.end()
        length += len(parts[-2]) + len(parts[-1])
        has_place = has_place or not found["kept"]
        check_length(length)
    parts.append(body[end:])
    if values and not has_place:
        parts.append(f"\n\n{wrap_untrusted(arguments.strip())}")
    whole = "".join(parts)
    check_length(len(whole))
    return whole


def check_length(length: int) -> None:
    """Raise `LimitExceeded` if an expanded command is longer than `MAX_EXPANDED_CHARACTERS`."""
    if length > MAX_EXPANDED_CHARACTERS:
        raise LimitExceeded(
            f"with these arguments the command exceeds {MAX_EXPANDED_CHARACTERS} characters: shorten them",
            code=Code.TOO_LARGE,
        )


def _replace_placeholder(found: re.Match[str], values: list[str], typed: str) -> str:
    if found["kept"]:
        return found[0][1:]
    if found["all"]:
        return wrap_untrusted(typed) if typed else ""
    chosen = values
    if found["one"]:
        chosen = values[int(found["one"]) - 1 : int(found["one"])]
    elif found["first"]:
        chosen = values[int(found["first"]) - 1 :]
        if found["length"]:
            chosen = chosen[: int(found["length"])]
    return wrap_untrusted(" ".join(chosen)) if chosen else ""


_PART = r"""(?xs)
      \\(?P<escaped>['"\s])                     # a quote or space that is meant
    | "(?P<double>(?:[^"\\]|\\"|\\(?!"))*+)"    # a group; within it \" is a quote
    | (?<!\w)'(?P<single>[^']*+)'               # not the apostrophe of don't
    | (?P<space>\s+)
    | (?P<other>.)                              # also a quote that nothing closes, and any other backslash
"""


def split_words(text: str) -> list[str]:
    """Return the words of a text, separated by white space; quotes group words, and every text is accepted."""
    found: list[str] = []
    word: list[str] | None = None
    for part in re.finditer(_PART, text):
        if part["space"] is not None:
            if word is not None:
                found.append("".join(word))
            word = None
            continue
        word = [] if word is None else word
        if part["double"] is not None:
            word.append(part["double"].replace('\\"', '"'))
        else:
            word.append(part["escaped"] or part["single"] or part["other"] or "")
    return found if word is None else [*found, "".join(word)]
