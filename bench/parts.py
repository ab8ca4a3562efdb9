"""Shared code of the benchmarks: options, interleaved runs, tables with goals, and reports.

Each benchmark is a separate program, `python bench/PART.py [--runs N] [--small] [--json FILE]`; `run.py` runs them in
sequence and inserts their tables into the page.
"""

import argparse
import json
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FIGURE = re.compile(r"-|-?[\d.,]+x?")
Values = dict[str, list[float]]
"""All measured values by name."""


class Table(NamedTuple):
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Return the table; columns that contain only figures are right-aligned."""
        sides = ["---:" if all(map(FIGURE.fullmatch, column)) else "---" for column in zip(*self.rows, strict=True)]
        lines = [self.head, sides, *self.rows]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)


class Found(NamedTuple):
    """Result of a benchmark: the tables for the page, and the values of every run."""

    tables: Sequence[Table]
    values: Mapping[str, Any]


def parser(what: str | None, *, runs: int) -> argparse.ArgumentParser:
    """Return a parser with the common options; `runs` is the default number of runs."""
    made = argparse.ArgumentParser(description=what)
    made.add_argument("--runs", type=int, default=runs, help="of what is compared, in turns; one more warms up")
    made.add_argument("--small", action="store_true", help="small sizes, to see that it works")
    made.add_argument("--json", type=Path, help="keeps every run there")
    return made


def tell(found: Found, keep: Path | None) -> None:
    """Print the tables, or write them and every run to a file."""
    text = "\n".join(table.markdown() for table in found.tables)
    if keep:
        keep.write_text(json.dumps({"text": text, "values": found.values}))
    else:
        print(text)


def in_turns(sides: Mapping[str, Callable[[], float]], runs: int) -> Values:
    """Measure the sides alternately, so that a busy moment affects all of them; the first round is a warm-up."""
    seen: Values = {name: [] for name in sides}
    for number in range(runs + 1):
        for name, side in sides.items():
            value = side()
            if number:
                seen[name].append(value)
    return seen


def middle(values: Sequence[float]) -> float:
    return statistics.median(values)


def share(values: Sequence[float], part: float) -> float:
    """Return the value below which the given fraction of the values lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def figure(value: float) -> str:
    """Format a number with at least three significant digits."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def at_most(value: float, goal: float, unit: str = "") -> str:
    return f"at most {figure(goal)}{unit}: {'met' if value <= goal else '**not met**'}"


def at_least(value: float, goal: float, unit: str = "") -> str:
    return f"at least {figure(goal)}{unit}: {'met' if value >= goal else '**not met**'}"
