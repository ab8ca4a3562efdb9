"""Generator of the pictures in the docs, from runs of the real program with a scripted model: scripts/pictures.py"""

import asyncio
import re
import sys
from io import StringIO
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rich.console import Console
from rich.style import Style
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from doubles.screen import Screen  # noqa: E402 (the path comes first)
from doubles.world import World  # noqa: E402 (as above)

PICTURE = ROOT / "docs" / "terminal.svg"
SIZE = (96, 44)
BEFORE = "def greet(name):\n    print('Hello ' + name)\n\n\ngreet('world')\n"
TURNS: list[list[dict[str, Any]]] = [
    [
        {"thinking": "The file is small.\nI read it first."},
        {"text": "Let me look at it."},
        {"call": {"name": "read", "arguments": {"path": "hello.py"}, "id": "call_000001"}},
    ],
    [
        {
            "call": {
                "name": "edit",
                "arguments": {
                    "path": "hello.py",
                    "edits": [{"old": "    print('Hello ' + name)", "new": '    print(f"Hello {name}!")'}],
                },
                "id": "call_000002",
            }
        },
        {"call": {"name": "bash", "arguments": {"command": "python3 hello.py"}, "id": "call_000003"}},
    ],
    [
        {"text": '## Done\n\n`greet` uses an **f-string** now:\n\n```python\nprint(f"Hello {name}!")\n```\n\n'},
        {"text": "- the output is the same, with an exclamation mark\n- nothing else was touched\n"},
        {"usage": {"input": 5200, "output": 180}},
    ],
]


async def draw() -> str:
    """Return the picture of the terminal UI after a run, as SVG."""
    with TemporaryDirectory() as folder:
        return await drawn(World(Path(folder)))


async def drawn(world: World) -> str:
    """Return the picture of a run in a world whose directory path fits on one line."""
    (world.project / "hello.py").write_text(BEFORE)
    world.script(*TURNS, thinking="medium", permissions={"rules": {"bash": "auto", "edit": "auto"}}, sandbox="off")
    script = world.home / "script.json"
    script.write_text(f'{{"info": {{"contextWindow": 32000}}, "turns": {script.read_text()}}}')
    async with Screen(world, size=SIZE) as screen:
        await screen.ready()
        screen.send("Make greet use an f-string, and run it.\r")
        await screen.until("nothing else was touched")
        await screen.until("ready")
        screen.send("Now a test for it")
        await screen.until("a test for it")
        return svg(screen)


def svg(screen: Screen) -> str:
    """Return a picture of the content of a screen."""
    console = Console(record=True, width=SIZE[0], file=StringIO())
    rows = len(screen.text.rstrip().split("\n"))
    for row in range(rows):
        cells = [screen.emulator.buffer[row][column] for column in range(SIZE[0])]
        line = Text(no_wrap=True)
        for style, run in groupby(cells, _style):
            line.append("".join(cell.data for cell in run), style)
        line.rstrip()
        console.print(_lasting(line))
    return console.export_svg(title="yarrow", unique_id="yarrow")


def _lasting(line: Text) -> Text:
    """Replace the parts of a line that differ between runs: the directory."""
    found = re.fullmatch(r"(Yarrow \S+ · )\S+( · \S+)", line.plain)
    if found is None:
        return line
    return Text(f"{found[1]}~/greeting{found[2]}", line.get_style_at_offset(Console(), 0), no_wrap=True)


def _style(cell: Any) -> Style:
    return Style(
        color=_colour(cell.fg), bgcolor=_colour(cell.bg), bold=cell.bold, italic=cell.italics, reverse=cell.reverse
    )


def _colour(name: str) -> str | None:
    """Return the Rich name of a color from its pyte name."""
    if name == "default":
        return None
    if len(name) == 6 and all(letter in "0123456789abcdef" for letter in name):
        return f"#{name}"
    name = name.replace("brown", "yellow")
    return f"bright_{name.removeprefix('bright')}" if name.startswith("bright") else name


async def main() -> None:
    """Write the pictures."""
    PICTURE.write_text(await draw(), "utf-8")


if __name__ == "__main__":
    asyncio.run(main())
