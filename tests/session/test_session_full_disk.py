"""A file system that is really full: acknowledged records exist, the rest is written once space is free."""

import json
import os
import subprocess
import sys
from pathlib import Path

FULL = """
import asyncio, json, sys
from pathlib import Path
from yarrow.errors import StorageError
from yarrow.message import Message, Role, Text
from yarrow.session.disk_access import Disk
from yarrow.session.ids import new_id
from yarrow.session.session_file_reader import load_session
from yarrow.session.record import Header
from yarrow.session.session_log import SessionLog

NOW = "2026-11-28T00:00:00.000Z"

async def main(folder):
    path, filler = folder / "p" / "s.jsonl", folder / "filler"
    log = await SessionLog.create(
        path, Header(id="s", cwd="/", created_at=NOW, updated_at=NOW), sync="message", disk=Disk()
    )
    filler.write_bytes(b"x" * 300_000)
    acknowledged, refused = [], ""
    async with log.lock():
        while not refused:
            one = Message(id=new_id(), role=Role.USER, content=(Text("y" * 10_000),), timestamp=NOW)
            try:
                await log.append(one)
            except StorageError as error:
                refused = error.message
            else:
                acknowledged.append(one.id)
        found = [stored.value.id for stored in load_session(path).records]
        torn = load_session(path).report.skipped_count
        filler.unlink()
        last = Message(id=new_id(), role=Role.USER, content=(Text("last"),), timestamp=NOW)
        await log.append(last)
    after = [stored.value.id for stored in load_session(path).records]
    print(json.dumps({"acknowledged": acknowledged, "refused": refused, "found": found, "torn": torn,
                      "after": after, "kept": one.id, "last": last.id,
                      "skipped": load_session(path).report.skipped_count}))

asyncio.run(main(Path(sys.argv[1])))
"""


def test_a_small_file_system_that_fills_up_loses_nothing(tmp_path: Path) -> None:
    # In a mount namespace of its own, so that it is gone with the process.
    space = ["unshare", "--mount", *(["--map-root-user"] if os.getuid() else [])]
    script = tmp_path / "full.py"
    script.write_text(FULL)
    place = tmp_path / "disk"
    place.mkdir()
    inside = 'mount -t tmpfs -o size=1m tmpfs "$0" && exec "$1" "$2" "$0"'
    ended = subprocess.run(
        [*space, "sh", "-c", inside, str(place), sys.executable, str(script)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert len(told["acknowledged"]) > 10
    assert "no space left on the device" in told["refused"]
    assert told["found"] == told["acknowledged"]
    assert told["torn"] == 0
    assert told["after"] == [*told["acknowledged"], told["kept"], told["last"]]
    assert told["skipped"] == 0
    assert list(place.iterdir()) == []
