"""Unified diff of two texts, exact to the last byte and bounded in time."""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

CONTEXT_LINES = 3
MAX_COMPARED_LINES = 5_000
"""Maximum lines compared on either side, from the first to the last difference; more become a single hunk."""

Opcode: TypeAlias = tuple[str, int, int, int, int]


def make_unified_diff(name: str, old: str | None, new: str) -> str:
    """Return the diff; empty if the texts are equal. `old` is None if the file did not exist."""
    before, after = _split_lines(old or ""), _split_lines(new)
    if old is not None and before == after:
        return ""
    header = [f"--- {'/dev/null' if old is None else f'a/{name}'}\n", f"+++ b/{name}\n"]
    return "".join(header + [line for hunk in _make_hunks(before, after) for line in _format_hunk(hunk, before, after)])


def count_common_start(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the number of equal elements at the start of both sequences."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def count_changes(diff: str) -> tuple[int, int]:
    """Return the number of added and removed lines of a diff."""
    body = [line for line in diff.split("\n")[2:] if line]
    return sum(line[0] == "+" for line in body), sum(line[0] == "-" for line in body)


def _split_lines(text: str) -> list[str]:
    """Split at line feeds only; a last line without one is marked as `diff` does."""
    lines = [line + "\n" for line in text.split("\n")]
    if lines[-1] == "\n":
        lines.pop()
    else:
        lines[-1] += "\\ No newline at end of file\n"
    return lines


def _make_hunks(before: Sequence[str], after: Sequence[str]) -> Iterator[list[Opcode]]:
    """Group the differences, with `CONTEXT_LINES` around each."""
    import difflib

    head = count_common_start(before, after)
    tail = count_common_start(before[head:][::-1], after[head:][::-1])
    # Compare only from the first to the last difference, with enough lines around it for context.
    start, stop = max(0, head - CONTEXT_LINES), max(0, tail - CONTEXT_LINES)
    old, new = before[start : len(before) - stop], after[start : len(after) - stop]
    if max(len(old), len(new)) > MAX_COMPARED_LINES:
        i, k, j, m = head - start, head - start, len(old) - tail + stop, len(new) - tail + stop
        groups = [[("equal", 0, i, 0, k), ("replace", i, j, k, m), ("equal", j, len(old), m, len(new))]]
    else:
        groups = difflib.SequenceMatcher(None, old, new).get_grouped_opcodes(CONTEXT_LINES)
    for group in groups:
        yield [(tag, i + start, j + start, k + start, m + start) for tag, i, j, k, m in group]


def _format_hunk(hunk: list[Opcode], before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    first, last = hunk[0], hunk[-1]
    yield f"@@ -{_format_range(first[1], last[2])} +{_format_range(first[3], last[4])} @@\n"
    for tag, i, j, k, m in hunk:
        if tag == "equal":
            yield from (f" {line}" for line in before[i:j])
        else:
            yield from (f"-{line}" for line in before[i:j])
            yield from (f"+{line}" for line in after[k:m])


def _format_range(start: int, stop: int) -> str:
    """Return a range of lines in hunk notation; an empty range names the line before it."""
    count = stop - start
    return f"{start + 1 if count else start},{count}"
