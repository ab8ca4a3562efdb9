"""A service and its stub."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from doubles.house import House, stub_of

if TYPE_CHECKING:
    from yarrow.v1.agent_pb2_grpc import AgentServiceAsyncStub as Stub  # there is no such class at run time


@pytest.fixture
def house(tmp_path: Path) -> House:
    """A service whose model has one answer; a module with another script overrides it."""
    return House(tmp_path, [[{"text": "x"}]])


@pytest.fixture
async def stub(house: House) -> AsyncGenerator["Stub"]:
    async with stub_of(house) as stub:
        yield stub
