"""Benchmark of sessions on disk: resuming large ones, listing many, durable appends.

`python bench/sessions.py` creates about 400 MB of files in a temporary directory (set by TMPDIR). Each figure is
measured in a separate process. Cold means that the page cache contains none of the files; their names may still be
cached.
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from parts import Found, Table, at_most, figure, middle, parser, tell

from yarrow.message import Message, Role, StopReason, Text, ToolCall, Usage
from yarrow.session import record
from yarrow.session.disk_access import Disk
from yarrow.session.ids import format_timestamp, new_id
from yarrow.session.line_codec import encode_line
from yarrow.session.record import Header
from yarrow.session.session_list import project_dir
from yarrow.session.session_log import SessionLog
from yarrow.session.session_manager import SessionManager
from yarrow.session.state import SessionState, fold_records

MB = 1_000_000
SIZES = (100, 200)
COUNTS = {3_000: 1.0, 10_000: 3.0}
"""Number of sessions listed, and the goal in seconds."""
WRITERS = (1, 16, 1_000)
SECONDS = 3.0
"""Duration of the append benchmark in seconds."""
TURN = ("Look at the next part of the code, please. " * 5, "I look at it. " * 20, "def function(argument): ...\n" * 60)


def header(session_id: str, cwd: Path) -> Header:
    now = format_timestamp(time.time())
    return Header(id=session_id, cwd=str(cwd), system_prompt="You are an agent. " * 300, created_at=now, updated_at=now)


def turn() -> list[Message]:
    """Return a prompt, an answer with a call and its result, about 2.5 kB."""
    now = format_timestamp(time.time())
    asked, said, found = TURN
    call = ToolCall(new_id(), "read", '{"path":"src/module.py","offset":1}')
    usage = Usage(12_000, 90)
    return [
        Message(id=new_id(), role=Role.USER, content=(Text(asked),), timestamp=now),
        Message(
            id=new_id(), role=Role.ASSISTANT, content=(Text(said), call), timestamp=now, usage=usage,
            stop_reason=StopReason.TOOL_USE, provider="p", model="m",
        ),
        Message(id=new_id(), role=Role.TOOL, content=(Text(found),), timestamp=now, tool_call_id=call.id),
    ]  # fmt: skip


def large(root: Path, cwd: Path, megabytes: int) -> str:
    """Create a session of `megabytes` MB, including one line of 12 MB; return its id."""
    session_id = new_id()
    path = project_dir(root, str(cwd)) / f"{session_id}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        size = file.write(encode_line(header(session_id, cwd)))
        now = format_timestamp(time.time())
        long = Message(id=new_id(), role=Role.TOOL, content=(Text("x" * 12 * MB),), timestamp=now, tool_call_id="c")
        size += file.write(encode_line(long))
        while size < megabytes * MB:
            size += sum(map(file.write, map(encode_line, turn())))
    return session_id


def many(root: Path, cwd: Path, count: int) -> None:
    """Create `count` sessions of four turns, about 18 kB each."""
    folder = project_dir(root, str(cwd))
    folder.mkdir(parents=True, exist_ok=True)
    body = b"".join(encode_line(one) for _ in range(4) for one in turn())
    for _ in range(count):
        session_id = new_id()
        (folder / f"{session_id}.jsonl").write_bytes(encode_line(header(session_id, cwd)) + body)


def forget(root: Path) -> None:
    """Drop the files from the page cache."""
    os.sync()
    for path in root.rglob("*.jsonl"):
        with path.open("rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def peak() -> float:
    """Return the peak memory of the process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MB


# ---- measurements, each in a separate process ----


def resume(root: Path, session_id: str) -> dict[str, float]:
    """Measure what a service does to load a session that is not in memory."""

    async def doing() -> float:
        manager = SessionManager(root, sync="message", disk=Disk())
        start = time.perf_counter()
        loaded = await manager.load(session_id)
        state = fold_records(SessionState(loaded.header), (stored.value for stored in loaded.records))
        spent = time.perf_counter() - start
        assert state.messages
        manager.close()
        return spent

    before = peak()
    return {"seconds": asyncio.run(doing()), "peak": peak() - before}


def parse(root: Path, session_id: str) -> dict[str, float]:
    """Measure the minimum: decode each line into the same values and keep them."""
    (path,) = root.rglob(f"{session_id}.jsonl")
    before = peak()
    start = time.perf_counter()
    with path.open("rb") as file:
        kept = [record.decode(line) for line in file]
    spent = time.perf_counter() - start
    assert kept
    return {"seconds": spent, "peak": peak() - before}


def listed(root: Path, cwd: str) -> dict[str, float]:
    """Measure the first and the second listing in a process."""

    async def doing() -> list[float]:
        manager = SessionManager(root, sync="message", disk=Disk())
        spent: list[float] = []
        for _ in range(2):
            start = time.perf_counter()
            assert await manager.heads(cwd)
            spent.append(time.perf_counter() - start)
        manager.close()
        return spent

    first, second = asyncio.run(doing())
    return {"first": first, "second": second, "peak": peak()}


