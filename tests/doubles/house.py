"""A whole service over a scripted model and small tools, reached by the generated stub on an in-memory channel."""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from doubles.rig import ActTool, EchoTool
from yarrow.agent.hooks import Contributions, no_contributions
from yarrow.agent.permission_broker import PermissionConfig
from yarrow.agent.retry import Clock
from yarrow.config.settings import AllowedCall, ProviderSettings, Settings
from yarrow.provider.scripted import ScriptedProvider
from yarrow.service.provider_cache import ProviderCache
from yarrow.service.rpc_middleware import register_service
from yarrow.service.service_dependencies import Dependencies, Telemetry
from yarrow.service.servicer import Servicer
from yarrow.session.disk_access import Disk
from yarrow.session.session_manager import SessionManager
from yarrow.tool.registry import ToolRegistry
from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceStub
from yarrow.wire.channel import InMemoryChannel, Registrar

if TYPE_CHECKING:
    from yarrow.v1.agent_pb2_grpc import AgentServiceAsyncStub  # there is no such class at run time


class House:
    """One service with what a test needs to see of it."""

    def __init__(
        self,
        folder: Path,
        turns: Sequence[Sequence[dict[str, Any]]],
        *,
        added: Contributions | None = None,
        rules: dict[str, str] | None = None,
        keys: Sequence[str] = (),
        watch: Telemetry | None = None,
        **settings: Any,
    ) -> None:
        self.sessions = folder / "sessions"
        self.cwd = folder / "project"
        self.cwd.mkdir(exist_ok=True)
        self.home = folder / "home"
        self.users = self.home / ".yarrow"
        self.users.mkdir(parents=True, exist_ok=True)
        script = folder / "script.json"
        script.write_text(json.dumps(turns))
        providers = {
            "scripted": ProviderSettings(script=str(script)),
            "other": ProviderSettings("scripted", script=str(script)),
        }
        self.settings = Settings(provider="scripted", providers=providers, **settings)
        self.allowed: list[AllowedCall] = []
        """Calls that the user always allows."""
        self._always: set[AllowedCall] = set()
        added = added or no_contributions()
        self.providers = ProviderCache(self.settings, {}, added.providers)
        self.act = ActTool()
        self.parts = Dependencies(
            settings=self.settings,
            manager=SessionManager(self.sessions, sync="message", disk=Disk()),
            providers=self.providers,
            registry=ToolRegistry([EchoTool(), self.act, *added.tools]),
            now=lambda: 1_700_000_000.0,
            retry_clock=Clock(lambda _: asyncio.sleep(0), chance=lambda: 0.0),
            version="1.2.3",
            contributions=added,
            home=self.home,
            user_dir=self.users,
            key_values=lambda: keys,
            secret_values=lambda: keys,
            telemetry=watch,
            permission_config=PermissionConfig(
                rules={"act": "auto"} if rules is None else rules,
                always=self._always,
                keep=self._keep,
                forget=self._forget,
                file="/home/u/config.json",
            ),
        )
        self.servicer = Servicer(self.parts)

    async def _keep(self, call: AllowedCall) -> None:
        self.allowed.append(call)
        self._always.add(call)

    async def _forget(self, call: AllowedCall) -> None:
        self.allowed.remove(call)
        self._always.remove(call)

    async def scripted(self) -> ScriptedProvider:
        provider = (await self.providers.get("scripted", "")).provider
        assert isinstance(provider, ScriptedProvider)
        return provider

    def running(self, session_id: str) -> bool:
        """True if a run of the session is active."""
        return any(entry.id == session_id and bool(entry.agent.run_id) for entry in self.servicer._sessions._cache)  # pyright: ignore[reportPrivateUsage]

    def watched(self, session_id: str) -> bool:
        """True if a stream follows the session."""
        return any(entry.id == session_id and entry.bus.subscribers for entry in self.servicer._sessions._cache)  # pyright: ignore[reportPrivateUsage]

    async def open_gate(self, name: str) -> None:
        (await self.scripted()).gates.setdefault(name, asyncio.Event()).set()

    def prompt(self, text: str = "go", session_id: str = "", **options: Any) -> pb.PromptRequest:
        return pb.PromptRequest(
            session_id=session_id, text=text, cwd=str(self.cwd), options=pb.PromptOptions(**options)
        )


@asynccontextmanager
async def stub_of(house: House) -> AsyncGenerator["AgentServiceAsyncStub"]:
    registrar = Registrar()
    register_service(house.servicer.handlers, registrar)
    async with InMemoryChannel(registrar) as channel:
        yield AgentServiceStub(channel)
    await house.servicer.close()


async def play(stub: "AgentServiceAsyncStub", request: pb.PromptRequest) -> list[pb.AgentEvent]:
    """Prompt and return all events."""
    return [response.event async for response in stub.Prompt(request)]


async def read(call: Any) -> Any:
    """Read one response; typed loosely, since the end of a stream is a value of another type."""
    return await call.read()


def write(path: Path, text: str) -> Path:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def kinds(events: Sequence[pb.AgentEvent]) -> list[str]:
    return [str(event.WhichOneof("event")) for event in events]


def reason_of(error: grpc.aio.AioRpcError) -> str:
    """The ErrorInfo reason of a failed call."""
    from google.rpc import error_details_pb2, status_pb2

    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            status = status_pb2.Status.FromString(value if isinstance(value, bytes) else value.encode())
            info = error_details_pb2.ErrorInfo()
            assert status.details[0].Unpack(info)
            assert info.domain == "yarrow"
            return info.reason
    return ""


async def refused(doing: Awaitable[Any]) -> tuple[grpc.StatusCode, str]:
    """Return the status and the reason of a call that must fail, without a traceback."""
    try:
        await doing
    except grpc.aio.AioRpcError as failure:
        error = failure
    else:
        raise AssertionError("the call did not fail")
    assert "Traceback" not in (error.details() or "")
    return error.code(), reason_of(error)
