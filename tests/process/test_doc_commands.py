"""Every command line of the documentation runs as written or is marked as not run; every link has a target.

The `sh` blocks of a page run in one shell, in order, with a scripted model. A `sh not-run` block needs something that
a test lacks, such as a server or a key; its `yarrow` lines must parse.
"""

import asyncio
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from itertools import chain, takewhile
from pathlib import Path
from typing import Any

import pytest

from doubles.world import World
from yarrow.cli.arguments import parse_arguments

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*/README.md"))
"""Their lines are run by the tests of the examples."""
BLOCK = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
RUN, NOT_RUN = "sh", "sh not-run"
PROGRAMS = ("yarrow", "make", "python", "python3", "pip", "uv", "npm", "node", "git", "cd", "export", "ollama", "curl")
OPERATORS = frozenset("|&;<>()")
FIX = {"path": "shop.py", "edits": [{"old": "sum(prices) + 1", "new": "sum(prices)"}]}
SCRIPTS: dict[str, list[list[dict[str, Any]]]] = {
    "tutorial.md": [
        [{"call": {"name": "read", "arguments": {"path": "shop.py"}}}],
        [{"text": "It adds up prices, and one more."}],
        [{"call": {"name": "edit", "arguments": FIX}}],
        [{"text": "Corrected."}],
    ]
}


def pages(kind: str) -> list[Path]:
    return [page for page in PAGES if kind in {found["kind"] for found in BLOCK.finditer(page.read_text())}]


def bodies(page: Path, kind: str) -> list[str]:
    return [found["body"] for found in BLOCK.finditer(page.read_text()) if found["kind"] == kind]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_commands_is_run_or_marked(page: Path) -> None:
    for found in BLOCK.finditer(page.read_text()):
        if found["kind"] not in (RUN, NOT_RUN, "text"):
            lines = found["body"].splitlines()
            assert [line for line in lines if line.split(" ", 1)[0] in PROGRAMS] == [], f"```{found['kind']}"


@pytest.mark.parametrize("page", pages(RUN), ids=lambda page: page.name)
async def test_the_blocks_of_a_page_run(world: World, page: Path) -> None:
    world.environment["PATH"] = f"{Path(sys.executable).parent}:{world.environment['PATH']}"
    world.script(*SCRIPTS.get(page.name, [[{"text": "There is a race in main.py."}]]))
    if page.name == "sessions.md":
        await one_session(world)
    out = await asyncio.to_thread(in_a_shell, world, "".join(bodies(page, RUN)))
    if page.name == "tutorial.md":
        as_the_tutorial_says(world, out)


def in_a_shell(world: World, script: str) -> str:
    done = subprocess.run(
        ["bash", "-c", f"set -euo pipefail\n{script}"],
        cwd=world.project,
        env=world.environment,
        capture_output=True,
        text=True,
        timeout=100,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


async def one_session(world: World) -> None:
    """Leave the session that the page of sessions speaks of."""
    assert (await world.run("hi")).code == 0
    assert (await world.run("-c", "/name 1f0c22ab")).code == 0


def as_the_tutorial_says(world: World, out: str) -> None:
    shop = world.project / "shop"
    assert (shop / "shop.py").read_text() == "def total(prices):\n    return sum(prices)\n"
    assert "It adds up prices" in out
    assert (shop / "talk.html").stat().st_size > 1000
    assert '"agentEnd"' in out
    assert len(world.session_files()) >= 8
    assert [word for word in ("Branched to ", "; continuing in ", "Imported as ", "tokens") if word not in out] == []


def command_lines(page: Path) -> Iterator[list[str]]:
    """The arguments of each `yarrow` on a page, in blocks that are not run and in the middle of sentences."""
    text = page.read_text()
    code = chain.from_iterable(body.splitlines() for body in bodies(page, NOT_RUN))
    inline = re.findall(r"`([^`\n]+)`", BLOCK.sub("", text))
    lines = (re.split(r"\\?\| (?=yarrow )", line)[-1] for line in chain(code, inline))
    return (words_of(line)[1:] for line in lines if line.startswith("yarrow "))


def words_of(line: str) -> list[str]:
    """The words of a line before the first thing that a shell takes for itself."""
    reader = shlex.shlex(line, posix=True, punctuation_chars=True)
    reader.whitespace_split = True
    return list(takewhile(lambda word: not OPERATORS.issuperset(word) or not word, reader))


@pytest.mark.parametrize("page", [page for page in PAGES if "yarrow " in page.read_text()], ids=lambda page: page.name)
def test_every_command_line_parses(page: Path) -> None:
    for words in command_lines(page):
        try:
            parse_arguments(words)
        except Exception as error:
            raise AssertionError(f"yarrow {' '.join(words)}") from error


def anchor(heading: str) -> str:
    """The name of a heading in links, as GitHub makes it."""
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    return {anchor(heading) for heading in re.findall(r"^#+ (.*)$", BLOCK.sub("", page.read_text()), re.MULTILINE)}


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES], ids=lambda page: f"{page.parent.name}-{page.name}")
def test_every_link_has_a_target(page: Path) -> None:
    for link in re.findall(r"\]\(((?!https?:)[^)\s]+)\)", BLOCK.sub("", page.read_text())):
        path, _, name = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), link
        assert target.is_relative_to(ROOT), link
        assert not name or name in anchors(target), link


def test_the_index_names_every_page() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    named = set(re.findall(r"\]\(([^)#]+\.md)", index))
    assert {page.name for page in (ROOT / "docs").glob("*.md")} - named == {"README.md"}


def test_the_generated_pages_are_current(tmp_path: Path) -> None:
    program = [sys.executable, ROOT / "scripts" / "pages.py"]
    done = subprocess.run([*program, "--check"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert subprocess.run([*program, tmp_path]).returncode == 0
    for page in tmp_path.iterdir():
        assert page.read_text() == (ROOT / "docs" / page.name).read_text()