def appended(root: Path, cwd: str, writers: int) -> dict[str, float]:
    """Append to `writers` sessions concurrently, each waiting for its record before the next one."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 8_192), most))

    async def write(log: SessionLog, until: float) -> list[float]:
        spent: list[float] = []
        while (start := time.perf_counter()) < until:
            await log.append(turn()[1])
            spent.append(time.perf_counter() - start)
        return spent

    async def doing() -> tuple[list[float], float]:
        manager = SessionManager(root, sync="message", disk=Disk())
        async with AsyncExitStack() as stack:
            logs = [await manager.create(header(new_id(), Path(cwd))) for _ in range(writers)]
            for log in logs:
                await stack.enter_async_context(log.lock())
            start = time.perf_counter()
            spent = await asyncio.gather(*(write(log, start + SECONDS) for log in logs))
            elapsed = time.perf_counter() - start
        manager.close()
        return sorted(one for each in spent for one in each), elapsed

    spent, elapsed = asyncio.run(doing())
    return {"rate": len(spent) / elapsed, "middle": spent[len(spent) // 2], "worst": spent[int(len(spent) * 0.99)]}


MEASURED: dict[str, Callable[..., dict[str, float]]] = {
    "resume": resume,
    "parse": parse,
    "list": listed,
    "append": appended,
}


def measured(what: str, root: Path, *more: object) -> dict[str, float]:
    """Measure in a separate process."""
    command = [sys.executable, __file__, "--measure", json.dumps([what, str(root), *more])]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def measure(options: argparse.Namespace) -> Found:
    sizes, counts = ((5,), (100,)) if options.small else (SIZES, COUNTS)
    values: dict[str, Any] = {}
    rows: list[tuple[str, str, str]] = []
    with tempfile.TemporaryDirectory(prefix="yarrow-bench-") as name:
        cwd = Path(name) / "project"
        cwd.mkdir()
        for megabytes in sizes:
            found = resumed(Path(name) / f"large-{megabytes}", cwd, megabytes, options.runs)
            values[f"resume of {megabytes} MB"] = found
            rows += told_of_resume(megabytes, found)
        for count in counts:
            root = Path(name) / f"many-{count}"
            many(root, cwd, count)
            values[f"list of {count:,}"] = warm, cold = measured("list", root, str(cwd)), listed_cold(root, cwd)
            first = cold["first"]
            goal = at_most(first, COUNTS[count], " s") if count in COUNTS else ""
            rows.append((f"list of {count:,} sessions, cold", f"{figure(first)} s", goal))
            rows.append(("... warm, the second time", f"{figure(warm['second'])} s, {warm['peak']:.0f} MB", ""))
        for writers in WRITERS:
            found = values[f"append to {writers}"] = measured(
                "append", Path(name) / f"append-{writers}", str(cwd), writers
            )
            spread = f"{figure(found['middle'] * 1e3)} ms, p99 {figure(found['worst'] * 1e3)} ms"
            rows.append((f"durable appends to {writers:,} sessions", f"{figure(found['rate'])} a second, {spread}", ""))
    return Found([Table(("sessions", "measured", "goal"), rows)], values)


def resumed(root: Path, cwd: Path, megabytes: int, runs: int) -> dict[str, list[dict[str, float]]]:
    """Measure resuming and parsing alternately."""
    session_id = large(root, cwd, megabytes)
    found: dict[str, list[dict[str, float]]] = {"resume": [], "parse": []}
    for number in range(runs + 1):
        for what, seen in found.items():
            one = measured(what, root, session_id)
            if number:
                seen.append(one)
    return found


def told_of_resume(megabytes: int, found: dict[str, list[dict[str, float]]]) -> list[tuple[str, str, str]]:
    taken, least, held = (
        middle([one[key] for one in found[what]])
        for what, key in (("resume", "seconds"), ("parse", "seconds"), ("resume", "peak"))
    )
    ratio = taken / least
    beside = f"{figure(taken)} s, {figure(ratio)} times parsing its lines ({figure(least)} s)"
    return [
        (f"resume of {megabytes} MB", beside, at_most(ratio, 2.0, " times")),
        ("... memory", f"{figure(held)} MB, {figure(held / megabytes)} times the file", ""),
    ]


def listed_cold(root: Path, cwd: Path) -> dict[str, float]:
    forget(root)
    return measured("list", root, str(cwd))


if __name__ == "__main__":
    made = parser(__doc__, runs=5)
    made.add_argument("--measure", type=json.loads, help=argparse.SUPPRESS)
    given = made.parse_args()
    if given.measure:
        what, below, *more = given.measure
        print(json.dumps(MEASURED[what](Path(below), *more)))
    else:
        tell(measure(given), given.json)
