"""Model-written summaries of whole conversations, for rebase and merge."""

from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from yarrow.agent.compaction.compact import MAX_PIECES, Summarize
from yarrow.agent.compaction.summary import (
    FULL_PROMPT,
    SummarySpec,
    drop_middle,
    input_budget,
    render_message,
    request,
    strip_marker,
    take_chunk,
    truncate,
    truncate_to_budget,
)
from yarrow.message import Message

MOST = 2000
"""Maximum tokens of a summary; at most a quarter of the window."""
MERGE = """\
Two lines of work are being merged. Both conversations follow, the current one first. Write how to continue from both: \
what each achieved, what they agree on, where they contradict each other, what must be decided, and the next steps. \
Short points, exact paths and names."""
PRESENT, OTHER = "[The current session]", "[The session being merged in]"


class SummaryModel(Struct, frozen=True):
    """The model that writes the summary."""

    model: str
    window: int
    """Context window in tokens; 0 if unknown."""
    summarise: Summarize

    def wanted(self, task: str) -> SummarySpec:
        """Return the summary specification for a task."""
        return SummarySpec(self.model, self.window, min(MOST, self.window // 4) if self.window else MOST, task)


async def summarize_messages(messages: Sequence[Message], scribe: SummaryModel) -> str:
    """Return notes on the messages, written in several requests if they do not fit in one.

    Raises what `scribe.summarise` raises.
    """
    wanted = scribe.wanted(FULL_PROMPT)
    left = deque(_entries(messages, input_budget(wanted, ""), limit=bool(wanted.window), pieces=MAX_PIECES))
    notes = ""
    while left:
        notes = truncate(wanted, notes)
        piece = take_chunk(left, input_budget(wanted, notes) if wanted.window else None)
        notes = await _ask(scribe, wanted, piece, notes=notes)
    return notes


async def write_merge_turn(present: Sequence[Message], other: Sequence[Message], scribe: SummaryModel) -> str:
    """Return a text on how two sessions continue as one; each gets half of the request. Raises as above."""
    wanted = scribe.wanted(MERGE)
    half = input_budget(wanted, "") // 2
    parts: list[str] = []
    for label, messages in ((PRESENT, present), (OTHER, other)):
        parts += [label, *_entries(messages, half, limit=bool(wanted.window), pieces=1)]
    return await _ask(scribe, wanted, "\n".join(parts), notes="")


def _entries(messages: Sequence[Message], space: int, *, limit: bool, pieces: int) -> list[str]:
    entries = [entry for entry in map(render_message, messages) if entry] or ["(nothing)"]
    if not limit:
        return entries
    return drop_middle(
        [truncate_to_budget(entry, min(space, space * pieces // 4)) for entry in entries], space * pieces
    )


async def _ask(scribe: SummaryModel, wanted: SummarySpec, conversation: str, *, notes: str) -> str:
    return strip_marker((await scribe.summarise(request(wanted, conversation, notes))).text)
