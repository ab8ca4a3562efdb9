"""A service that is killed leaves no command running, at whatever moment of its start."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from loss_runner import survivors
from processes import TAG, alive_pids, new_tag

pytestmark = pytest.mark.xdist_group("sandbox")

TIMES = int(os.environ.get("KILLS") or 10)
"""Kills at each delay."""
WAIT_SECONDS = 5.0
"""Seconds in which bubblewrap and the kernel end started processes."""


@pytest.fixture
def tag() -> Iterator[str]:
    made = new_tag()
    yield made
    for pid in alive_pids(made):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def test_a_service_killed_while_a_command_starts_leaves_no_process(tmp_path: Path, tag: str) -> None:
    words = [sys.executable, "-m", "killed_services", str(tmp_path), tag, str(TIMES)]
    subprocess.run(words, cwd=Path(__file__).parent, check=True, timeout=300)
    until = time.monotonic() + WAIT_SECONDS
    while (left := alive_pids(tag)) and time.monotonic() < until:
        time.sleep(0.01)
    assert not left, f"{len(left)} processes still run"


def test_surviving_processes_are_found_in_any_directory(tmp_path: Path, tag: str) -> None:
    left = subprocess.Popen(["sleep", "300"], cwd="/", env={**os.environ, TAG: tag, "HOME": str(tmp_path / "home")})
    found = survivors(tmp_path)
    left.kill()
    assert left.wait(WAIT_SECONDS) == -signal.SIGKILL
    assert len(found) == 1
