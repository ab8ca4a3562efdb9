"""Turns the runs of `run.py` into a table: one row for each thing that is measured, one column for each command."""

import os
import platform
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from processes import TOOL_TURNS, Run

Runs = dict[str, list[Run]]
"""The runs of one command, by scenario."""


class Row(NamedTuple):
    label: str
    figure: Callable[[Runs], float]
    """Raises KeyError where there are no runs of that kind."""


def median(kind: str, key: str, scale: float = 1.0) -> Callable[[Runs], float]:
    def figure(runs: Runs) -> float:
        if not runs.get(kind):
            raise KeyError(kind)
        return statistics.median(run[key] for run in runs[kind]) * scale

    return figure


def beyond(kind: str, key: str, scale: float = 1.0) -> Callable[[Runs], float]:
    """What a scenario takes more than a one-shot prompt."""
    long, short = median(kind, key, scale), median("one-shot", key, scale)
    return lambda runs: long(runs) - short(runs)


ROWS = (
    Row("`--version`, s", median("--version", "wall")),
    Row("`--help`, s", median("--help", "wall")),
    Row("start to first byte, s", median("one-shot", "first_byte")),
    Row("one-shot wall, s", median("one-shot", "wall")),
    Row("one-shot CPU, s", median("one-shot", "cpu")),
    Row("per-turn gap, median, ms", median("20 turns", "gap", 1e3)),
    Row("per-turn gap, p90, ms", median("20 turns", "gap_p90", 1e3)),
    Row("CPU per turn, ms", beyond("20 turns", "cpu", 1e3 / TOOL_TURNS)),
    Row("20,000 deltas, wall, s", median("20,000 deltas", "wall")),
    Row("20,000 deltas, extra CPU, s", beyond("20,000 deltas", "cpu")),
    Row("peak memory, one-shot, MB", median("one-shot", "memory", 1e-6)),
    Row("peak memory, 20 turns, MB", median("20 turns", "memory", 1e-6)),
    Row("first request, kB", median("one-shot", "body", 1e-3)),
    Row("install size, MB", median("size", "bytes", 1e-6)),
)


def table(runs: dict[str, Runs]) -> str:
    """Return the table in Markdown; a dash where a command has no such figure."""
    lines = [["", *runs], ["---", *("---:" for _ in runs)]]
    lines += [[row.label, *(cell(row, of) for of in runs.values())] for row in ROWS]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def cell(row: Row, runs: Runs) -> str:
    try:
        value = row.figure(runs)
    except KeyError:
        return "-"
    return f"{value:.3f}" if value < 10 else f"{value:.0f}"


def machine() -> str:
    """Describe where this ran, in a sentence."""
    with Path("/proc/cpuinfo").open() as lines:
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    load = os.getloadavg()[0]
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, {system}; load {load:.1f} when it began"
