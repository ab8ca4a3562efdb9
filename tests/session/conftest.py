"""A disk for the tests of a session's file."""

from collections.abc import Generator

import pytest

from yarrow.session.disk_access import Disk


@pytest.fixture
def disk() -> Generator[Disk]:
    disk = Disk()
    yield disk
    disk.close()
