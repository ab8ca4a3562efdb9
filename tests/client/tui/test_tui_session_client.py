"""The terminal UI's connection: cut anywhere, a service that was started again, another token."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest

from doubles.house import House, kinds
from doubles.reached import behind
from doubles.relay import relay
from yarrow.client import reconnect_backoff
from yarrow.client.stub import make_stub
from yarrow.client.tui.session_client import SessionClient, SessionListener
from yarrow.config.settings import ServiceSettings
from yarrow.service.authentication import load_or_create_token, token_path_for
from yarrow.service.grpc_options import make_client_options
from yarrow.v1 import agent_pb2 as pb

HELD: list[list[dict[str, Any]]] = [[{"text": "one "}, {"wait": "gate"}, {"text": "two"}]]


class Told:
    """Notifications of the client, with a way to wait for one."""

    def __init__(self) -> None:
        self.events: list[pb.AgentEvent] = []
        self.connections: list[str] = []
        self.changed = asyncio.Event()

    def watcher(self) -> SessionListener:
        return SessionListener(self._events, self._connection, lambda _: None)

    async def until_kind(self, kind: str) -> None:
        while kind not in kinds(self.events):
            await self._change()

    async def until_connection(self, words: str) -> None:
        while not self.connections or words not in self.connections[-1]:
            await self._change()

    async def _change(self) -> None:
        self.changed.clear()
        await asyncio.wait_for(self.changed.wait(), 30)

    def _events(self, events: Sequence[pb.AgentEvent]) -> None:
        self.events += events
        self.changed.set()

    def _connection(self, problem: str) -> None:
        self.connections.append(problem)
        self.changed.set()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnect_backoff, "BACKOFF_SECONDS", (0.02, 0.05))


async def prompted(house: House, driver: SessionClient) -> None:
    session = await driver.stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd)))
    await driver.open_session(session.session_id)
    await driver.send_prompt(pb.PromptRequest(text="go"))


@pytest.mark.parametrize("renews", [False, True])
async def test_a_restarted_service_is_followed(tmp_path: Path, renews: bool) -> None:
    first, told = House(tmp_path, HELD), Told()
    wire_path = tmp_path / "wire"
    async with relay(str(tmp_path / "run" / "yarrow.sock"), wire_path) as wire:
        token = load_or_create_token(token_path_for(_made(tmp_path / "run" / "yarrow.sock")))
        options = make_client_options(ServiceSettings())
        async with grpc.aio.insecure_channel(f"unix:{wire_path}", options=options) as channel:
            driver = SessionClient(make_stub(channel, token), told.watcher())
            async with behind(first, tmp_path / "run"):
                await prompted(first, driver)
                await told.until_kind("text_delta")
                wire.cut()
                await told.until_connection("cannot be reached")
                await told.until_connection("")
                wire.is_down = True
                wire.cut()
                await first.open_gate("gate")
            if renews:
                token_path_for(tmp_path / "run" / "yarrow.sock").unlink()
            async with behind(House(tmp_path, HELD), tmp_path / "run"):
                wire.is_down = False
                if renews:
                    await told.until_connection("new token")
                else:
                    await told.until_kind("agent_end")
                    assert kinds(told.events)[-2:] == ["gap", "agent_end"]
                    assert told.connections[-1] == ""
            await driver.close()
    numbered = [event.sequence for event in told.events if event.sequence]
    assert numbered == list(range(1, len(numbered) + 1))


def _made(socket: Path) -> Path:
    socket.parent.mkdir(mode=0o700)
    return socket
