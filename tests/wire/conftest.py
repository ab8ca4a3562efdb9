"""Runs every check of the conformance suite once per transport."""

from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from wire_transports import DEFAULT_LIMITS, TRANSPORTS, Limits, Peer, Serve, servicer, stub


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
async def serve(transport: str, tmp_path: Path) -> AsyncGenerator[Serve]:
    async with AsyncExitStack() as stack:

        async def connect(*, limits: Limits = DEFAULT_LIMITS, **methods: Callable[..., Any]) -> Peer:
            connected = TRANSPORTS[transport](servicer(methods), limits, tmp_path)
            channel = await stack.enter_async_context(connected)
            return Peer(stub(channel), channel)

        yield connect
