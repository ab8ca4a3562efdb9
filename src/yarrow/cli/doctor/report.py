"""Checks of the doctor and their report, as aligned text or as one JSON object."""

import json
import textwrap
from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from yarrow.config.settings_merge import LoadedSettings
from yarrow.config.settings_source import escape_unprintable
from yarrow.errors import Code


class CheckStatus(StrEnum):
    """Status of a check; FAIL means that a prompt would not work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


class Check(Struct, frozen=True):
    """Result of a check: the finding and, unless it is OK, one sentence on what to do."""

    section: str
    name: str
    status: CheckStatus
    seen: str
    todo: str = ""
    ways: tuple[str, ...] = ()
    """Alternatives if there is more than one thing to do, one line each."""
    code: Code = Code.INTERNAL
    """Code of the error that a prompt would fail with."""


class CheckContext(Struct, frozen=True):
    """Input of the checks: directories, environment and effective settings."""

    home: Path
    cwd: Path
    environment: Mapping[str, str]
    loaded: LoadedSettings
    extensions: int = 0
    """Number of extensions. None is loaded, since a check must not run their code; each may add a provider."""

    def shorten_path(self, path: Path) -> str:
        """Return a path for display, with `~` for the home directory."""
        return f"~/{path.relative_to(self.home)}" if path.is_relative_to(self.home) else str(path)


def ok(section: str, name: str, seen: str) -> Check:
    """Return a check that found nothing wrong."""
    return Check(section, name, CheckStatus.OK, seen)


def warn(section: str, name: str, *, seen: str, todo: str) -> Check:
    """Return a check that found a problem that does not stop a prompt."""
    return Check(section, name, CheckStatus.WARN, seen, todo)


def fail(section: str, name: str, *, seen: str, todo: str, code: Code) -> Check:
    """Return a check that found why no prompt would work."""
    return Check(section, name, CheckStatus.FAIL, seen, todo, code=code)


_COLOUR_MARKS = {
    CheckStatus.OK: "\x1b[32m✓\x1b[0m",
    CheckStatus.WARN: "\x1b[33m!\x1b[0m",
    CheckStatus.FAIL: "\x1b[31m✗\x1b[0m",
}
_TEXT_MARKS = {status: f"{status.value:<4}" for status in CheckStatus}
MIN_COLUMNS = 30
"""Minimum columns for a finding; a terminal with fewer wraps the lines itself."""
MAX_NAME_COLUMNS = 16
"""Maximum columns for a name; a longer one shifts the rest of its line."""


class ReportStyle(Struct, frozen=True):
    """Style of the text report; a width of 0 disables wrapping."""

    width: int = 0
    colours: bool = False


def sanitize_check(check: Check, secrets: Sequence[str]) -> Check:
    """Return a check with secrets replaced and control characters escaped."""
    name, seen, todo, *ways = (
        _sanitize_text(text, secrets) for text in (check.name, check.seen, check.todo, *check.ways)
    )
    return replace(check, name=name, seen=seen, todo=todo, ways=tuple(ways))


def _sanitize_text(text: str, secrets: Sequence[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, "[secret]")
    return escape_unprintable(text)


def format_json(checks: Sequence[Check]) -> str:
    """Return `{"checks": [{"section", "name", "status", "seen", "todo"}], "ok"}` as one line."""
    return f"{json.dumps({'checks': [_fields(check) for check in checks], 'ok': is_ok(checks)}, ensure_ascii=False)}\n"


def _fields(check: Check) -> dict[str, str]:
    fields = {name: getattr(check, name) for name in ("section", "name", "status", "seen")}
    return fields | {"todo": "\n".join([check.todo, *check.ways])}


def is_ok(checks: Sequence[Check]) -> bool:
    """Return whether a prompt would work."""
    return all(check.status is not CheckStatus.FAIL for check in checks)


def format_text(checks: Sequence[Check], style: ReportStyle) -> str:
    """Return a line for each check, with what to do below it, and a summary."""
    marks = _COLOUR_MARKS if style.colours else _TEXT_MARKS
    widths = [
        min(max(len(getattr(check, part)) for check in checks), MAX_NAME_COLUMNS) + 2 for part in ("section", "name")
    ]
    lines = list[str]()
    for section, members in groupby(checks, key=lambda check: check.section):
        title = section
        for check in members:
            head = f"{title:<{widths[0]}}{marks[check.status]} {check.name:<{widths[1] - 2}}  "
            indent = " " * (widths[0] + (2 if style.colours else 5) + widths[1])
            lines += _format_check(head, check, indent=indent, width=style.width)
            title = ""
    return "\n".join([*lines, "", _summarize(checks), ""])


def _format_check(head: str, check: Check, *, indent: str, width: int) -> list[str]:
    room = max(width - len(indent), MIN_COLUMNS)
    seen, *more = _wrap(check.seen, room if width else 0)
    advice = [check.todo, *check.ways] if check.todo else []
    todo = [line for part in advice for line in _wrap(part, room - 3 if width else 0)]
    arrows = [f"{'   ' if number else '-> '}{line}" for number, line in enumerate(todo)]
    return [f"{head}{seen}", *(f"{indent}{line}" for line in (*more, *arrows))]


def _wrap(text: str, width: int) -> list[str]:
    """Wrap text to a width; a path or an address stays whole, so that it can be copied."""
    if not width:
        return [text]
    return textwrap.wrap(
        text, width, break_long_words=False, break_on_hyphens=False, subsequent_indent=" " * _hanging_indent(text)
    ) or [""]


def _hanging_indent(text: str) -> int:
    """Return the indent of the lines after the first: two more than the text's own, 0 if it has none."""
    indented = len(text) - len(text.lstrip())
    return indented and indented + 2


def _summarize(checks: Sequence[Check]) -> str:
    counts: Mapping[CheckStatus, int] = {
        status: sum(check.status is status for check in checks) for status in CheckStatus
    }
    warnings = f"{counts[CheckStatus.WARN]} warning{'' if counts[CheckStatus.WARN] == 1 else 's'}"
    if failures := counts[CheckStatus.FAIL]:
        problems = f"{failures} problem{'' if failures == 1 else 's'}"
        return f"Not ready: {problems}, {warnings}." if counts[CheckStatus.WARN] else f"Not ready: {problems}."
    return f"Ready, with {warnings}." if counts[CheckStatus.WARN] else "Ready."
