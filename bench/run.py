"""Runner of all benchmarks in sequence: `make bench`, or `make bench BENCH="--only tui --runs 3"`.

Each benchmark is a separate program (`PARTS`) that measures compared values alternately. Its report is inserted between
its marks in the page named by `--write`, with the date, the machine and its load; `--json FILE` stores every run. If a
benchmark fails, its old table is kept and the exit code is 1. Linux only.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PARTS = ("commands", "events", "sessions", "service", "tui", "tools", "adapters")
LIMIT = 3600.0
"""Seconds after which a benchmark is stopped and counts as failed."""


def machine() -> str:
    """Describe the machine."""
    with Path("/proc/cpuinfo").open() as lines:
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return f"{os.cpu_count()} cores ({model}), {memory:.0f} GiB, {system}"


def measured(part: str, options: list[str]) -> dict[str, Any] | None:
    """Run a benchmark in a separate process; return None if it fails."""
    began, load = time.monotonic(), os.getloadavg()[0]
    print(f"{part} ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder:
        kept = Path(folder) / "kept.json"
        command = [sys.executable, str(HERE / f"{part}.py"), "--json", str(kept), *options]
        try:
            failed = subprocess.run(command, check=False, timeout=LIMIT).returncode
        except subprocess.TimeoutExpired:
            failed = f"more than {LIMIT:.0f} s"
        if failed:
            print(f"{part}: failed ({failed})", file=sys.stderr)
            return None
        found = json.loads(kept.read_text())
    return {
        **found,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "load": [round(load, 1), round(os.getloadavg()[0], 1)],
        "seconds": round(time.monotonic() - began),
    }


def section(found: dict[str, Any], where: str, *, small: bool) -> str:
    """Return the section of the page for a benchmark."""
    before, after = found["load"]
    sizes = " Small sizes, which say nothing about the goals." if small else ""
    head = f"Measured on {found['date']}: {where}; load {before} when it began, {after} when it ended.{sizes}"
    return f"{head}\n\n{found['text']}"


def marks(part: str) -> tuple[str, str]:
    return f"<!-- measured {part}: begin -->\n", f"<!-- measured {part}: end -->\n"


def put(page: str, part: str, text: str) -> str:
    """Return the page with a part's text between its marks. Raises ValueError unless each mark occurs once."""
    begin, end = marks(part)
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ValueError(
            f"the page has no place for {part}: {begin.strip()} and {end.strip()}, once each, in this order"
        )
    before, _, rest = page.partition(begin)
    return f"{before}{begin}\n{text}\n{end}{rest.partition(end)[2]}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="this part alone; may be said several times")
    parser.add_argument("--runs", type=int, help="of each part, instead of its own number")
    parser.add_argument("--small", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--json", type=Path, help="keeps every run there")
    parser.add_argument("--write", type=Path, help="the page that the tables go into")
    parser.add_argument("--yarrow", type=Path, help="the command that is measured, from an environment of its own")
    parser.add_argument("--size-of", type=Path, help="that environment")
    arguments = parser.parse_args()
    common = [*(["--runs", str(arguments.runs)] if arguments.runs else []), *(["--small"] if arguments.small else [])]
    own = {"--yarrow": arguments.yarrow, "--size-of": arguments.size_of}
    commands = [word for name, path in own.items() if path for word in (name, str(path))]
    where = machine()
    kept: dict[str, Any] = {"machine": where, "parts": {}}
    wanted = arguments.only or PARTS
    if arguments.write:
        for part in wanted:  # fail before anything slow
            put(arguments.write.read_text(), part, "")
    for part in wanted:
        found = measured(part, [*common, *(commands if part == "commands" else [])])
        if found is None:
            continue
        kept["parts"][part] = found
        text = section(found, where, small=arguments.small)
        print(f"## {part}, {found['seconds']} s\n\n{text}", flush=True)
        # Write now, so that a later failure does not lose the result.
        if arguments.json:
            arguments.json.write_text(json.dumps(kept))
        if arguments.write:
            arguments.write.write_text(put(arguments.write.read_text(), part, text))
    return int(len(kept["parts"]) < len(wanted))


if __name__ == "__main__":
    os.environ.pop("PYTHONPATH", None)
    sys.exit(main())
