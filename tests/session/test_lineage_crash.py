"""Law 3 where sessions are made of sessions: killed, cut or flipped, a file is whole, or not there, or says so."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from session_samples import NOW, header, message, spin, texts

from yarrow.config.settings import CompactionSettings
from yarrow.errors import StorageError
from yarrow.message import Image, Message, Opaque, Role, StopReason, Text, Thinking, ThinkingLevel, ToolCall, Usage
from yarrow.session.disk_access import Disk
from yarrow.session.line_codec import UnknownRecord, encode_line, seal
from yarrow.session.record import Change, Compaction, Header, Queued, Record, Undelivered
from yarrow.session.session_file_reader import load_session, read_head
from yarrow.session.session_list import flatten_tree
from yarrow.session.session_manager import SessionManager
from yarrow.session.state import SessionState, fold_records

KILLS = 32
FLIPS = 2000
SEED = 20261128

WORKER = """
import asyncio, os, sys
from pathlib import Path
from doubles.house import House, play, stub_of
from yarrow.config.settings import CompactionSettings
from yarrow.v1 import agent_pb2 as pb

LONG = "The quick brown fox jumps over the lazy dog. " * 200

def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

async def work(folder):
    small = CompactionSettings(reserve_tokens=1000, keep_recent_tokens=600)
    house = House(Path(folder), [[{"text": f"answer {number}"}] for number in range(500)], compaction=small)
    async with stub_of(house) as stub:
        compactions = 0
        if any(house.sessions.rglob("s1.jsonl")):
            compactions = len((await stub.GetStats(pb.GetStatsRequest(session_id="s1"))).compactions)
        while True:
            await play(stub, house.prompt(LONG, "s1"))
            say("said", len((await stub.GetMessages(pb.GetMessagesRequest(session_id="s1"))).messages))
            say("branch", (await stub.BranchSession(pb.BranchSessionRequest(session_id="s1"))).session_id)
            say("fork", (await stub.ForkSession(pb.ForkSessionRequest(session_id="s1"))).session_id)
            request = pb.ExportSessionRequest(session_id="s1")
            data = b"".join([response.chunk async for response in stub.ExportSession(request)])
            say("import", (await stub.ImportSession(pieces(data, house.cwd))).session_id)
            try:
                async for _ in stub.Compact(pb.CompactRequest(session_id="s1")):
                    pass
            except Exception as error:
                if "nothing to compact yet" not in str(error):
                    raise
                continue
            compactions += 1
            say("compact", compactions)

async def pieces(data, cwd):
    yield pb.ImportSessionRequest(cwd=str(cwd), size=len(data))
    for start in range(0, len(data), 3000):
        yield pb.ImportSessionRequest(chunk=data[start : start + 3000])

for line in sys.stdin:  # one worker for each folder, so that a kill does not cost the start of an interpreter
    child = os.fork()
    if child == 0:
        asyncio.run(work(line.strip()))
    say("worker", child)
    os.waitpid(child, 0)
    say("dead")
