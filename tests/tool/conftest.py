"""Fixtures of the tool tests."""

import os
from pathlib import Path

import pytest


@pytest.fixture
def ws(tmp_path: Path) -> Path:
    """A workspace, by its real path."""
    path = Path(os.path.realpath(tmp_path)) / "ws"
    path.mkdir()
    return path
