"""Fixtures of the session tests: a disk, and the manager of a directory of sessions on it."""

from collections.abc import Generator
from pathlib import Path

import pytest

from yarrow.session.disk_access import Disk
from yarrow.session.session_manager import SessionManager


@pytest.fixture
def disk() -> Generator[Disk]:
    disk = Disk()
    yield disk
    disk.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory for sessions, which does not exist yet."""
    return tmp_path / "sessions"


@pytest.fixture
def manager(root: Path, disk: Disk) -> SessionManager:
    return SessionManager(root, sync="message", disk=disk)
