"""Fixtures of the platform tests: an isolated environment, and code run as if on another system."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from doubles.world import World

TESTS = str(Path(__file__).parents[1])


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def in_python(tmp_path: Path) -> Callable[..., str]:
    """Runs code in a Python of its own and returns what it prints."""

    def run(code: str, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": TESTS, **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
