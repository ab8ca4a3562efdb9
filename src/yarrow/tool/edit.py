"""The tool `edit`: makes literal replacements in one file, all or none."""

import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Annotated

from msgspec import Meta, Struct

from yarrow.tool.atomic_file_change import ChangePlanner, FileChange, PlannedChange, apply_change, preview_change
from yarrow.tool.base import Access, Progress, Result, ToolContext, ToolFailed
from yarrow.tool.diff import count_common_start, make_unified_diff
from yarrow.tool.file_content import FALLBACK_ENCODING, SNIFF_BYTES, decode_text, find_binary_kind, is_utf16
from yarrow.tool.paths import describe_missing, format_path, locate
from yarrow.tool.result_limits import pluralize
from yarrow.tool.worker_thread import run_in_thread

MAX_NEAREST_PLACES = 3
MAX_NEAREST_LINES = 10
MAX_NEAREST_WIDTH = 200
MAX_SEARCHED_LINES = 5_000
"""Limits of an error: places shown, lines per place, characters per line, and lines of the file searched."""
MAX_SHOWN_MATCHES = 10
_EQUIVALENTS = str.maketrans(
    dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"')
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
    | dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " ")
)
"""Characters that are equivalent in a fuzzy match."""


class TextEdit(Struct, frozen=True, forbid_unknown_fields=True):
    """One replacement of literal text."""

    old: str
    new: str
    all: bool = False


class EditArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `edit`."""

    path: str
    edits: Annotated[tuple[TextEdit, ...], Meta(min_length=1)]


class Edit:
    """Replaces texts in a file."""

    name = "edit"
    read_only = False
    arguments = EditArguments
    access = Access.file()

    async def run(self, arguments: EditArguments, context: ToolContext) -> AsyncIterator[Progress | Result]:
        """Yield the number of changed places and the diff."""
        yield await run_in_thread(partial(apply_change, arguments.path, context, plan=_plan_edit(arguments, context)))

    async def preview(self, arguments: EditArguments, context: ToolContext) -> Result:
        """Return the number of places that would change and the exact diff, or why the edits do not apply."""
        return await run_in_thread(
            partial(preview_change, arguments.path, context, plan=_plan_edit(arguments, context))
        )


def _plan_edit(arguments: EditArguments, context: ToolContext) -> ChangePlanner:
    path = locate(arguments.path, context.cwd)
    name = format_path(path, context.cwd)

    def plan(data: bytes | None) -> PlannedChange:
        if data is None:
            return ToolFailed(
                f"{describe_missing(context.workspace.suggestion_path(path), name)} To create a file, use write."
            )
        if kind := find_binary_kind(data[:SNIFF_BYTES]):
            return ToolFailed(f"{name} is {kind} and cannot be edited.")
        file = decode_text(data)
        if is_utf16(data) and file.encoding == FALLBACK_ENCODING:
            return ToolFailed(
                f"{name} cannot be edited: it has a UTF-16 BOM but ends in the middle of a character. "
                "Ask the user, or rewrite the whole file."
            )
        if "\0" in file.text:
            return ToolFailed(f"{name} is a binary file and cannot be edited.")
        outcome = apply_edits(file.text, arguments.edits)
        if isinstance(outcome, EditMismatch):
            return ToolFailed(f"{name} was not changed. {outcome.text}")
        text, count = outcome
        try:
            new = file.encode(text)
        except UnicodeEncodeError as error:
            return ToolFailed(
                f"{name} was not changed: it is not UTF-8 and is edited as Latin-1, which has no "
                f"{error.object[error.start : error.end]!r}."
            )
        diff = make_unified_diff(name, file.text, text)
        places = pluralize(count, "place") + (", as Latin-1," if file.encoding == FALLBACK_ENCODING else "")
        return FileChange(new, f"Changed {name} in {places}", f"Would change {name} in {places}", diff)

    return plan


class EditMismatch(Struct, frozen=True):
    """Reason why nothing was replaced, as shown to the model."""

    text: str


class _Span(Struct, frozen=True, order=True):
    """A span of the text, `start` inclusive and `stop` exclusive, and its replacement."""

    start: int
    stop: int
    new: str


def apply_edits(text: str, edits: Sequence[TextEdit]) -> tuple[str, int] | EditMismatch:
    """Return the text with all edits applied and the number of replacements; if any edit fails, the reason.

    Each `old` is matched against the original text, where a line feed also matches CR LF, and must occur once unless
    `all` is set. If there is no exact match, a fuzzy one is used if it is unique. New text gets the line endings of its
    surroundings.
    """
    flat = text.replace("\r\n", "\n")
    spans: list[_Span] = []
    for number, edit in enumerate(edits, 1):
        found = _find_spans(flat, edit)
        if isinstance(found, EditMismatch):
            return EditMismatch(f"Edit {number} of {len(edits)}: {found.text}" if len(edits) > 1 else found.text)
        spans += found
    spans.sort()
    for before, after in pairwise(spans):
        if after.start < before.stop:
            line = _line_number(flat, after.start)
            return EditMismatch(f"Two edits overlap at line {line}. Combine them, or omit one.")
    changed = _replace_spans(text, flat, spans)
    if changed == text:
        return EditMismatch("The edits change nothing: the file already has this text.")
    return changed, len(spans)


def _find_spans(flat: str, edit: TextEdit) -> list[_Span] | EditMismatch:
    old, new = edit.old.replace("\r\n", "\n"), edit.new.replace("\r\n", "\n")
    if not old:
        return EditMismatch("`old` is empty. Set it to the text to replace, or use write for a whole file.")
    if old == new:
        return EditMismatch("`old` and `new` are the same.")
    starts = list(_find_all(flat, old, step=len(old) if edit.all else 1))
    if len(starts) > 1 and not edit.all:
        lines = ", ".join(str(_line_number(flat, start)) for start in starts[:MAX_SHOWN_MATCHES])
        more = ", ..." if len(starts) > MAX_SHOWN_MATCHES else ""
        return EditMismatch(
            f"`old` occurs {len(starts)} times, at lines {lines}{more}. "
            "Include surrounding lines until it occurs once, or set all."
        )
    if starts:
        return [_Span(start, start + len(old), new) for start in starts]
    loose = find_fuzzy(flat, old)
    if loose is None:
        return EditMismatch(_describe_not_found(flat, old))
    return [_Span(*loose, new)]


def _find_all(text: str, part: str, *, step: int) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + step)


def _replace_spans(text: str, flat: str, spans: Sequence[_Span]) -> str:
    """Return `text` with the spans, which refer to `flat`, replaced."""
    to_text = _OffsetMap(text)
    pieces: list[str] = []
    at = 0
    for span in spans:
        # A common start and end are not changed and keep their bytes, including mixed line endings.
        old = flat[span.start : span.stop]
        head = count_common_start(old, span.new)
        tail = count_common_start(old[head:][::-1], span.new[head:][::-1])
        start, stop = to_text(span.start + head), to_text(span.stop - tail)
        new = span.new[head : len(span.new) - tail]
        pieces += [text[at:start], _with_line_endings(new, text[start:stop], usual=_line_ending(text, start))]
        at = stop
    return "".join([*pieces, text[at:]])


class _OffsetMap:
    """Maps an offset in the text after CR LF to LF conversion to the offset in the original text."""

    def __init__(self, text: str) -> None:
        # The n-th CR LF is n characters further left in the flat text.
        self._ends = [at - number for number, at in enumerate(_find_all(text, "\r\n", step=2))]

    def __call__(self, place: int) -> int:
        """Return the offset in the original text."""
        return place + bisect_left(self._ends, place)


def _with_line_endings(new: str, old: str, *, usual: str) -> str:
    """Return new text with the usual line ending; if the old text has mixed ones, lines keep their own."""
    count = old.count("\n")
    if not 0 < old.count("\r\n") < count or count > MAX_SEARCHED_LINES or "\n" not in new:
        return new.replace("\n", usual)
    import difflib

    lines, old_lines = new.split("\n"), old.replace("\r\n", "\n").split("\n")
    old_ends = ["\r\n" if line.endswith("\r") else "\n" for line in old.split("\n")[:-1]]
    ends = [usual] * (len(lines) - 1)
    matcher = difflib.SequenceMatcher(None, old_lines, lines, autojunk=False)
    for tag, first, last, at, stop in matcher.get_opcodes():
        if tag == "equal" or (tag == "replace" and last - first == stop - at):
            for place, end in zip(range(at, len(ends)), old_ends[first:last], strict=False):
                ends[place] = end
    return "".join(line + end for line, end in zip(lines, [*ends, ""], strict=True))


def _line_ending(text: str, place: int) -> str:
    """Return the line ending at an offset; the last line has that of the previous one."""
    at = text.find("\n", place)
    if at < 0:
        at = text.rfind("\n", 0, place)
    return "\r\n" if at > 0 and text[at - 1] == "\r" else "\n"


def _line_number(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


def _describe_not_found(flat: str, old: str) -> str:
    """Return that `old` was not found, with the lines most similar to its first one and their numbers."""
    import difflib

    wanted = next((line.strip() for line in old.split("\n") if line.strip()), "")[:MAX_NEAREST_WIDTH]
    lines = [line[:MAX_NEAREST_WIDTH] for line in flat.split("\n", MAX_SEARCHED_LINES)[:MAX_SEARCHED_LINES]]
    numbers: dict[str, int] = {}
    for number, line in enumerate(lines):
        numbers.setdefault(line.strip(), number)
    nearest = difflib.get_close_matches(wanted, numbers, n=MAX_NEAREST_PLACES)
    if not nearest:
        return "`old` was not found, nor any line similar to its first. Read the file again."
    height = min(old.count("\n") + 1, MAX_NEAREST_LINES)
    shown = [
        "\n".join(f"{number + 1}: {line}" for number, line in enumerate(lines[start : start + height], start))
        for start in (numbers[line] for line in nearest)
    ]
    return "`old` was not found. The nearest lines:\n" + "\n--\n".join(shown) + "\nCopy the text exactly."


def find_fuzzy(text: str, wanted: str) -> tuple[int, int] | None:
    """Return the start and stop of `wanted` in `text` if there is exactly one match.

    Both must have LF line endings. The span refers to the original `text`; it includes no trailing whitespace
    except between its lines.
    """
    # The last line of `wanted` may be the start of a longer one and therefore keeps its trailing whitespace.
    head, separator, tail = wanted.rpartition("\n")
    plain = ("\n".join(map(_normalize_line, head.split("\n"))) + separator if separator else "") + _normalize(tail)
    if not plain.strip():
        return None
    lines = text.split("\n")
    folded = [_normalize_line(line) for line in lines]
    whole = "\n".join(folded)
    at = whole.find(plain)
    if at < 0 or whole.find(plain, at + 1) >= 0:
        return None
    starts = [0, *accumulate(len(line) + 1 for line in folded)]
    places = [0, *accumulate(len(line) + 1 for line in lines)]
    ends: list[int] = []
    for place in (at, at + len(plain)):
        line = bisect_right(starts, place) - 1
        column = _find_column(lines[line], place - starts[line])
        if column is None:
            return None
        ends.append(places[line] + column)
    return ends[0], ends[1]


def _normalize(line: str) -> str:
    """Return the line decomposed, with equivalent characters unified."""
    return unicodedata.normalize("NFD", line.translate(_EQUIVALENTS))


def _normalize_line(line: str) -> str:
    return _normalize(line).rstrip(" \t")


def _find_column(line: str, wanted: int) -> int | None:
    """Return the column of `line` at offset `wanted` of its normalized form; None within a character."""
    places = [0, *accumulate(len(_normalize(character)) for character in line)]
    return places.index(wanted) if wanted in places else None
