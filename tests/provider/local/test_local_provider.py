"""The local provider owns a server: started once, when needed; started again when it died; ended when closed."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from doubles.chat_server import ChatServer, page, says
from doubles.completions import stream
from yarrow.config.settings import ProviderSettings
from yarrow.errors import Code, ProviderError
from yarrow.message import StopReason
from yarrow.provider.base import ModelEntry, Provider, StopPiece, TextPiece
from yarrow.provider.http.client import HttpClient
from yarrow.provider.llamacpp.adapter import LlamaCppProvider
from yarrow.provider.local.adapter import LocalProvider

KEY = "of-this-server"
ANSWER = [TextPiece("x"), StopPiece(StopReason.END_TURN)]


class Started:
    """A chat server in the place of the child process."""

    def __init__(self, server: ChatServer) -> None:
        self._server = server
        self.closed = 0

    @property
    def base_url(self) -> str:
        return self._server.root

    @property
    def key(self) -> str:
        return KEY

    async def close(self) -> None:
        self.closed += 1
        await self._server.__aexit__(None, None, None)


class Machine:
    """Starts servers, and remembers them."""

    def __init__(self) -> None:
        self.started: list[Started] = []
        self.servers: list[ChatServer] = []

    async def start(self) -> Started:
        server = await ChatServer([says("x")] * 5, key=KEY).__aenter__()
        server.pages["/props?model=m"] = page({"default_generation_settings": {"n_ctx": 4096}})
        self.servers.append(server)
        self.started.append(Started(server))
        return self.started[-1]

    def speak(self, base_url: str, key: str) -> Provider:
        settings = ProviderSettings(base_url=base_url)
        return LlamaCppProvider("local", "m", settings=settings, key=key, http=HttpClient())


@pytest.fixture
async def machine() -> AsyncGenerator[Machine]:
    made = Machine()
    yield made
    assert all(started.closed == 1 for started in made.started)


def local(machine: Machine) -> LocalProvider:
    return LocalProvider(machine.start, machine.speak, ["m", "n"])


async def test_the_server_is_started_once_and_stopped(machine: Machine) -> None:
    provider = local(machine)
    info, again = await asyncio.gather(provider.info(), provider.info())
    assert (info.name, info.model, info.context_window) == ("local", "m", 4096)
    assert again == info
    assert await stream(provider) == ANSWER
    assert len(machine.started) == 1
    await provider.close()
    await provider.close()


async def test_models_are_listed_without_a_server(machine: Machine) -> None:
    provider = local(machine)
    assert await provider.list_models() == [ModelEntry("m"), ModelEntry("n")]
    await provider.close()
    assert machine.started == []


async def test_a_server_that_exited_is_restarted(machine: Machine) -> None:
    provider = local(machine)
    await provider.info()
    await machine.servers[0].__aexit__(None, None, None)
    with pytest.raises(ProviderError) as caught:
        await stream(provider)
    assert (caught.value.code, caught.value.retryable) == (Code.UNREACHABLE, True)
    assert machine.started[0].closed == 1
    assert await stream(provider) == ANSWER
    assert len(machine.started) == 2
    await provider.close()


async def test_other_failures_leave_it_running(machine: Machine) -> None:
    provider = local(machine)
    await provider.info()
    machine.servers[0].replies.insert(0, page({"error": {"message": "no"}}, 500))
    with pytest.raises(ProviderError):
        await stream(provider)
    assert await stream(provider) == ANSWER
    await provider.close()


async def test_a_server_that_fails_to_start_is_retried(machine: Machine) -> None:
    failures = [ProviderError(Code.PROVIDER_SETUP, "no memory")]

    async def start() -> Started:
        if failures:
            raise failures.pop()
        return await machine.start()

    provider = LocalProvider(start, machine.speak, [])
    with pytest.raises(ProviderError, match="no memory"):
        await provider.info()
    assert (await provider.info()).context_window == 4096
    await provider.close()
