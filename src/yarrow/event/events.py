"""Everything an agent tells its watchers, as frozen values.

Within a run the order is `AgentStart (TurnStart MessageStart (text|thinking|call)* MessageEnd (ToolDelta*
ToolOutput)* TurnEnd)* AgentEnd`; the other kinds lie between them. The loop publishes bodies; the bus wraps each
in an `Event` with its place in the session.
"""

from enum import StrEnum
from typing import Literal

from msgspec import Struct

from yarrow.errors import Code, Failure
from yarrow.message import StopReason, Usage


class AgentState(StrEnum):
    """What the agent is doing."""

    IDLE = "idle"
    THINKING = "thinking"
    EXECUTING = "executing"
    COMPACTING = "compacting"
    ABORTING = "aborting"
    ERROR = "error"


class EndReason(StrEnum):
    """How a run ended."""

    COMPLETED = "completed"
    ABORTED = "aborted"
    ERROR = "error"
    TURN_LIMIT = "turn_limit"
    LOOP_DETECTED = "loop_detected"


class QueuedText(Struct, frozen=True):
    """A text that waits, was delivered or was handed back; `message_id` is the message that it becomes."""

    message_id: str
    text: str
    follow_up: bool = False
    typed: str = ""
    """What was written, when that was a command of which the text was made."""


class AgentStart(Struct, frozen=True):
    """A prompt was accepted; first event of a run."""

    text: str
    message_id: str
    typed: str = ""
    """What was written, when that was a command of which the text was made."""


class TurnStart(Struct, frozen=True):
    """A model turn begins; `turn` counts from 1, `delivered` are the steers and the follow-up that came with it."""

    turn: int
    delivered: tuple[QueuedText, ...] = ()


class MessageStart(Struct, frozen=True):
    """The model's message begins."""

    message_id: str


class TextDelta(Struct, frozen=True, gc=False):
    """A piece of the answer."""

    text: str


class ThinkingDelta(Struct, frozen=True, gc=False):
    """A piece of the model's thinking; only when thinking is on."""

    text: str


class ToolCallEvent(Struct, frozen=True):
    """A tool the model wants run, whole; its arguments are the text of a JSON object."""

    id: str
    name: str
    arguments: str
    invalid_arguments: str = ""


class MessageEnd(Struct, frozen=True):
    """The model's message is finished and on disk; `error` is set when a failure cut it."""

    message_id: str
    stop_reason: StopReason | None = None
    usage: Usage | None = None
    error: Failure | None = None


class ToolDelta(Struct, frozen=True, gc=False):
    """A piece of a running tool's output."""

    tool_call_id: str
    text: str


class ToolOutput(Struct, frozen=True):
    """A tool's final output, on disk as message `message_id`."""

    tool_call_id: str
    name: str
    text: str
    message_id: str
    is_error: bool = False
    diff: str = ""


class TurnEnd(Struct, frozen=True):
    """The turn is over."""

    turn: int


class AgentEnd(Struct, frozen=True):
    """The run is over; nothing of it follows."""

    reason: EndReason
    usage: Usage
    error: Failure | None = None
    undelivered: tuple[QueuedText, ...] = ()


class StateChange(Struct, frozen=True):
    """The agent went from one state to another."""

    before: AgentState
    after: AgentState


class QueueUpdate(Struct, frozen=True):
    """The texts that wait, in full."""

    steering: tuple[QueuedText, ...]
    follow_ups: tuple[QueuedText, ...]


CompactionReason = Literal["auto", "manual", "overflow"]


class CompactionStart(Struct, frozen=True):
    """Compaction begins."""

    reason: CompactionReason
    tokens_before: int


class CompactionEnd(Struct, frozen=True):
    """Compaction ends; with an `error` nothing was changed."""

    tokens_after: int = 0
    summary: str = ""
    error: Failure | None = None


class UsageReport(Struct, frozen=True):
    """Tokens of a model call."""

    usage: Usage


class Notice(Struct, frozen=True):
    """A warning that a person should see."""

    code: str
    text: str


class RetryScheduled(Struct, frozen=True):
    """A failed model call will be tried again."""

    attempt: int
    """Which try comes next, from 2."""
    delay: float
    """Seconds until then."""
    code: Code
    """The failure's."""
    message: str = ""
    """What failed, in one sentence."""


class PermissionRequest(Struct, frozen=True):
    """A tool call waits for a person's answer; its arguments are the text of a JSON object."""

    request_id: str
    tool_call_id: str
    tool: str
    arguments: str
    reason: str
    contained: bool = False
    """Whether the call would run in a sandbox."""
    outside: bool = False
    """Whether the call asks to leave the sandbox that the session's commands run in."""
    model_reason: str = ""
    """The model's own words for why it should, on one line of at most 200 characters."""
    cwd: str = ""
    """The directory that a command would run in."""
    rule: str = ""
    """The rule that an answer for always adds, as the text of a JSON object."""
    rule_file: str = ""
    """The file that it is added to; empty when nothing is written."""


Answer = Literal["once", "session", "always", "no"]
AnsweredBy = Literal["person", "nobody", "timeout", "abort", "restart"]


class PermissionSettled(Struct, frozen=True):
    """A permission request waits no more."""

    request_id: str
    answer: Answer
    by: AnsweredBy


class Gap(Struct, frozen=True):
    """This subscriber lost the events from `first_sequence` to `last_sequence`."""

    first_sequence: int
    last_sequence: int


class Heartbeat(Struct, frozen=True):
    """A sign of life on a remote stream."""


Body = (
    AgentStart
    | TurnStart
    | MessageStart
    | TextDelta
    | ThinkingDelta
    | ToolCallEvent
    | MessageEnd
    | ToolDelta
    | ToolOutput
    | TurnEnd
    | AgentEnd
    | StateChange
    | QueueUpdate
    | CompactionStart
    | CompactionEnd
    | UsageReport
    | Notice
    | RetryScheduled
    | PermissionRequest
    | PermissionSettled
    | Gap
    | Heartbeat
)


# Thousands are kept, and none leads back to itself: no garbage is looked for in them.
class Event(Struct, frozen=True, gc=False):
    """A body with its place: `sequence` counts the session's events from 1 without a gap; 0 for Gap and Heartbeat."""

    session_id: str
    run_id: str
    sequence: int
    time: float
    """Seconds since the epoch."""
    body: Body
