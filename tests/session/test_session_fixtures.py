"""Session files of every version are read for ever: what was written once is held against what is read of it now."""

from itertools import chain
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from kept_records import FOLDER, HEADER, RECORDS, digest

from doubles.world import World
from yarrow.message import Block, Usage
from yarrow.session.record import VERSION, Record
from yarrow.session.session_file_reader import load_session

FILES = {
    "v1-before-blobs.jsonl": "2d684b023dde3be7fae297bdfbeb149ebdf0d098e6e912d3324d9c5bc0ace16b",
    "v1.jsonl": "9f8dfae1869874316a7e9baca1c4f3a2722a8f36c8ae39b88fef9631001b4337",
}
"""Each file with its SHA-256: none is ever changed. A new kind or field gets a file of its own, and a line here."""


def lines() -> list[dict[str, Any]]:
    return [msgspec.json.decode(line) for name in FILES for line in (FOLDER / name).read_bytes().splitlines()]


def test_no_fixture_was_changed_or_removed() -> None:
    assert {path.name: digest(path) for path in FOLDER.glob("*.jsonl")} == FILES


def test_every_value_of_version_1_is_read_unchanged() -> None:
    loaded = load_session(FOLDER / "v1.jsonl")
    assert loaded.report.warnings() == ()
    assert loaded.header == HEADER
    assert [stored.value for stored in loaded.records] == RECORDS
    assert VERSION == 1, "a new version needs a file of its own, and this test a copy of itself"


def fields(kinds: Any, tag: str) -> dict[str, set[str]]:
    return {each.__struct_config__.tag: {tag, *each.__struct_encode_fields__} for each in get_args(kinds)}


def keys(values: list[dict[str, Any]], tag: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for value in values:
        found.setdefault(value[tag], set()).update(key for key in value if key != "crc32")
    return found


def test_fixtures_cover_every_kind_and_field() -> None:
    assert keys(lines(), "kind") == fields(Record, "kind")
    blocks = list(chain.from_iterable(line.get("content", ()) for line in lines()))
    assert keys(blocks, "type") == fields(Block, "type")
    used = set(chain.from_iterable(line["usage"] for line in lines() if "usage" in line))
    assert used == set(Usage.__struct_encode_fields__)


@pytest.mark.parametrize("name", FILES)
async def test_a_fixture_can_be_imported_and_continued(name: str, tmp_path: Path) -> None:
    world = World(tmp_path)
    world.script([{"text": "ok"}])
    imported = await world.run("sessions", "import", str(FOLDER / name))
    assert imported.code == 0, imported.err
    assert "The imported session has its own system prompt" in imported.err
    session = imported.out.split()[-1]
    shown = await world.run("sessions", "show", session)
    assert (shown.code, "I look." in shown.out) == (0, True)
    went_on = await world.run("-r", session, "--provider", "scripted", "and now?")
    assert (went_on.code, went_on.out) == (0, "(script ended)\n"), went_on.err
