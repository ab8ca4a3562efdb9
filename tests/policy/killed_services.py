"""Kills services while they start a sandboxed command: each is forked, says when bubblewrap runs, and is killed.

`python -m killed_services WORKSPACE TAG TIMES`
"""

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from unittest.mock import patch

from processes import TAG

from yarrow.policy import command_execution
from yarrow.policy.command_execution import Command, run
from yarrow.policy.sandbox.sandboxed_command import SandboxedCommand
from yarrow.policy.sandbox_factory import SandboxFactory
from yarrow.policy.workspace import Workspace

DELAYS = (0.0, 0.001, 0.002, 0.004, 0.008)
"""Seconds from the start of bubblewrap to the kill."""
_start = command_execution._start


async def _serve(workspace: Path, tag: str, started: int) -> None:
    spec = SandboxFactory("workspace", home=Path.home()).create("s", Workspace.make(workspace))
    assert spec is not None
    environment = {"PATH": "/usr/bin:/bin", TAG: tag}
    boxed = SandboxedCommand(spec, Command(("/bin/sh", "-c", "touch began; sleep 300"), workspace, environment, 60))

    def start(*words: object, **named: object) -> object:
        begun = _start(*words, **named)  # type: ignore[arg-type]
        os.write(started, b".")
        return begun

    with patch.object(command_execution, "_start", start):
        async for _ in run(boxed.command):
            pass


def _kill_one(workspace: Path, tag: str, delay: float) -> None:
    source, sink = os.pipe()
    if not (service := os.fork()):
        os.close(source)
        asyncio.run(_serve(workspace, tag, sink))
        os._exit(1)
    os.close(sink)
    assert os.read(source, 1)
    until = time.perf_counter() + delay
    while time.perf_counter() < until:  # a sleep would be longer
        pass
    os.kill(service, signal.SIGKILL)
    os.waitpid(service, 0)
    os.close(source)


if __name__ == "__main__":
    for _ in range(int(sys.argv[3])):
        for delay in DELAYS:
            _kill_one(Path(sys.argv[1]), sys.argv[2], delay)
