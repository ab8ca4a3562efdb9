"""Run of one command against the mock provider, with its resource usage; Linux only."""

import json
import os
import signal
import socket
import statistics
import subprocess
import threading
import time
import urllib.request
from itertools import pairwise
from pathlib import Path
from typing import Any

from peers import NODE_PATH, Command


def _free() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return listening.getsockname()[1]


PORT = int(os.environ.get("PORT") or _free())
BASE = f"http://127.0.0.1:{PORT}"
PROMPT = "hi"
LIMIT = 180.0
"""Seconds after which a command is killed and its run counts as failed."""
TOOL_TURNS = 20
SCENARIOS: dict[str, dict[str, Any]] = {
    "one-shot": {"tool_turns": 0},
    "20 turns": {"tool_turns": TOOL_TURNS},
    "20,000 deltas": {"tool_turns": 0, "final_deltas": 20_000},
}
Run = dict[str, float]


def control(path: str, value: object = None) -> Any:
    data = None if value is None else json.dumps(value).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{BASE}/_ctl/{path}", data), timeout=30) as response:
        return json.load(response)


def environment(command: Command) -> dict[str, str]:
    return {
        "PATH": f"{NODE_PATH}:{os.environ['PATH']}",
        "HOME": str(command.home),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "NO_COLOR": "1",
        "SHELL": "/bin/bash",
        "DO_NOT_TRACK": "1",
        "OPENAI_BASE_URL": f"{BASE}/v1",
        "OPENAI_API_BASE": f"{BASE}/v1",
        **{f"{vendor}_API_KEY": "test" for vendor in ("OPENAI", "ANTHROPIC", "GEMINI")},
        **command.env,
    }


def once(argv: tuple[str, ...], command: Command) -> Run | None:
    """Run a command; return seconds and bytes, or None on failure. CPU time includes the children it waited for."""
    began = time.monotonic()
    pid = os.posix_spawn(
        "/usr/bin/env",
        ["env", "-C", str(command.home / "project"), *argv],
        environment(command),
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
        ],
        setpgroup=0,
    )
    killer = threading.Timer(LIMIT, os.killpg, (pid, signal.SIGKILL))
    killer.start()
    try:
        _, status, used = os.wait4(pid, 0)
    finally:
        killer.cancel()
    wall = time.monotonic() - began
    if status:
        return None
    return {"began": began, "wall": wall, "cpu": used.ru_utime + used.ru_stime, "memory": used.ru_maxrss * 1024}


def scenario(kind: str, command: Command) -> Run | None:
    """Run a scenario; return None if it cannot be measured, such as for a command without tools or requests."""
    if kind == "20 turns" and not command.tools:
        return None
    control("scenario", {**SCENARIOS[kind], **command.scenario})
    result = once(command.argv, command)
    log = [entry for entry in control("log") if entry["method"] == "POST" and entry.get("main")]
    if result is None or not log:
        return None
    result["first_byte"] = log[0]["t0"] - result["began"]
    result["body"] = log[0]["body"]
    gaps = [after["t0"] - before["end"] for before, after in pairwise(log)]
    if kind == "20 turns" and len(gaps) < TOOL_TURNS:
        return None
    if gaps:
        result["gap"] = statistics.median(gaps)
        result["gap_p90"] = sorted(gaps)[int(len(gaps) * 0.9)]
    return result


def size(folder: Path) -> float:
    """Return the size on disk of a folder or file in bytes."""
    told = subprocess.run(["du", "-sb", folder], check=True, capture_output=True, text=True).stdout
    return float(told.split()[0])
