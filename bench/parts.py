"""What the parts of the bench share: options, turns, tables with goals, and how a part tells what it found.

Each part is a program of its own, `python bench/PART.py [--runs N] [--small] [--json FILE]`; `run.py` starts them one
after the other and puts their tables into the page.
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
"""All that was measured, by its name."""


class Table(NamedTuple):
    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Return the table; columns that hold figures alone stand to the right."""
        sides = ["---:" if all(map(FIGURE.fullmatch, column)) else "---" for column in zip(*self.rows, strict=True)]
        lines = [self.head, sides, *self.rows]
        return "".join(f"| {' | '.join(line)} |\n" for line in lines)


class Found(NamedTuple):
    """What a part found: the tables for the page, and every run."""

    tables: Sequence[Table]
    values: Mapping[str, Any]


def parser(what: str | None, *, runs: int) -> argparse.ArgumentParser:
    """Return a parser that knows what all parts take; `runs` is how often is measured unless it is said."""
    made = argparse.ArgumentParser(description=what)
    made.add_argument("--runs", type=int, default=runs, help="of what is compared, in turns; one more warms up")
    made.add_argument("--small", action="store_true", help="small sizes, to see that it works")
    made.add_argument("--json", type=Path, help="keeps every run there")
    return made


def tell(found: Found, keep: Path | None) -> None:
    """Print the tables, or keep them and every run in a file."""
    text = "\n".join(table.markdown() for table in found.tables)
    if keep:
        keep.write_text(json.dumps({"text": text, "values": found.values}))
    else:
        print(text)


def in_turns(sides: Mapping[str, Callable[[], float]], runs: int) -> Values:
    """Measure each side once, then each again, so that a busy moment strikes all of them; the first round warms up."""
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
    """The value below which so large a part of the values lies."""
    return sorted(values)[min(len(values) - 1, int(len(values) * part))]


def figure(value: float) -> str:
    """Return a number with three digits or more."""
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def at_most(value: float, goal: float, unit: str = "") -> str:
    return f"at most {figure(goal)}{unit}: {'met' if value <= goal else '**not met**'}"


def at_least(value: float, goal: float, unit: str = "") -> str:
    return f"at least {figure(goal)}{unit}: {'met' if value >= goal else '**not met**'}"
