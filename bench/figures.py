"""Tables of the runs of `commands.py`: a row for each measured value, and one for each goal."""

import statistics
from collections.abc import Callable
from typing import NamedTuple

from parts import Table, at_most, figure
from processes import TOOL_TURNS, Run

Runs = dict[str, list[Run]]
"""Runs of one command by scenario."""


class Row(NamedTuple):
    label: str
    figure: Callable[[Runs], float]
    """Raises KeyError if there are no runs of that kind."""
    goal: float | None = None
    """Maximum value."""


def median(kind: str, key: str, scale: float = 1.0) -> Callable[[Runs], float]:
    def value(runs: Runs) -> float:
        if not runs.get(kind):
            raise KeyError(kind)
        return statistics.median(run[key] for run in runs[kind]) * scale

    return value


def beyond(kind: str, key: str, scale: float = 1.0) -> Callable[[Runs], float]:
    """Return the difference between a scenario and a one-shot prompt."""
    long, short = median(kind, key, scale), median("one-shot", key, scale)
    return lambda runs: long(runs) - short(runs)


FIRST_BYTE = Row("start to first byte, s", median("one-shot", "first_byte"), 0.20)
EXTRA_CPU = Row("20,000 deltas, extra CPU, s", beyond("20,000 deltas", "cpu"), 0.45)
ROWS = (
    Row("`--version`, s", median("--version", "wall"), 0.05),
    Row("`--help`, s", median("--help", "wall"), 0.05),
    FIRST_BYTE,
    Row("one-shot wall, s", median("one-shot", "wall"), 0.25),
    Row("one-shot CPU, s", median("one-shot", "cpu"), 0.25),
    Row("per-turn gap, median, ms", median("20 turns", "gap", 1e3), 8.0),
    Row("per-turn gap, p90, ms", median("20 turns", "gap_p90", 1e3), 15.0),
    Row("CPU per turn, ms", beyond("20 turns", "cpu", 1e3 / TOOL_TURNS)),
    Row("20,000 deltas, wall, s", median("20,000 deltas", "wall")),
    EXTRA_CPU,
    Row("peak memory, one-shot, MB", median("one-shot", "memory", 1e-6), 60.0),
    Row("peak memory, 20 turns, MB", median("20 turns", "memory", 1e-6), 60.0),
    Row("first request, kB", median("one-shot", "body", 1e-3), 5.0),
    Row("install size, MB", median("size", "bytes", 1e-6), 80.0),
)
BESIDE = (
    (FIRST_BYTE, "codex", 1.0),
    (FIRST_BYTE, "raw script", 4.0),
    (FIRST_BYTE, "httpx script", 0.6),
    (EXTRA_CPU, "raw script", 1.7),
)
"""Rows with another column, and the maximum ratio to it."""


def table(runs: dict[str, Runs]) -> Table:
    """Return all figures; a dash for a command without runs of that kind."""
    return Table(("", *runs), [(row.label, *(cell(row, of) for of in runs.values())) for row in ROWS])


def goals(runs: dict[str, Runs]) -> Table:
    """Return the goals and whether they are met, without rows that were not measured."""
    ours = {row: found for row in ROWS if (found := value(row, runs["yarrow"])) is not None}
    rows = [(row.label, cell(row, runs["yarrow"]), at_most(ours[row], row.goal)) for row in ours if row.goal]
    for row, other, most in BESIDE:
        theirs = value(row, runs.get(other, {}))
        if row in ours and theirs:
            ratio = ours[row] / theirs
            rows.append(
                (f"{row.label.rpartition(',')[0]}, beside {other}", f"{figure(ratio)}x", at_most(ratio, most, "x"))
            )
    return Table(("yarrow", "measured", "goal"), rows)


def value(row: Row, runs: Runs) -> float | None:
    try:
        return row.figure(runs)
    except KeyError:
        return None


def cell(row: Row, runs: Runs) -> str:
    found = value(row, runs)
    return "-" if found is None else figure(found)
