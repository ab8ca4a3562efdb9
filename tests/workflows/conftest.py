"""Fixtures of the workflows: a developer, and registries of packages on loopback."""

from collections.abc import Generator

import pytest
from developer import USERS, Developer, developer
from registries import Registry, registry

from yarrow.policy.sandbox.probe import unavailable_reason


@pytest.fixture(params=USERS)
def dev(request: pytest.FixtureRequest) -> Generator[Developer]:
    """A developer of each kind, with a project that is an empty directory."""
    assert unavailable_reason() == "", "the sandbox must be tested: scripts/system.sh installs bubblewrap"
    with developer(request.param) as made:
        yield made


@pytest.fixture(scope="session")
def packages() -> Generator[Registry]:
    """A registry that speaks npm's and Python's protocols."""
    with registry() as made:
        yield made
