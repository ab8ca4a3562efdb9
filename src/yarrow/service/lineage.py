"""Sessions made of sessions: branches, forks, rebases, merges and imports, as files that appear whole or not at all."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from yarrow.agent.compaction.compact import summarize_with
from yarrow.agent.context import context_of
from yarrow.agent.retry import RetryPolicy
from yarrow.agent.summarizer import SummaryModel, summarize_messages, write_merge_turn
from yarrow.errors import Precondition
from yarrow.event.events import Body
from yarrow.message import Message, Role, StopReason, Text, Usage
from yarrow.service.entry import Entry
from yarrow.service.imported_prompt import SHOWN_CHARACTERS, foreign_prompt
from yarrow.service.parts import Parts
from yarrow.service.sessions import Sessions
from yarrow.session import lineage
from yarrow.session.draft import Draft
from yarrow.session.ids import new_id, timestamp
from yarrow.session.reader import Loaded
from yarrow.session.state import SessionState, fold
from yarrow.session.transfer import Incoming
from yarrow.v1 import agent_pb2 as pb


class Lineage:
    """Makes sessions of others. The source may be running: what is on the disk is taken."""

    def __init__(self, parts: Parts, sessions: Sessions) -> None:
        self._parts = parts
        self._sessions = sessions

    async def branch(self, session_id: str, index: int | None) -> str:
        """Return the id of a child with the history up to a message. Raises `InvalidArgument` and `NotFound`."""
        source = await self._load(session_id)
        return await self._keep(lambda: lineage.branch(source, index, new_id=new_id(), timestamp=self._now()))

    async def fork(self, session_id: str) -> str:
        """Return the id of a detached copy. Raises `NotFound`."""
        source = await self._load(session_id)
        return await self._keep(lambda: lineage.fork(source, new_id=new_id(), timestamp=self._now()))

    async def rebase(self, session_id: str, indices: Sequence[int], *, squash: bool) -> tuple[str, tuple[int, ...]]:
        """Return the id of a child of chosen messages, and the indices that had to come along with them.

        With `squash` a model sums up the rest. Raises `InvalidArgument`, `NotFound`, and what a model call raises;
        then nothing is made.
        """
        source = await self._load(session_id)
        left_out = await asyncio.to_thread(lineage.left_out, source, indices)
        summary = None
        if squash and left_out:
            scribe = await self._scribe(await self._entry(session_id))
            with self._sessions.writing():
                summary = await summarize_messages(left_out, scribe)
        made = await asyncio.to_thread(
            lineage.rebase, source, indices, new_id=new_id(), timestamp=self._now(), summary=summary
        )
        return await self._keep(lambda: made.draft), made.added

    async def merge(self, session_id: str, other_id: str, *, summary: bool) -> str:
        """Return the id of a child that holds both sessions and a turn, written by a model, that joins them.

        Raises `InvalidArgument`, `NotFound`, and what a model call raises; then nothing is made.
        """
        entry = await self._entry(session_id)
        current = await self._load(session_id)
        other = await self._load(await self._parts.manager.resolve(other_id))
        news = await asyncio.to_thread(lineage.since_common_ancestor, current, other)
        scribe = await self._scribe(entry)
        state = fold(SessionState(current.header), (stored.value for stored in current.records))
        with self._sessions.writing():
            short = await summarize_messages(news, scribe) if summary else None
            text = await write_merge_turn(context_of(state).sent().messages, news, scribe)
        synthesis = self._synthesis(other, text, entry)
        return await self._keep(
            lambda: lineage.merge(current, other, new_id=new_id(), synthesis=synthesis, condensed=short)
        )

    async def take_in(self, incoming: Incoming, cwd: Path) -> pb.ImportSessionResponse:
        """Make an imported session, and return its id with what a person should know of it.

        Raises `InvalidArgument` for what is no session, and `StorageError`.
        """
        loaded = await asyncio.to_thread(incoming.finish)
        made = await self._keep(lambda: lineage.imported(loaded, new_id=new_id(), cwd=str(cwd), timestamp=self._now()))
        prompt = await foreign_prompt(loaded, cwd, self._parts)
        return pb.ImportSessionResponse(
            session_id=made,
            skipped_lines=loaded.report.skipped_count,
            system_prompt=self._sessions.redactors.keys().text(prompt)[:SHOWN_CHARACTERS],
            system_prompt_characters=len(prompt),
        )

    async def _keep(self, make: Callable[[], Draft]) -> str:
        draft = await asyncio.to_thread(make)
        await self._parts.manager.create_from(draft, self._sessions.redactors.keys())
        return draft.header.id

    async def _entry(self, session_id: str) -> Entry:
        return await self._sessions.get_or_load(session_id)

    async def _load(self, session_id: str) -> Loaded:
        """Read a session. Raises `NotFound`, and `Precondition` for one that is not kept on disk."""
        entry = await self._entry(session_id)
        if entry.ephemeral:
            raise Precondition(f"session {session_id} is not kept on disk, so nothing can be made of it")
        return await self._parts.manager.load(session_id)

    async def _scribe(self, entry: Entry) -> SummaryModel:
        equipment = await self._sessions.equip(entry)
        settings, info = equipment.settings, equipment.info
        retries = partial(RetryPolicy, settings.retry, self._parts.pause, _untold)
        return SummaryModel(
            settings.model, info.context_window, summarize_with(equipment.provider, _uncounted, retries)
        )

    def _synthesis(self, other: Loaded, text: str, entry: Entry) -> tuple[Message, Message]:
        header, now = entry.state.header, self._now()
        name = other.header.name or other.header.id
        asked = f"The session {name} was merged into this one. How do both fit together?"
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
        return timestamp(self._parts.now())


def _untold(_body: Body) -> None:
    """What is waited for is told to nobody: the call that makes a session answers once."""


def _uncounted(_usage: Usage) -> None:
    """A text that makes a session is counted in none: the one it would belong to is not there yet."""
