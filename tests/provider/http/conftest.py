"""One client per test, closed at its end, a certificate for TLS, and a clock that a test can put forward."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from authority import Authority
from byte_script_server import turns

from yarrow.provider.http.client import HttpClient


@pytest.fixture
async def client() -> AsyncGenerator[HttpClient]:
    client = HttpClient()
    yield client
    await client.close()


@pytest.fixture(scope="session")
def vouched(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """For a server of this machine, also under names that only a proxy knows."""
    return Authority(tmp_path_factory.mktemp("tls"), "DNS:model.test,DNS:other.test,IP:127.0.0.1")


@pytest.fixture
def trusted(vouched: Authority, monkeypatch: pytest.MonkeyPatch) -> Authority:
    monkeypatch.setenv("SSL_CERT_FILE", str(vouched.pem))
    return vouched


class Clock:
    """The loop's time plus what the test has added; timers follow it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._time = loop.time
        self._ahead = 0.0

    def time(self) -> float:
        return self._time() + self._ahead

    async def advance(self, seconds: float) -> None:
        """Let what is on its way arrive, then let time pass."""
        await turns(50)
        self._ahead += seconds
        await turns()


@pytest.fixture
async def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    loop = asyncio.get_running_loop()
    clock = Clock(loop)
    monkeypatch.setattr(loop, "time", clock.time)
    return clock
