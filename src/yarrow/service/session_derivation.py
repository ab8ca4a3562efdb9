"""Sessions from others: branch, fork, rebase, merge and import; and their export."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from msgspec import UNSET

from yarrow.agent.compaction.compact import summarize_with
from yarrow.agent.compaction.summary import SummaryModel, summarize_messages, write_merge_turn
from yarrow.agent.model_context import context_of
from yarrow.agent.retry import RetryPolicy
from yarrow.errors import Code, InvalidArgument, LimitExceeded, Precondition, YarrowError
from yarrow.event.events import Body
from yarrow.message import Message, Role, StopReason, Text, Usage
from yarrow.prompt.system_prompt import DATE_LINE, DIRECTORY_LINE, TOOLS_LINE, build_system_prompt, read_prompt_sources
from yarrow.service.loaded_session import LoadedSession
from yarrow.service.request_fields import parse_cwd
from yarrow.service.service_dependencies import Dependencies
from yarrow.service.sessions import Sessions
from yarrow.session import derived_sessions
from yarrow.session.export_import import MAX_IMPORT_BYTES, ImportSpool, export_lines
from yarrow.session.ids import format_timestamp, is_valid_id, new_id
from yarrow.session.record import Change
from yarrow.session.session_draft import SessionDraft
from yarrow.session.session_file_reader import StoredSession
from yarrow.session.state import SessionState, fold_records
from yarrow.v1 import agent_pb2 as pb

MAX_SHOWN_CHARACTERS = 4_000
"""Maximum characters of a system prompt in the response to an import; the rest is truncated."""
CHUNK_BYTES = 256 * 1024
"""Bytes of one item of an export, or slightly more; a longer line is split into several."""
_PATH = r"~?/[^\s/]*(?:/[^\s/]*)*|~"
"""Pattern of a directory without blanks: words in its place could be read as a sentence."""


class SessionLineage:
    """Factory of sessions from other sessions. The source may be running: its saved state is used."""

    def __init__(self, dependencies: Dependencies, sessions: Sessions) -> None:
        self._dependencies = dependencies
        self._sessions = sessions

    async def branch(self, session_id: str, index: int | None) -> str:
        """Return the id of a child with the history up to a message. Raises `InvalidArgument` and `NotFound`."""
        source = await self._load(session_id)
        return await self._save(lambda: derived_sessions.branch(source, index, new_id=new_id(), timestamp=self._now()))

    async def fork(self, session_id: str) -> str:
        """Return the id of a detached copy. Raises `NotFound`."""
        source = await self._load(session_id)
        return await self._save(lambda: derived_sessions.fork(source, new_id=new_id(), timestamp=self._now()))

    async def rebase(self, session_id: str, indices: Sequence[int], *, squash: bool) -> tuple[str, tuple[int, ...]]:
        """Return the id of a child with the chosen messages, and the indices of the messages that they required.

        With `squash`, a model summarizes the rest. Raises `InvalidArgument`, `NotFound`, and the errors of a model
        call; then no session is created.
        """
        source = await self._load(session_id)
        left_out = await asyncio.to_thread(derived_sessions.find_omitted_messages, source, indices)
        summary = None
        if squash and left_out:
            summary_model = await self._summary_model(await self._get_entry(session_id))
            with self._sessions.background_write():
                summary = await summarize_messages(left_out, summary_model, purpose="squash")
        made = await asyncio.to_thread(
            derived_sessions.rebase, source, indices, new_id=new_id(), timestamp=self._now(), summary=summary
        )
        return await self._save(lambda: made.draft), made.added

    async def merge(self, session_id: str, other_id: str, *, summary: bool) -> str:
        """Return the id of a child with both sessions and a turn, written by a model, that joins them.

        Raises `InvalidArgument`, `NotFound`, and the errors of a model call; then no session is created.
        """
        entry = await self._get_entry(session_id)
        current = await self._load(session_id)
        other = await self._load(await self._dependencies.manager.resolve(other_id))
        new_messages = await asyncio.to_thread(derived_sessions.find_new_messages, current, other)
        summary_model = await self._summary_model(entry)
        state = fold_records(SessionState(current.header), (stored.value for stored in current.records))
        with self._sessions.background_write():
            short = None
            if summary:
                short = await summarize_messages(new_messages, summary_model, purpose="summary")
            text = await write_merge_turn(context_of(state).sent().messages, new_messages, summary_model)
        synthesis = self._make_synthesis(other, text, entry)
        return await self._save(
            lambda: derived_sessions.merge(current, other, new_id=new_id(), synthesis=synthesis, summary=short)
        )

    async def import_session(self, incoming: ImportSpool, cwd: Path) -> pb.ImportSessionResponse:
        """Save an imported session, and return its id with facts for the user.

        Raises `InvalidArgument` for an invalid session, and `StorageError`.
        """
        loaded = await asyncio.to_thread(incoming.finish)
        made = await self._save(
            lambda: derived_sessions.import_copy(loaded, new_id=new_id(), cwd=str(cwd), timestamp=self._now())
        )
        prompt = await find_foreign_prompt(loaded, cwd, self._dependencies)
        return pb.ImportSessionResponse(
            session_id=made,
            skipped_lines=loaded.report.skipped_count,
            system_prompt=self._sessions.redactors.for_keys().redact_text(prompt)[:MAX_SHOWN_CHARACTERS],
            system_prompt_characters=len(prompt),
        )

    async def _save(self, make: Callable[[], SessionDraft]) -> str:
        draft = await asyncio.to_thread(make)
        await self._dependencies.manager.create_from(draft, self._sessions.redactors.for_keys())
        return draft.header.id

    async def _get_entry(self, session_id: str) -> LoadedSession:
        return await self._sessions.get_or_load(session_id)

    async def _load(self, session_id: str) -> StoredSession:
        """Read a session. Raises `NotFound`, and `Precondition` for one without a file."""
        entry = await self._get_entry(session_id)
        if entry.is_ephemeral:
            raise Precondition(f"session {session_id} is not saved, so no session can be created from it")
        return await self._dependencies.manager.load(session_id)

    async def _summary_model(self, entry: LoadedSession) -> SummaryModel:
        resources = await self._sessions.prepare_resources(entry)
        settings, info = resources.settings, resources.info
        retries = partial(RetryPolicy, settings.retry, self._dependencies.retry_clock, _ignore_event)
        # No run is going on: these notices are events of the session whose messages are summarized.
        hook_runner = entry.agent.make_hook_runner(resources.hooks)
        summarize = summarize_with(resources.provider, _ignore_usage, retries, before=hook_runner.before_request)
        return SummaryModel(settings.model, info.context_window, summarize)

    def _make_synthesis(self, other: StoredSession, text: str, entry: LoadedSession) -> tuple[Message, Message]:
        header, now = entry.state.header, self._now()
        name = other.header.name or other.header.id
        asked = f"Another session, {name}, was merged in. Summarize how the two relate."
        question = Message(id=new_id(), role=Role.USER, content=(Text(asked),), timestamp=now)
        answer = Message(
            id=new_id(),
            role=Role.ASSISTANT,
            content=(Text(text),),
            timestamp=now,
            stop_reason=StopReason.END_TURN,
            provider=header.provider,
            model=header.model,
        )
        return question, answer

    def _now(self) -> str:
        return format_timestamp(self._dependencies.now())


def _ignore_event(_body: Body) -> None:
    """No retry events here: the RPC is unary."""


def _ignore_usage(_usage: Usage) -> None:
    """Usage of this call is not attributed to a session: the new one does not exist yet."""


async def find_foreign_prompt(loaded: StoredSession, cwd: Path, dependencies: Dependencies) -> str:
    """Return the system prompt of an imported session; empty if a session here has the same.

    Differences in working directory, date and omitted tools are ignored, and the prompt may be that of the exported
    session, if it still exists here.
    """
    brought = _current_prompt(loaded)
    if not brought or brought in await asyncio.to_thread(_equivalent_prompts, brought, cwd, dependencies):
        return ""
    return "" if brought == await _original_prompt(loaded.header.id, dependencies) else brought


def _current_prompt(loaded: StoredSession) -> str:
    prompts = [loaded.header.system_prompt]
    changes = (stored.value for stored in loaded.records if isinstance(stored.value, Change))
    prompts += [change.system_prompt for change in changes if change.system_prompt is not UNSET]
    return prompts[-1]


def _equivalent_prompts(brought: str, cwd: Path, dependencies: Dependencies) -> tuple[str, ...]:
    """Return the prompts that a session of `cwd` could have with the directory, date and tools of another prompt."""
    facts = re.search(
        rf"^{DIRECTORY_LINE}(?:{_PATH}|{re.escape(str(cwd))})\n{DATE_LINE}\d{{4}}-\d\d-\d\d"
        rf"(?:\n{TOOLS_LINE}(?P<tools>[\w, -]+))?$",
        brought,
        re.MULTILINE,
    )
    if facts is None or not {*(facts["tools"] or "").split(", ")} <= {"", *dependencies.registry.names()}:
        return ()
    gathered = read_prompt_sources(dependencies.prompt_places(cwd))
    return tuple(build_system_prompt(facts.group(), one) for one in (gathered, None))


async def _original_prompt(session_id: str, dependencies: Dependencies) -> str | None:
    """Return the prompt of the exported session; None if that session does not exist here."""
    try:
        if is_valid_id(session_id) and await dependencies.manager.find(session_id) is not None:
            return _current_prompt(await dependencies.manager.load(session_id))
    except YarrowError:  # it is no longer readable
        pass
    return None


class SessionTransfer:
    """Exporter and importer of sessions."""

    def __init__(self, dependencies: Dependencies, sessions: Sessions, lineage: SessionLineage) -> None:
        self._dependencies = dependencies
        self._sessions = sessions
        self._lineage = lineage

    async def export_chunks(self, session_id: str, export_format: int) -> AsyncGenerator[bytes]:
        """Yield the bytes of an export. Raises `NotFound`, `InvalidArgument` and `StorageError`."""
        entry = await self._sessions.get_or_load(session_id)
        if entry.is_ephemeral:
            raise Precondition(f"session {session_id} is not saved, so it cannot be exported")
        loaded = await self._dependencies.manager.load(session_id)
        match export_format:
            case pb.EXPORT_FORMAT_UNSPECIFIED | pb.EXPORT_FORMAT_JSONL:
                pieces = export_lines(
                    loaded,
                    self._dependencies.manager.blob_reader(session_id),
                    secrets=self._dependencies.secret_values(),
                )
            case pb.EXPORT_FORMAT_HTML:
                pieces = await self._render_page(loaded)
            case _:
                raise InvalidArgument("format", f"{export_format} is not an export format")
        while chunk := await asyncio.to_thread(_read_chunk, pieces):
            for start in range(0, len(chunk), CHUNK_BYTES):
                yield chunk[start : start + CHUNK_BYTES]

    async def _render_page(self, loaded: StoredSession) -> Iterator[bytes]:
        # Imported lazily: a page needs libraries that nothing else does.
        from yarrow.session.html.page import find_related_sessions, render_page

        rows = find_related_sessions(loaded, await self._dependencies.manager.list_heads(loaded.header.cwd))
        return (
            piece.encode() for piece in render_page(loaded, relatives=rows, secrets=self._dependencies.secret_values())
        )

    async def import_session(self, requests: AsyncIterator[pb.ImportSessionRequest]) -> pb.ImportSessionResponse:
        """Create a session from a stream of pieces, and return facts about it for the user.

        Raises `InvalidArgument` for an invalid session, and for a stream of another length than announced: a client
        that disconnects ends it like one that is done. Raises `LimitExceeded` and `StorageError`.
        """
        first = await anext(requests, None)
        if first is None:
            raise InvalidArgument("chunk", "no data was sent")
        cwd = parse_cwd(first.cwd)
        if first.size > MAX_IMPORT_BYTES:
            raise LimitExceeded(f"size: {first.size} bytes exceed the limit of {MAX_IMPORT_BYTES}", code=Code.TOO_LARGE)
        root = await self._dependencies.manager.make_root()
        with ImportSpool(root) as incoming:
            received = 0
            request: pb.ImportSessionRequest | None = first
            while request is not None:
                received += len(request.chunk)
                await asyncio.to_thread(incoming.feed, request.chunk)
                request = await anext(requests, None)
            if first.size and received != first.size:
                raise InvalidArgument(
                    "chunk", f"the stream ended after {received} of {first.size} bytes: send it again"
                )
            return await self._lineage.import_session(incoming, cwd)


def _read_chunk(pieces: Iterator[bytes]) -> bytes:
    """Return the next pieces, together at least `CHUNK_BYTES` bytes except at the end; empty when there are no more."""
    taken: list[bytes] = []
    size = 0
    for piece in pieces:
        taken.append(piece)
        size += len(piece)
        if size >= CHUNK_BYTES:
            break
    return b"".join(taken)
