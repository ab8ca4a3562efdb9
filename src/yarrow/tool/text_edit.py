"""Text replacements of an edit, which leave every other character unchanged."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise

from msgspec import Struct

from yarrow.tool.diff import count_common_start

MAX_NEAREST_PLACES = 3
MAX_NEAREST_LINES = 10
MAX_NEAREST_WIDTH = 200
MAX_SEARCHED_LINES = 5_000
"""Limits of an error: places shown, lines per place, characters per line, and lines of the file searched."""
MAX_SHOWN_MATCHES = 10


class TextEdit(Struct, frozen=True, forbid_unknown_fields=True):
    """One replacement of literal text."""

    old: str
    new: str
    all: bool = False


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
    from yarrow.tool.fuzzy_match import find_fuzzy  # most edits quote the text exactly

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
