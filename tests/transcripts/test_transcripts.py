"""Each page shows a run as its script and all of its events; `TRANSCRIPTS=write` records the events again."""

import os
import re
from pathlib import Path

import pytest

from doubles.world import World

PAGES = sorted(Path(__file__).parent.glob("*.md"))
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
ID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
VARYING = (
    # The same in each event of a run.
    (re.compile(r'"sessionId":"[^"]*",("runId":"[^"]*",)?(?="sequence")'), ""),
    (re.compile(r'"time":"[^"]*",'), ""),
    (re.compile(r'"delay":[\d.e-]+'), '"delay":0.01'),
    (re.compile(r'"service":"[^"]*"'), '"service":"VERSION"'),
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
async def test_a_run_matches_its_recorded_transcript(world: World, page: Path) -> None:
    text = page.read_text("utf-8")
    blocks = dict(BLOCK.findall(text))
    (world.home / "script.json").write_text(blocks["json"])
    (world.project / "notes.txt").write_text("buy milk\n")
    settings = {"provider": "scripted", "providers": {"scripted": {"script": str(world.home / "script.json")}}}
    world.configure(settings | {"retry": {"baseDelay": 0.01}, "sandbox": "off"})
    command = re.fullmatch(r'yarrow (.*) -p "(.*)"\n', blocks["sh"])
    assert command is not None, 'the command is not `yarrow FLAGS -p "PROMPT"`'
    ended = await world.run(*command[1].split(), "-p", command[2])
    events = _normalized(ended.out, world)
    if os.environ.get("TRANSCRIPTS") == "write":
        page.write_text(text.replace(blocks["jsonl"], events))
    assert _normalized(ended.out, world) == dict(BLOCK.findall(page.read_text("utf-8")))["jsonl"]


def test_transcripts_exist() -> None:
    assert len(PAGES) >= 8


def _normalized(out: str, world: World) -> str:
    """Return JSON lines with what differs from run to run replaced, and ids numbered in order of appearance."""
    out = out.replace(str(world.project), "/project").replace(str(world.home), "/home/user")
    for pattern, replacement in VARYING:
        out = pattern.sub(replacement, out)
    known: dict[str, str] = {}
    return ID.sub(lambda found: known.setdefault(found[0], f"id-{len(known) + 1}"), out)
