"""Texts that a model writes about whole conversations: what a rebase left out, and how two sessions fit together."""

from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from yarrow.agent.compaction.asking import WHOLE, Wanted, request, room, take_piece, within
from yarrow.agent.compaction.compact import MAX_PIECES, Summarise
from yarrow.agent.compaction.summary import written
from yarrow.agent.compaction.transcript import fitted, thinned, told
from yarrow.message import Message

MOST = 2000
"""Tokens of a text, and at most a quarter of the window."""
MERGE = """\
Two lines of work are joined into one. What was said in each of them follows, the present one first. Write how to go \
on with both in mind: what each of them reached, what they agree on, where they contradict each other and what is to \
be decided, and the next steps. Short points, exact paths and names."""
PRESENT, OTHER = "[The present session]", "[The session that is brought in]"


class Scribe(Struct, frozen=True):
    """The model that writes."""

    model: str
    window: int
    """In tokens; 0 is unknown."""
    summarise: Summarise

    def wanted(self, task: str) -> Wanted:
        """Return what is asked for."""
        return Wanted(self.model, self.window, min(MOST, self.window // 4) if self.window else MOST, task)


async def condensed(messages: Sequence[Message], scribe: Scribe) -> str:
    """Return notes of messages, written in pieces where they do not fit at once.

    Raises what `scribe.summarise` raises.
    """
    wanted = scribe.wanted(WHOLE)
    left = deque(_entries(messages, room(wanted, ""), limit=bool(wanted.window), pieces=MAX_PIECES))
    notes = ""
    while left:
        notes = within(wanted, notes)
        piece = take_piece(left, room(wanted, notes) if wanted.window else None)
        notes = await _ask(scribe, wanted, piece, notes=notes)
    return notes


async def joined(present: Sequence[Message], other: Sequence[Message], scribe: Scribe) -> str:
    """Return how two sessions go on as one; each may take half of what one request has room for. Raises as above."""
    wanted = scribe.wanted(MERGE)
    half = room(wanted, "") // 2
    parts: list[str] = []
    for label, messages in ((PRESENT, present), (OTHER, other)):
        parts += [label, *_entries(messages, half, limit=bool(wanted.window), pieces=1)]
    return await _ask(scribe, wanted, "\n".join(parts), notes="")


def _entries(messages: Sequence[Message], space: int, *, limit: bool, pieces: int) -> list[str]:
    entries = [entry for entry in map(told, messages) if entry] or ["(nothing)"]
    if not limit:
        return entries
    return thinned([fitted(entry, min(space, space * pieces // 4)) for entry in entries], space * pieces)


async def _ask(scribe: Scribe, wanted: Wanted, conversation: str, *, notes: str) -> str:
    return written((await scribe.summarise(request(wanted, conversation, notes))).text)
