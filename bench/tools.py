"""Measures what a tool call costs, through the tool itself: `python bench/tools.py [--calls N]`. Medians, in ms."""

import argparse
import asyncio
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from yarrow.config.settings import Settings
from yarrow.policy.sandbox.boxes import Boxes
from yarrow.policy.sandbox.sandbox import unavailable
from yarrow.policy.workspace import Workspace
from yarrow.tool.base import ToolContext
from yarrow.tool.bash import Bash, BashArguments

CALLS = 100
FILES = 2_000
"""Of the workspace, so that the look at it is paid for."""


async def milliseconds(context: ToolContext) -> float:
    start = time.perf_counter()
    async for _ in Bash().run(BashArguments("true"), context):
        pass
    return (time.perf_counter() - start) * 1_000


def furnish(workspace: Path) -> None:
    for number in range(FILES):
        path = workspace / f"d{number % 50}" / f"f{number}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text("x = 1\n")
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)


async def compare(calls: int) -> dict[str, float]:
    """Return the median of each, measured in turns so that a busy moment strikes all of them."""
    with tempfile.TemporaryDirectory() as folder:
        cwd = Path(folder).resolve()
        furnish(cwd)
        workspace = Workspace.make(cwd)
        settings = Settings().bash
        contexts = {
            level: ToolContext(
                cwd=cwd,
                workspace=workspace,
                bash=settings,
                sandbox=Boxes(level, home=Path.home()).box("bench", workspace),
            )
            for level in ("off", "workspace", "strict")
        }
        seen: dict[str, list[float]] = {name: [] for name in contexts}
        for _ in range(calls):
            for name, context in contexts.items():
                seen[name].append(await milliseconds(context))
        return {name: statistics.median(values[1:]) for name, values in seen.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=CALLS)
    if why := unavailable():
        parser.exit(1, f"{why}\n")
    medians = asyncio.run(compare(parser.parse_args().calls))
    for name, value in medians.items():
        print(f"bash -c true, sandbox {name:9}  {value:6.1f}  (+{value - medians['off']:.1f})")


if __name__ == "__main__":
    main()
