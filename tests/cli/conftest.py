"""An isolated environment for the tests of commands."""

from pathlib import Path

import pytest

from doubles.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
