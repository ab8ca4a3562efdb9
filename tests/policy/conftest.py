"""Fixtures of the tests of a sandbox."""

from collections.abc import Generator

import pytest
from sandboxed import USERS, Corner, corner

from yarrow.policy.sandbox.probe import unavailable_reason


@pytest.fixture(params=USERS)
def place(request: pytest.FixtureRequest) -> Generator[Corner]:
    """A corner of each user who may run commands here."""
    assert unavailable_reason() == "", "the sandbox must be tested: scripts/system.sh installs bubblewrap"
    with corner(request.param) as made:
        yield made
