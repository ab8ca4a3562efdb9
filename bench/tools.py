"""Measures what a tool call costs, through the tool itself: `python bench/tools.py`.

`bash` with and without a sandbox beside a bare process, `grep` over a large tree beside ripgrep alone, `edit` of a
large file; all in turns. The workspace is a git repository. Whoever is root, to whom a sandbox has more to hide, has
`bash` measured for an ordinary user as well.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from parts import Found, Table, Values, at_most, figure, middle, parser, tell

from yarrow.config.settings import Settings
from yarrow.policy.sandbox.box import Level
from yarrow.policy.sandbox.boxes import Boxes
from yarrow.policy.sandbox.probe import unavailable
from yarrow.policy.workspace import Workspace
from yarrow.tool.base import Result, ToolContext
from yarrow.tool.bash import Bash, BashArguments
from yarrow.tool.edit import Edit, EditArguments, OneEdit
from yarrow.tool.grep import Grep, GrepArguments

CALLS = 10
"""Of `bash` in each run; the others are called once."""
SMALL, LARGE = 2_000, 100_000
"""Files of the workspaces: the sandbox looks at the one, `grep` searches the other."""
EDITED = 10_000_000
"""Bytes of the file that is edited."""
NOBODY = 65_534
"""The user that owns nothing, by number."""
ORDINARY = "as an ordinary user"
MORE = 10.0
"""Milliseconds that a sandbox may cost."""
SEARCHED = "wanted_name"
LEVELS: tuple[Level, ...] = ("off", "workspace", "strict")

Side = Callable[[], Awaitable[object]]


def context(cwd: Path, level: Level) -> ToolContext:
    workspace = Workspace.make(cwd)
    box = Boxes(level, home=Path.home()).box("bench", workspace)
    return ToolContext(cwd=cwd, workspace=workspace, bash=Settings().bash, sandbox=box)


def furnish(workspace: Path, files: int) -> Path:
    """Make a repository of so many files; a hundredth of them has what is searched for."""
    for number in range(files):
        path = workspace / f"d{number % 250}" / f"f{number}.py"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(f"x = {SEARCHED if number % 100 == 0 else 1}\n" * 20)
    subprocess.run(["git", "init", "-q", str(workspace)], check=True)
    return workspace


def bash(where: ToolContext) -> Side:
    async def side() -> None:
        async for _ in Bash().run(BashArguments("true"), where):
            pass

    return side


async def spawned() -> None:
    process = await asyncio.create_subprocess_exec("bash", "-c", "true", stdout=asyncio.subprocess.PIPE)
    await process.communicate()


def grep(where: ToolContext) -> Side:
    async def side() -> None:
        found = [one async for one in Grep().run(GrepArguments(SEARCHED, limit=100_000), where)]
        assert isinstance(found[-1], Result)

    return side


def ripgrep(where: Path) -> Side:
    async def side() -> None:
        process = await asyncio.create_subprocess_exec(
            "rg", "--json", SEARCHED, cwd=where, stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL
        )
        out, _ = await process.communicate()
        assert SEARCHED.encode() in out

    return side


def edit(where: ToolContext) -> Side:
    """A line in the middle of a large file, there and back."""
    path = where.cwd / "large.txt"
    lines = [f"{number:79}\n" for number in range(EDITED // 80)]
    lines[len(lines) // 2] = "MIDDLE\n"
    path.write_text("".join(lines))
    texts = ["MIDDLE", "CENTRE"]

    async def side() -> None:
        old, new = texts
        async for _ in Edit().run(EditArguments(path.name, (OneEdit(old, new),)), where):
            pass
        texts.reverse()

    return side


async def compare(folder: Path, options: argparse.Namespace) -> Values:
    """Return the milliseconds of each call, measured in turns so that a busy moment strikes all of them."""
    small = furnish(folder / "small", 100 if options.small else SMALL)
    sides: dict[str, tuple[Side, int]] = {"bare": (spawned, CALLS)}
    sides |= {level: (bash(context(small, level)), CALLS) for level in LEVELS}
    if not options.shell:
        large = furnish(folder / "large", 1_000 if options.small else LARGE)
        sides |= {"grep": (grep(context(large, "off")), 1), "edit": (edit(context(small, "off")), 1)}
        if shutil.which("rg"):
            sides["rg"] = (ripgrep(large), 1)
    seen: Values = {name: [] for name in sides}
    for number in range(options.runs + 1):
        for name, (side, calls) in sides.items():
            for _ in range(calls):
                start = time.perf_counter()
                await side()
                if number:  # the first is to warm up
                    seen[name].append((time.perf_counter() - start) * 1_000)
    return seen


def as_somebody(options: argparse.Namespace) -> Values:
    """Return what `bash` costs an ordinary user, nothing where none can run this."""
    with tempfile.TemporaryDirectory() as home:
        os.chown(home, NOBODY, NOBODY)
        kept = Path(home, "values.json")
        words = ["--shell", "--json", str(kept), "--runs", str(options.runs), *(["--small"] if options.small else [])]
        environment = {"PATH": os.environ["PATH"], "HOME": home, "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            subprocess.run(
                [sys.executable, str(Path(__file__).resolve()), *words],
                user=NOBODY,
                group=NOBODY,
                extra_groups=[],
                env=environment,
                cwd=home,
                check=True,
            )
        except (OSError, subprocess.CalledProcessError) as error:
            print(f"not measured for an ordinary user: {error}", file=sys.stderr)
            return {}
        return json.loads(kept.read_text())["values"]


def more(took: Mapping[str, float], who: str) -> list[tuple[str, str, str]]:
    """Return the rows of what each sandbox costs somebody."""
    costs = {level: took[level] - took["off"] for level in LEVELS[1:]}
    return [
        (f"... more in the sandbox `{level}`, {who}", f"{figure(cost)} ms", at_most(cost, MORE, " ms"))
        for level, cost in costs.items()
    ]


def measure(options: argparse.Namespace) -> Found:
    if why := unavailable():
        raise SystemExit(why)
    with tempfile.TemporaryDirectory() as folder:
        values = asyncio.run(compare(Path(folder).resolve(), options))
    took = {name: middle(each) for name, each in values.items()}
    is_root = os.geteuid() == 0
    rows = [("`bash -c true`, no sandbox", f"{figure(took['off'])} ms, a bare process {figure(took['bare'])} ms", "")]
    rows += more(took, "as root" if is_root else ORDINARY)
    if is_root and (theirs := as_somebody(options)):
        rows += more({name: middle(each) for name, each in theirs.items()}, ORDINARY)
        values |= {f"{name} of an ordinary user": each for name, each in theirs.items()}
    if not options.shell:
        beside = f", ripgrep alone {figure(took['rg'])} ms" if "rg" in took else ""
        rows += [
            ("`grep` over 100,000 files", f"{figure(took['grep'])} ms{beside}", ""),
            ("`edit` in a file of 10 MB", f"{figure(took['edit'])} ms", ""),
        ]
    return Found([Table(("a tool call", "measured", "goal"), rows)], values)


if __name__ == "__main__":
    options = parser(__doc__, runs=9)
    options.add_argument("--shell", action="store_true", help="`bash` alone")
    given = options.parse_args()
    tell(measure(given), given.json)
