"""Events of an agent, as frozen values.

The order within a run is `AgentStart (TurnStart MessageStart (text|thinking|call)* MessageEnd (ToolDelta* ToolOutput)*
TurnEnd)* AgentEnd`; the other kinds may occur anywhere between them. The loop publishes bodies; the bus wraps each in
an `Event` with its position in the session.
"""

from enum import StrEnum
from typing import Literal

from msgspec import Struct

from yarrow.errors import Code, Failure
from yarrow.message import StopReason, Usage


class AgentState(StrEnum):
    """Current activity of the agent."""

    IDLE = "idle"
    THINKING = "thinking"
    EXECUTING = "executing"
    COMPACTING = "compacting"
    ABORTING = "aborting"
    ERROR = "error"


class EndReason(StrEnum):
    """Reason for the end of a run."""

    COMPLETED = "completed"
    ABORTED = "aborted"
    ERROR = "error"
    TURN_LIMIT = "turn_limit"
    LOOP_DETECTED = "loop_detected"


class QueuedText(Struct, frozen=True):
    """A message that is queued, delivered or returned; `message_id` is its message id on delivery."""

    message_id: str
    text: str
    follow_up: bool = False
    typed: str = ""
    """The user's original input if the text was expanded from a command."""


class AgentStart(Struct, frozen=True):
    """A prompt was accepted; first event of a run."""

    text: str
    message_id: str
    typed: str = ""
    """The user's original input if the text was expanded from a command."""


class TurnStart(Struct, frozen=True):
    """A model turn starts; `turn` counts from 1, `delivered` are the queued messages delivered with it."""

    turn: int
    delivered: tuple[QueuedText, ...] = ()


class MessageStart(Struct, frozen=True):
    """The model's message starts."""

    message_id: str


class TextDelta(Struct, frozen=True, gc=False):
    """Part of the answer."""

    text: str


class ThinkingDelta(Struct, frozen=True, gc=False):
    """Part of the model's thinking; only sent when thinking is on."""

    text: str


class ToolCallEvent(Struct, frozen=True):
    """A complete tool call by the model; its arguments are the text of a JSON object."""

    id: str
    name: str
    arguments: str
    invalid_arguments: str = ""


class MessageEnd(Struct, frozen=True):
    """The model's message is finished and on disk; `error` is set if a failure interrupted it."""

    message_id: str
    stop_reason: StopReason | None = None
    usage: Usage | None = None
    error: Failure | None = None


class ToolDelta(Struct, frozen=True, gc=False):
    """Part of a running tool's output."""

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
    """The turn ended."""

    turn: int


class AgentEnd(Struct, frozen=True):
    """The run ended; last event of a run."""

    reason: EndReason
    usage: Usage
    error: Failure | None = None
    undelivered: tuple[QueuedText, ...] = ()


class StateChange(Struct, frozen=True):
    """The agent's state changed."""

    before: AgentState
    after: AgentState


class QueueUpdate(Struct, frozen=True):
    """The complete lists of queued messages."""

    steering: tuple[QueuedText, ...]
    follow_ups: tuple[QueuedText, ...]


CompactionReason = Literal["auto", "manual", "overflow"]


class CompactionStart(Struct, frozen=True):
    """A compaction starts."""

    reason: CompactionReason
    tokens_before: int


class CompactionEnd(Struct, frozen=True):
    """A compaction ended; with an `error`, nothing was changed."""

    tokens_after: int = 0
    summary: str = ""
    error: Failure | None = None


class UsageReport(Struct, frozen=True):
    """Token usage of a model call."""

    usage: Usage


class Notice(Struct, frozen=True):
    """A warning for the user."""

    code: str
    text: str


class RetryScheduled(Struct, frozen=True):
    """A failed model call will be retried."""

    attempt: int
    """Number of the next attempt, from 2."""
    delay: float
    """Delay in seconds before the attempt."""
    code: Code
    """Code of the failure."""
    message: str = ""
    """The failure, in one sentence."""


class ModelChanged(Struct, frozen=True):
    """A model failed, and a fallback continues the run; the next prompt starts with the session's model again."""

    provider: str
    """Provider of the model that continues."""
    model: str
    from_provider: str
    """Provider of the model that failed."""
    from_model: str
    code: Code
    """Code of the failure."""


class PermissionRequest(Struct, frozen=True):
    """A tool call waits for the user's permission; its arguments are the text of a JSON object."""

    request_id: str
    tool_call_id: str
    tool: str
    arguments: str
    reason: str
    contained: bool = False
    """True if the call would run in a sandbox."""
    outside: bool = False
    """True if the call asks to leave the session's sandbox."""
    model_reason: str = ""
    """The model's reason for the request, on one line of at most 200 characters."""
    cwd: str = ""
    """Working directory of the command."""
    rule: str = ""
    """The rule that an "always" answer adds, as the text of a JSON object."""
    rule_file: str = ""
    """The file to which the rule is added; empty if it is not saved."""


Answer = Literal["once", "session", "always", "no"]
AnsweredBy = Literal["person", "nobody", "timeout", "abort", "restart"]


class PermissionSettled(Struct, frozen=True):
    """A permission request was answered or cancelled."""

    request_id: str
    answer: Answer
    by: AnsweredBy


class Gap(Struct, frozen=True):
    """This subscriber lost the events from `first_sequence` to `last_sequence`."""

    first_sequence: int
    last_sequence: int


class Heartbeat(Struct, frozen=True):
    """Keep-alive event of a remote stream."""


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
    | ModelChanged
    | PermissionRequest
    | PermissionSettled
    | Gap
    | Heartbeat
)


# Thousands are kept, and none contains a reference cycle: exclude them from garbage collection.
class Event(Struct, frozen=True, gc=False):
    """A body with its position: `sequence` counts the session's events from 1 without gaps; 0 for Gap and Heartbeat."""

    session_id: str
    run_id: str
    sequence: int
    time: float
    """Seconds since the epoch."""
    body: Body
