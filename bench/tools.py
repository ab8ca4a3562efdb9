"""Benchmark of tool calls, through the tool itself: `python bench/tools.py`.

Compares `bash` with and without a sandbox to a bare process and to bubblewrap alone with the same mounts, and `grep`
over a large tree to ripgrep alone; also measures `edit` of a large file. All are measured alternately, in git
repositories. For root, whose sandbox has more to hide, `bash` is also measured as an ordinary user.
"""

import argparse
import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from parts import Found, Table, Values, at_most, figure, middle, parser, tell

from yarrow.config.settings import Settings
from yarrow.policy.command_execution import Command
from yarrow.policy.environment import child_environment
from yarrow.policy.sandbox.probe import unavailable_reason
from yarrow.policy.sandbox.sandbox_spec import SandboxLevel
from yarrow.policy.sandbox.sandboxed_command import SandboxedCommand
from yarrow.policy.sandbox_factory import SandboxFactory
from yarrow.policy.workspace import Workspace
from yarrow.tool.base import Result, ToolContext
from yarrow.tool.bash import Bash, BashArguments
from yarrow.tool.edit import Edit, EditArguments, TextEdit
from yarrow.tool.grep import Grep, GrepArguments

CALLS = 10
"""Calls of `bash` per run; the other tools are called once."""
LARGE = 100_000
"""Files of the workspace that `grep` searches."""
EDITED = 10_000_000
"""Bytes of the edited file."""
NOBODY = 65_534
"""Id of a user that owns nothing."""
ORDINARY = "as an ordinary user"
MORE = 10.0
"""Maximum milliseconds that a sandbox may cost in the workspace of 250 directories."""
SEARCHED = "wanted_name"
LEVELS: tuple[SandboxLevel, ...] = ("off", "workspace", "strict")

Side = Callable[[], Awaitable[float | None]]
"""A measured call; returns its milliseconds if only a part of it counts."""


class Tree(NamedTuple):
    """A repository in which a sandbox is compared to bubblewrap alone."""

    label: str
    directories: int
    files: int
    """Files per directory."""
    more: float
    """Maximum milliseconds that the sandbox may cost in addition to bubblewrap."""


TREES = {
    "workspace": Tree("a workspace of 250 directories with 10 files each", 250, 10, 4.0),
    "repository": Tree("a repository of 60,000 files", 5_000, 12, 15.0),
}


def context(cwd: Path, level: SandboxLevel) -> ToolContext:
    workspace = Workspace.make(cwd)
    box = SandboxFactory(level, home=Path.home()).create("bench", workspace)
    return ToolContext(cwd=cwd, workspace=workspace, bash=Settings().bash, sandbox=box)


def furnish(workspace: Path, directories: int, files: int) -> Path:
    """Create a repository of directories with `files` files each; one file in a hundred contains the searched text."""
    for number in range(directories):
        directory = workspace / f"d{number % 250}" / (f"e{number // 250}" if directories > 250 else "")
        directory.mkdir(exist_ok=True, parents=True)
        for name in range(number, directories * files, directories):
            (directory / f"f{name}.py").write_text(f"x = {SEARCHED if name % 100 == 0 else 1}\n" * 20)
    git = ["git", "-C", str(workspace), "-c", "user.name=n", "-c", "user.email=e@example.org"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "all"], ["gc", "-q"]):
        subprocess.run([*git, *words], check=True)
    return workspace


def bash(where: ToolContext) -> Side:
    async def side() -> None:
        async for _ in Bash().run(BashArguments("true"), where):
            pass

    return side


def bubblewrap(where: ToolContext) -> Side:
    """Bubblewrap with the mounts, filter and limits of a sandbox; their creation is not measured."""
    box = where.sandbox
    assert box is not None
    command = Command(("bash", "-c", "true"), where.cwd, child_environment(os.environ), 60.0)

    async def side() -> float:
        boxed = SandboxedCommand(box, command)
        permission, asking = socket.socketpair()
        permission.sendall(b"\n")  # it asks for its start there
        try:
            start = time.perf_counter()
            process = await asyncio.create_subprocess_exec(
                *boxed.command.argv,
                stdin=asking.fileno(),
                stdout=asyncio.subprocess.PIPE,
                cwd=boxed.command.cwd,
                env=boxed.command.environment,
                pass_fds=boxed.command.descriptors,
            )
            await process.communicate()
            assert process.returncode == 0
            return (time.perf_counter() - start) * 1_000
        finally:
            permission.close()
            asking.close()
            boxed.quarantine_leftovers()
            boxed.close()

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
    """Edit a line in the middle of a large file, back and forth."""
    path = where.cwd / "large.txt"
    lines = [f"{number:79}\n" for number in range(EDITED // 80)]
    lines[len(lines) // 2] = "MIDDLE\n"
    path.write_text("".join(lines))
    texts = ["MIDDLE", "CENTRE"]

    async def side() -> None:
        old, new = texts
        async for _ in Edit().run(EditArguments(path.name, (TextEdit(old, new),)), where):
            pass
        texts.reverse()

    return side


async def compare(folder: Path, options: argparse.Namespace) -> Values:
    """Return the milliseconds of each call, measured alternately so that a busy moment affects all of them."""
    less = 50 if options.small else 1
    trees = {name: furnish(folder / name, tree.directories // less, tree.files) for name, tree in TREES.items()}
    small = trees["workspace"]
    sides: dict[str, tuple[Side, int]] = {"bare": (spawned, CALLS)}
    sides |= {level: (bash(context(small, level)), CALLS) for level in LEVELS}
    for name, tree in trees.items():
        where = context(tree, "workspace")
        sides |= {f"bash in {name}": (bash(where), CALLS), f"bwrap in {name}": (bubblewrap(where), CALLS)}
    if not options.shell:
        large = furnish(folder / "large", 250 // less, LARGE // 250)
        sides |= {"grep": (grep(context(large, "off")), 1), "edit": (edit(context(small, "off")), 1)}
        if shutil.which("rg"):
            sides["rg"] = (ripgrep(large), 1)
    seen: Values = {name: [] for name in sides}
    for number in range(options.runs + 1):
        for name, (side, calls) in sides.items():
            for _ in range(calls):
                start = time.perf_counter()
                part = await side()
                if number:  # the first round is a warm-up
                    seen[name].append((time.perf_counter() - start) * 1_000 if part is None else part)
    return seen


def as_somebody(options: argparse.Namespace) -> Values:
    """Return the cost of `bash` for an ordinary user; empty if this cannot run as one."""
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
    """Return rows with the cost of each sandbox for a kind of user."""
    costs = {level: took[level] - took["off"] for level in LEVELS[1:]}
    rows = [
        (f"... more in the sandbox `{level}`, {who}", f"{figure(cost)} ms", at_most(cost, MORE, " ms"))
        for level, cost in costs.items()
    ]
    for name, tree in TREES.items():
        alone = took[f"bwrap in {name}"]
        cost = took[f"bash in {name}"] - alone
        told = f"{figure(cost)} ms more than bubblewrap with these mounts ({figure(alone)} ms)"
        rows.append((f"`bash` in the sandbox, {tree.label}, {who}", told, at_most(cost, tree.more, " ms")))
    return rows


def measure(options: argparse.Namespace) -> Found:
    if why := unavailable_reason():
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
