"""Shows what was found: in aligned lines for a person, as one JSON object for a program; harmless to a terminal."""

import json
import textwrap
from collections.abc import Mapping, Sequence
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from yarrow.cli.checks.check import Check, Status
from yarrow.config.visible import visible

_COLOURED = {Status.OK: "\x1b[32m✓\x1b[0m", Status.WARN: "\x1b[33m!\x1b[0m", Status.FAIL: "\x1b[31m✗\x1b[0m"}
_WORDS = {status: f"{status.value:<4}" for status in Status}
NARROWEST = 30
"""Columns for what was seen; a terminal with fewer cuts lines where it likes."""
WIDEST_NAME = 16
"""Columns for a name; a longer one pushes the rest of its line aside."""


class Look(Struct, frozen=True):
    """How the report is to look; a width of 0 breaks no line."""

    width: int = 0
    colours: bool = False


def harmless(check: Check, secrets: Sequence[str]) -> Check:
    """Return a check without a secret in it and without anything that a terminal obeys."""
    name, seen, todo, *ways = (_harmless(text, secrets) for text in (check.name, check.seen, check.todo, *check.ways))
    return replace(check, name=name, seen=seen, todo=todo, ways=tuple(ways))


def _harmless(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "[secret]")
    return visible(text)


def as_json(checks: Sequence[Check]) -> str:
    """Return `{"checks": [{"section", "name", "status", "seen", "todo"}], "ok"}` as one line."""
    return f"{json.dumps({'checks': [_fields(check) for check in checks], 'ok': is_ok(checks)}, ensure_ascii=False)}\n"


def _fields(check: Check) -> dict[str, str]:
    fields = {name: getattr(check, name) for name in ("section", "name", "status", "seen")}
    return fields | {"todo": "\n".join([check.todo, *check.ways])}


def is_ok(checks: Sequence[Check]) -> bool:
    """Return whether a prompt would work."""
    return all(check.status is not Status.FAIL for check in checks)


def as_text(checks: Sequence[Check], look: Look) -> str:
    """Return a line for each check, what to do below it, and a line that sums up."""
    marks = _COLOURED if look.colours else _WORDS
    widths = [min(max(len(getattr(check, part)) for check in checks), WIDEST_NAME) + 2 for part in ("section", "name")]
    lines = list[str]()
    for section, members in groupby(checks, key=lambda check: check.section):
        title = section
        for check in members:
            head = f"{title:<{widths[0]}}{marks[check.status]} {check.name:<{widths[1] - 2}}  "
            indent = " " * (widths[0] + (2 if look.colours else 5) + widths[1])
            lines += _row(head, check, indent=indent, width=look.width)
            title = ""
    return "\n".join([*lines, "", _sum(checks), ""])


def _row(head: str, check: Check, *, indent: str, width: int) -> list[str]:
    room = max(width - len(indent), NARROWEST)
    seen, *more = _wrapped(check.seen, room if width else 0)
    advice = [check.todo, *check.ways] if check.todo else []
    todo = [line for part in advice for line in _wrapped(part, room - 3 if width else 0)]
    arrows = [f"{'   ' if number else '-> '}{line}" for number, line in enumerate(todo)]
    return [f"{head}{seen}", *(f"{indent}{line}" for line in (*more, *arrows))]


def _wrapped(text: str, width: int) -> list[str]:
    """Return lines of a width; a path or an address stays whole, so that it can be copied."""
    if not width:
        return [text]
    return textwrap.wrap(
        text, width, break_long_words=False, break_on_hyphens=False, subsequent_indent=" " * _hang(text)
    ) or [""]


def _hang(text: str) -> int:
    """Return by how much lines after the first are indented: deeper than the text, where that is."""
    indented = len(text) - len(text.lstrip())
    return indented and indented + 2


def _sum(checks: Sequence[Check]) -> str:
    counts: Mapping[Status, int] = {status: sum(check.status is status for check in checks) for status in Status}
    warnings = f"{counts[Status.WARN]} warning{'' if counts[Status.WARN] == 1 else 's'}"
    if failures := counts[Status.FAIL]:
        return f"A prompt would not work: {failures} failure{'' if failures == 1 else 's'}, {warnings}."
    return f"A prompt would work, with {warnings}." if counts[Status.WARN] else "A prompt would work."
