"""What a person sees of a session: entries, each an ordered list of text, thinking, tool calls and notes."""

from typing import Literal

from msgspec import Struct

CallState = Literal["waiting", "running", "asked", "done", "failed"]
NoteKind = Literal["notice", "retry", "error", "compaction", "command", "allowed", "denied"]


class TextItem(Struct, frozen=True):
    """Text of a person or of the model."""

    text: str
    done: bool = True


class ThinkingItem(Struct, frozen=True):
    """Thinking of the model."""

    text: str
    done: bool = True


class CallItem(Struct, frozen=True):
    """A tool call and what came of it."""

    id: str
    name: str
    arguments_json: str = ""
    invalid: str = ""
    """The arguments as they came, when they were no JSON object."""
    state: CallState = "waiting"
    tail: str = ""
    """The end of what a running tool has put out."""
    output: str = ""
    diff: str = ""

    @property
    def done(self) -> bool:
        """Whether it was answered."""
        return self.state in {"done", "failed"}


class NoteItem(Struct, frozen=True):
    """What a person should know besides."""

    kind: NoteKind
    text: str
    done: bool = True


Item = TextItem | ThinkingItem | CallItem | NoteItem


class HistoryEntry(Struct, frozen=True):
    """What one side said, in the order in which it came."""

    key: str
    """The id of its message; empty when it has none."""
    role: Literal["user", "assistant", "note"]
    items: tuple[Item, ...] = ()


class SessionHistory(Struct, frozen=True):
    """All entries. Only the open one grows, so that an event costs the same however many there are."""

    closed: tuple[HistoryEntry, ...] = ()
    open: HistoryEntry | None = None
    held: tuple[NoteItem, ...] = ()
    """Notes that came while a text was written: they are printed between two of its blocks, at the latest below it."""
