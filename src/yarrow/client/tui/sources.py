"""What the editor offers as completions, asked of the service."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from grpc import aio

from yarrow.client.describe import short
from yarrow.client.settings import LEVELS, MODES
from yarrow.client.stub import Stub
from yarrow.client.table import CONVERSING
from yarrow.client.tui.commands import OWN
from yarrow.client.tui.editor.completion import Choice, Sources
from yarrow.v1 import agent_pb2 as pb

T = TypeVar("T")
LISTED_FILES = 50


def sources_of(stub: Stub, session_id: Callable[[], str], cwd: Callable[[], str]) -> Sources:
    """Return the sources for the session that is open."""
    asked = _Asked(stub, session_id, cwd)
    return Sources(
        commands=asked.commands,
        files=asked.files,
        after={
            "model": asked.models,
            "resume": asked.sessions,
            "merge": asked.sessions,
            "thinking": _fixed(LEVELS),
            "permissions": _fixed((*MODES, "list", "revoke")),
        },
    )


class _Asked:
    def __init__(self, stub: Stub, session_id: Callable[[], str], cwd: Callable[[], str]) -> None:
        self._stub = stub
        self._session_id = session_id
        self._cwd = cwd

    async def commands(self) -> Sequence[Choice]:
        listed = await _or_nothing(self._stub.ListCommands(pb.ListCommandsRequest(session_id=self._session_id())))
        found = [Choice(name, own.help) for name, own in OWN.items()]
        found += [Choice(name, command.help) for name, command in CONVERSING.items() if name not in OWN]
        found += [Choice(one.name, one.description) for one in (listed.commands if listed else ())]
        return found

    async def files(self, prefix: str) -> Sequence[str]:
        request = pb.ListFilesRequest(session_id=self._session_id(), prefix=prefix, limit=LISTED_FILES)
        listed = await _or_nothing(self._stub.ListFiles(request))
        return listed.paths if listed else ()

    async def models(self) -> Sequence[Choice]:
        listed = await _or_nothing(self._stub.ListModels(pb.ListModelsRequest()))
        return [Choice(f"{listed.provider}/{model.name}") for model in listed.models] if listed else ()

    async def sessions(self) -> Sequence[Choice]:
        request = pb.ListSessionsRequest(scope=pb.SESSION_SCOPE_PROJECT, cwd=self._cwd())
        listed = await _or_nothing(self._stub.ListSessions(request))
        return [
            Choice(short(one.session_id), " ".join((one.name or one.title).split())[:60])
            for one in (listed.sessions if listed else ())
        ]


def _fixed(words: Sequence[str]) -> Callable[[], Awaitable[Sequence[Choice]]]:
    async def choices() -> Sequence[Choice]:
        return [Choice(word) for word in words]

    return choices


async def _or_nothing(call: Awaitable[T]) -> T | None:
    """Return an answer, nothing when the service refuses: a completion that cannot be had is none."""
    try:
        return await call
    except aio.AioRpcError:
        return None
