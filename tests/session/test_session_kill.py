"""Law 3 when the process dies: `kill -9` at any instant leaves every acknowledged record in the file."""

import os
import random
import signal
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from session_samples import header, ids, message, spin, texts, write_session

from yarrow.message import Message
from yarrow.session.disk_access import Disk
from yarrow.session.session_file_reader import load_session
from yarrow.session.session_log import SessionLog

PARTS = 8
KILLS = 34
"""In each part; with those of `test_lineage_crash.py` they are more than 300."""
SEED = 20261128

WRITER = """
import asyncio, base64, os, sys
from pathlib import Path
from yarrow.message import Image, Message, Role, Text
from yarrow.session.disk_access import Disk
from yarrow.session.ids import new_id
from yarrow.session.session_log import SessionLog

def say(text):
    os.write(1, f"{text}\\n".encode())

async def write(path):
    log = await SessionLog.open(Path(path), sync="message", disk=Disk())

    async def append(size, images=False):
        while True:
            content = Text("x" * size)
            if images:
                content = Image("image/png", base64.b64encode(os.urandom(1) * size).decode())
            message = Message(id=new_id(), role=Role.USER, content=(content,), timestamp="")
            await log.append(message)
            say(message.id)

    async with log.lock():
        await asyncio.gather(append(10), append(5000), append(100_000), append(80_000, True))

for line in sys.stdin:  # one writer for each path, so that a kill does not cost the start of an interpreter
    child = os.fork()
    if child == 0:
        asyncio.run(write(line.strip()))
    say(f"writer {child}")
    os.waitpid(child, 0)
    say("dead")
"""


@pytest.fixture
def writers() -> "Generator[subprocess.Popen[str]]":
    with subprocess.Popen(
        [sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as starter:
        yield starter
        starter.kill()


def killed(writers: "subprocess.Popen[str]", path: Path, *, after: int, seconds: float) -> list[str]:
    """Start a writer, kill it a little after so many acknowledgements, return the ids of all it acknowledged."""
    assert writers.stdin is not None
    assert writers.stdout is not None
    print(path, file=writers.stdin, flush=True)
    writer, acknowledged = 0, list[str]()
    while not writer or len(acknowledged) < after:
        line = writers.stdout.readline().strip()
        if line.startswith("writer "):
            writer = int(line.removeprefix("writer "))
        else:
            acknowledged.append(line)
    spin(seconds)
    os.kill(writer, signal.SIGKILL)
    while (line := writers.stdout.readline().strip()) != "dead":
        acknowledged.append(line)
    return acknowledged


@pytest.mark.parametrize("part", range(PARTS))
async def test_every_acknowledged_record_survives_kill_9(
    tmp_path: Path, disk: Disk, writers: "subprocess.Popen[str]", part: int
) -> None:
    chance = random.Random(SEED + part)
    total = pictures = 0
    for number in range(KILLS):
        path = write_session(tmp_path / f"s{number % 4}.jsonl", header(), message("start"))
        acknowledged = killed(writers, path, after=chance.randrange(12), seconds=chance.random() * 0.003)
        total += len(acknowledged)
        found = ids(path)
        assert set(acknowledged) <= set(found)
        assert len(found) == len(set(found))
        assert load_session(path).report.skipped_count <= 1
        assert load_session(path).report.missing_count == 0
        pictures += sum(
            len(stored.value.images) for stored in load_session(path).records if isinstance(stored.value, Message)
        )
        log = await SessionLog.open(path, sync="none", disk=disk)
        async with log.lock():
            await log.append(message("next"))
        assert texts(path)[-1] == "next"
        assert ids(path)[:-1] == found
    assert total > KILLS
    assert pictures > KILLS // 4