"""


@pytest.fixture
def workers() -> "Generator[subprocess.Popen[str]]":
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    with subprocess.Popen(
        [sys.executable, "-c", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as starter:
        yield starter
        starter.kill()


def killed(workers: "subprocess.Popen[str]", folder: Path, *, after: int, seconds: float) -> list[list[str]]:
    """Start a worker, kill it a little after so many acknowledgements, return all that it acknowledged."""
    assert workers.stdin is not None
    assert workers.stdout is not None
    print(folder, file=workers.stdin, flush=True)
    worker, acknowledged = 0, list[list[str]]()
    while not worker or len(acknowledged) < after:
        words = workers.stdout.readline().split()
        assert words, "the worker's starter is gone"
        assert words != ["dead"], "the worker ended by itself"
        if words[0] == "worker":
            worker = int(words[1])
        else:
            acknowledged.append(words)
    spin(seconds)
    os.kill(worker, signal.SIGKILL)
    while (words := workers.stdout.readline().split()) != ["dead"]:
        acknowledged.append(words)
    return acknowledged


def compactions(path: Path) -> int:
    return sum(isinstance(stored.value, Compaction) for stored in load_session(path).records)


async def check(folder: Path, acknowledged: list[list[str]], known: set[str]) -> None:
    root = folder / "sessions"
    files = {path.stem: path for path in root.rglob("*.jsonl")}
    source = texts(files["s1"])
    lengths = {int(words[1]) for words in acknowledged if words[0] == "said"}
    assert len(source) >= max(lengths, default=0), "an acknowledged message is lost"
    assert load_session(files["s1"]).report.skipped_count <= len(known)  # one for each kill, at most
    for words in acknowledged:
        if words[0] == "compact":
            assert compactions(files["s1"]) >= int(words[1]), "an acknowledged compaction is lost"
        elif words[0] != "said":
            assert words[1] in files, f"an acknowledged {words[0]} is lost"
    for session_id, path in files.items():
        if session_id in ("s1", *known):
            continue
        loaded = load_session(path)
        assert path.read_bytes().endswith(b"\n")
        assert not loaded.report.skipped_count
        assert not loaded.report.header
        assert texts(path) == source[: len(texts(path))]
        assert len(texts(path)) in lengths, "a session of half a history is there"
    disk = Disk()
    manager = SessionManager(root, sync="message", disk=disk)
    try:
        listed = await manager.list_heads()
        assert {one.id for one in listed} == set(files)
        assert {row.head.id for row in flatten_tree(listed)} == set(files)
        assert all(one.title.startswith("The quick") for one in listed if one.id != "s1")
        for part in known:
            assert await manager.resolve(part[-8:]) == part
    finally:
        disk.close()
    known |= set(files) - {"s1"}


async def test_derived_sessions_survive_kill_9_completely_or_not_at_all(
    tmp_path: Path, workers: "subprocess.Popen[str]"
) -> None:
    chance = random.Random(SEED)
    kinds: list[str] = []
    known: dict[int, set[str]] = {}
    for number in range(KILLS):
        folder = tmp_path / str(number % 4)
        folder.mkdir(exist_ok=True)
        # At least one is waited for: before it the worker may not have begun.
        acknowledged = killed(workers, folder, after=1 + chance.randrange(10), seconds=chance.random() * 0.012)
        kinds += [words[0] for words in acknowledged]
        await check(folder, acknowledged, known.setdefault(number % 4, set()))
    assert {"said", "branch", "fork", "import", "compact"} == set(kinds)
    assert len(kinds) > KILLS


# ---- every kind of record ----

EVERY_KIND: tuple[Record, ...] = (
    Change(
        timestamp=NOW, provider="p", model="m", thinking=ThinkingLevel.HIGH, name='a "name" ü', system_prompt="You.",
        tools=("read",), compaction=CompactionSettings(enabled=False, model="cheap"), dry_run=True,
    ),
    Message(
        id="m1", role=Role.ASSISTANT, timestamp=NOW, usage=Usage(1, 2), stop_reason=StopReason.TOOL_USE,
        content=(
            Thinking("hm", "sig"), Text("say\n\\ \"it\" \u2028", "o"), Opaque("data"),
            ToolCall("c1", "ls", '{"path":"."}'),
        ),
    ),
    Message(
        id="m2", role=Role.TOOL, timestamp=NOW, tool_call_id="c1", diff="-a\n+b",
        content=(Text("done"), Image("image/png", "AAAA")),
    ),
    Compaction(
        timestamp=NOW, summary="<!-- yarrow-summary -->\nGoal", first_kept_message_id="m1", tokens_before=9,
        tokens_after=3, reason="manual", read_files=("a",), modified_files=("b",), split_turn=True, model="m",
        usage=Usage(5, 6),
    ),
    Queued(id="q1", timestamp=NOW, mode="followUp", content=(Text("later"),), typed="/later"),
    Undelivered(id="q1", timestamp=NOW),
)  # fmt: skip
UNKNOWN = seal(b'{"kind":"novelty","deep":{"x":[1,2.5,null,true]},"text":"\xc3\xbc"}')


def values(path: Path) -> list[object]:
    return [stored.value for stored in load_session(path).records]


@pytest.mark.parametrize(
    "line", [*map(encode_line, EVERY_KIND), UNKNOWN], ids=[*(type(one).__name__ for one in EVERY_KIND), "unknown"]
)
def test_every_kind_of_record_truncated_at_every_byte(tmp_path: Path, line: bytes) -> None:
    first = message("first")
    path = tmp_path / "s1.jsonl"
    for cut in range(len(line) + 1):
        path.write_bytes(encode_line(header()) + encode_line(first) + line[:cut])
        whole = cut >= len(line) - 1  # only the newline was missing
        found = values(path)
        assert found[:1] == [first]
        assert len(found) == 1 + whole, cut
        report = load_session(path).report
        assert report.skipped_count == (0 if whole or not cut else 1)
        assert bool(report.warnings()) == bool(report.skipped_count)
        glance = read_head(path)
        assert glance.title == "first"
        assert (glance.name != "") is (whole and line.startswith(b'{"kind":"change"'))


def test_a_header_truncated_at_every_byte(tmp_path: Path) -> None:
    line = encode_line(header("s1", name="x", parent_id="p"))
    path = tmp_path / "s1.jsonl"
    for cut in range(len(line)):
        path.write_bytes(line[:cut])
        if cut == len(line) - 1:
            assert load_session(path).header.name == "x"
            continue
        with pytest.raises(StorageError, match="line 1" if cut else "is empty"):
            load_session(path)
        path.write_bytes(line[:cut] + b"\n" + encode_line(message("kept")))
        loaded = load_session(path)
        assert texts(path) == ["kept"]
        assert "no header" in loaded.report.header
        assert loaded.header.id == "s1"


def test_every_flipped_bit_is_reported_or_harmless(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    path = tmp_path / "s1.jsonl"
    lines = [
        *map(encode_line, (header("s1", name="n", parent_id="p"), message("go"), *EVERY_KIND)),
        UNKNOWN,
        encode_line(message("end")),
    ]
    data = b"".join(lines)
    path.write_bytes(data)
    whole = load_session(path)
    expected = [whole.header, *(stored.value for stored in whole.records)]
    assert not whole.report.warnings()
    assert sum(isinstance(value, UnknownRecord) for value in expected) == 1
    unnoticed = 0
    for _ in range(FLIPS):
        bit = chance.randrange(len(data) * 8)
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        loaded = load_session(path)
        found = [loaded.header, *(stored.value for stored in loaded.records)]
        told = bool(loaded.report.warnings())
        assert told or found == expected, (bit, flipped[bit // 8])
        if not loaded.report.header and not loaded.report.unsealed:
            assert all(value in expected for value in found if not isinstance(value, UnknownRecord)), bit
        unnoticed += not told
        fold_records(SessionState(loaded.header), (stored.value for stored in loaded.records))
        assert read_head(path).id == "s1"
    assert unnoticed < FLIPS // 100
    assert isinstance(expected[0], Header)
