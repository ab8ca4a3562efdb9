"""Completions for the editor, requested from the service."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from grpc import aio

from yarrow.client.conversation import CHAT_COMMANDS
from yarrow.client.session_format import shorten_id
from yarrow.client.setting_commands import PERMISSION_MODES, THINKING_LEVELS
from yarrow.client.stub import Stub
from yarrow.client.tui.editor.completion import CompletionItem, CompletionSources
from yarrow.v1 import agent_pb2 as pb

T = TypeVar("T")
MAX_LISTED_FILES = 50


def make_sources(stub: Stub, session_id: Callable[[], str], cwd: Callable[[], str]) -> CompletionSources:
    """Return the sources for the open session."""
    sources = _ServiceSources(stub, session_id, cwd)
    return CompletionSources(
        commands=sources.commands,
        files=sources.files,
        command_arguments={
            "model": sources.models,
            "resume": sources.sessions,
            "merge": sources.sessions,
            "thinking": _make_fixed_source(THINKING_LEVELS),
            "permissions": _make_fixed_source((*PERMISSION_MODES, "list", "revoke")),
        },
    )


class _ServiceSources:
    def __init__(self, stub: Stub, session_id: Callable[[], str], cwd: Callable[[], str]) -> None:
        self._stub = stub
        self._session_id = session_id
        self._cwd = cwd

    async def commands(self) -> Sequence[CompletionItem]:
        listed = await _none_if_refused(self._stub.ListCommands(pb.ListCommandsRequest(session_id=self._session_id())))
        found = [CompletionItem(name, command.wording(has_screen=True).help) for name, command in CHAT_COMMANDS.items()]
        found += [CompletionItem(one.name, one.description) for one in (listed.commands if listed else ())]
        return found

    async def files(self, prefix: str) -> Sequence[str]:
        request = pb.ListFilesRequest(session_id=self._session_id(), prefix=prefix, limit=MAX_LISTED_FILES)
        listed = await _none_if_refused(self._stub.ListFiles(request))
        return listed.paths if listed else ()

    async def models(self) -> Sequence[CompletionItem]:
        listed = await _none_if_refused(self._stub.ListModels(pb.ListModelsRequest()))
        return [CompletionItem(f"{listed.provider}/{model.name}") for model in listed.models] if listed else ()

    async def sessions(self) -> Sequence[CompletionItem]:
        request = pb.ListSessionsRequest(scope=pb.SESSION_SCOPE_PROJECT, cwd=self._cwd())
        listed = await _none_if_refused(self._stub.ListSessions(request))
        return [
            CompletionItem(shorten_id(one.session_id), " ".join((one.name or one.title).split())[:60])
            for one in (listed.sessions if listed else ())
        ]


def _make_fixed_source(words: Sequence[str]) -> Callable[[], Awaitable[Sequence[CompletionItem]]]:
    async def choices() -> Sequence[CompletionItem]:
        return [CompletionItem(word) for word in words]

    return choices


async def _none_if_refused(call: Awaitable[T]) -> T | None:
    """Return the answer of a call, or None if the service refuses: a failed source offers no completions."""
    try:
        return await call
    except aio.AioRpcError:
        return None
