"""One client per test, closed at its end."""

from collections.abc import AsyncGenerator

import pytest

from yarrow.provider.http.client import HttpClient


@pytest.fixture
async def client() -> AsyncGenerator[HttpClient]:
    client = HttpClient()
    yield client
    await client.close()
