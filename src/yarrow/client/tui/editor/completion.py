"""Completion in the editor: sources from the service, candidates, and the menu that shows them."""

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from grpc import aio
from msgspec import Struct
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.layout import FormattedTextControl, Window
from prompt_toolkit.layout.dimension import Dimension
from rich.cells import cell_len, set_cell_size
from typing_extensions import override

from yarrow.client.conversation import CHAT_COMMANDS
from yarrow.client.session_descriptions import shorten_id
from yarrow.client.setting_slash_commands import PERMISSION_MODES, THINKING_LEVELS
from yarrow.client.stub import Stub
from yarrow.client.terminal_text_sanitizer import sanitize
from yarrow.v1 import agent_pb2 as pb

MAX_COMPLETIONS = 50
"""Maximum completions offered."""
COMMAND = re.compile(r"/[\w.:-]*")
_AFTER = re.compile(r"/([\w.:-]+)\s+(\S*)")
_MENTION = re.compile(r"(?:^|\s)@(\"[^\"\n]*|\S*)$")
_WORD = re.compile(r"\S+$")
MAX_MENU_ROWS = 8
"""Maximum rows of the menu; of more completions, those around the selected one are shown."""
T = TypeVar("T")
MAX_LISTED_FILES = 50


class CompletionItem(Struct, frozen=True):
    """A word and its description."""

    word: str
    help: str = ""


CompletionSource = Callable[[], Awaitable[Sequence[CompletionItem]]]


class CompletionSources(Struct, frozen=True):
    """Sources of completions. A source that fails offers none."""

    commands: CompletionSource
    files: Callable[[str], Awaitable[Sequence[str]]]
    """Returns the paths that start with a text."""
    command_arguments: Mapping[str, CompletionSource]
    """Sources for the arguments of commands, by command name."""


class InputCompleter(Completer):
    """Completes the text before the cursor."""

    def __init__(self, sources: CompletionSources) -> None:
        self._sources = sources

    @override
    def get_completions(self, document: Document, complete_event: CompleteEvent) -> list[Completion]:
        """Return none: completions take time and are requested asynchronously."""
        return []

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion]:
        """Yield the completions, the most likely first."""
        text = document.text_before_cursor
        begun, choices = await self._find_items(text, is_requested=complete_event.completion_requested)
        for choice in list(choices)[:MAX_COMPLETIONS]:
            yield Completion(
                choice.word, -len(begun), display=sanitize(choice.word), display_meta=sanitize(choice.help)
            )

    async def _find_items(self, text: str, *, is_requested: bool) -> tuple[str, Sequence[CompletionItem]]:
        """Return the text to complete and its completions."""
        if found := _MENTION.search(text):
            files = await self._find_files(found[1].removeprefix('"'))
            return found[1], [CompletionItem(f'"{one.word}"') if " " in one.word else one for one in files]
        if COMMAND.fullmatch(text):
            return text, [
                CompletionItem(f"/{one.word}", one.help)
                for one in await self._sources.commands()
                if one.word.startswith(text[1:]) or one.word.partition(":")[2].startswith(text[1:] or ":")
            ]
        if (found := _AFTER.fullmatch(text)) and (source := self._sources.command_arguments.get(found[1])):
            return found[2], [one for one in await source() if found[2].casefold() in one.word.casefold()]
        if is_requested and (found := _WORD.search(text)):
            return found[0], await self._find_files(found[0])
        return "", ()

    async def _find_files(self, prefix: str) -> Sequence[CompletionItem]:
        return [CompletionItem(path) for path in await self._sources.files(prefix)]


def completes_while_typing(text: str) -> bool:
    """Return whether a text is completed while it is typed: commands and mentioned files are."""
    return bool(COMMAND.fullmatch(text) or _MENTION.search(text))


class CompletionMenu:
    """Draws the completions of a buffer."""

    def __init__(self, buffer: Buffer) -> None:
        self._buffer = buffer
        control = FormattedTextControl(self._rows)
        self.container = Window(control, height=self._height, dont_extend_height=True)

    def _height(self) -> Dimension:
        state = self._buffer.complete_state
        return Dimension.exact(min(len(state.completions), MAX_MENU_ROWS) if state else 0)

    def _rows(self) -> StyleAndTextTuples:
        state = self._buffer.complete_state
        if state is None:
            return []
        chosen = state.complete_index
        first = max(0, min((chosen or 0) - MAX_MENU_ROWS // 2, len(state.completions) - MAX_MENU_ROWS))
        seen = state.completions[first : first + MAX_MENU_ROWS]
        width = max((cell_len(one.display_text) for one in seen), default=0)
        rows: StyleAndTextTuples = []
        for index, one in enumerate(seen, first):
            style = "reverse" if index == chosen else ""
            rows.append((style, f"  {set_cell_size(one.display_text, width)}"))
            rows.append(("class:dim", f"  {one.display_meta_text}\n"))
        return [*rows[:-1], (rows[-1][0], rows[-1][1].rstrip("\n"))] if rows else []


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
