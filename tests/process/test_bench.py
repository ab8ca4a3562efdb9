"""The bench is one program: a part measures, and its table goes between its marks in the page and nowhere else."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "performance.md"
PARTS = re.findall(r"<!-- measured (\w+): begin -->", PAGE.read_text())


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "bench/run.py", "--small", "--runs", "1", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def between(page: str, part: str) -> tuple[str, str, str]:
    """Text before, between and after the markers of a part."""
    before, found, rest = page.partition(f"<!-- measured {part}: begin -->\n")
    text, ended, after = rest.partition(f"<!-- measured {part}: end -->\n")
    assert found, part
    assert ended, part
    return before, text, after


def test_a_part_is_measured_and_written_between_its_markers(tmp_path: Path) -> None:
    page, kept = tmp_path / "page.md", tmp_path / "kept.json"
    page.write_text(PAGE.read_text())
    done = bench("--only", "events", "--write", str(page), "--json", str(kept))
    assert done.returncode == 0, done.stderr
    before, text, after = between(page.read_text(), "events")
    assert (before, after) == between(PAGE.read_text(), "events")[::2]
    head, *rows = text.strip().splitlines()
    assert re.match(
        r"Measured on \d{4}-\d\d-\d\d: .*\bcores\b.*; load [\d.]+ when it began, [\d.]+ when it ended\.", head
    )
    assert len([row for row in rows if row.startswith("|")]) == 9
    found = json.loads(kept.read_text())["parts"]["events"]
    assert all(len(values) == 1 for kind in found["values"].values() for values in kind.values())
    assert text.strip().endswith(found["text"].strip())


def test_a_page_without_markers_is_reported_before_measuring(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Nothing\n")
    done = bench("--only", "events", "--write", str(page))
    assert done.returncode != 0
    assert "the page has no place for events" in done.stderr
    assert "events ..." not in done.stderr
    assert page.read_text() == "# Nothing\n"


def test_a_failing_part_is_reported_and_keeps_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text())
    done = bench("--only", "commands", "--yarrow", "/nowhere/yarrow", "--write", str(page))
    assert done.returncode == 1
    assert "commands: failed" in done.stderr
    assert page.read_text() == PAGE.read_text()


@pytest.mark.parametrize("part", PARTS)
def test_every_part_has_a_program_markers_and_a_complete_table(part: str) -> None:
    assert (ROOT / "bench" / f"{part}.py").is_file()
    head, *tables = between(PAGE.read_text(), part)[1].strip().split("\n\n")
    assert head.startswith("Measured on ")
    assert tables
    for table in tables:
        lines = table.splitlines()
        assert set(lines[1]) <= set("|-: ")
        assert len({line.count("|") for line in lines}) == 1
        assert all(line.startswith("|") and line.endswith("|") for line in lines)


def test_the_page_has_markers_for_every_part() -> None:
    listed = re.search(r"^PARTS = \((.*)\)$", (ROOT / "bench" / "run.py").read_text(), re.MULTILINE)
    assert listed
    assert re.findall(r'"(\w+)"', listed[1]) == PARTS
