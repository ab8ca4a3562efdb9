"""Events that a client received, as the internal events of the grammar."""

from collections.abc import Iterable
from itertools import groupby
from typing import Any

from doubles.grammar import check_begun, check_run
from yarrow.errors import Code, Failure
from yarrow.event import events as ev
from yarrow.message import Usage
from yarrow.service.translation import ANSWERS, END_REASONS, STATES
from yarrow.v1 import agent_pb2 as pb

_OF_A_RUN = (ev.AgentStart, ev.TurnStart, ev.MessageStart, ev.TextDelta, ev.MessageEnd, ev.TurnEnd, ev.AgentEnd)
_STATE = {number: state for state, number in STATES.items()}
_REASON = {number: reason for reason, number in END_REASONS.items()}
_ANSWER: dict[int, ev.Answer] = {number: answer for answer, number in ANSWERS.items()}


def body(event: pb.AgentEvent) -> ev.Body:
    """The event's body."""
    kind = event.WhichOneof("event")
    assert kind is not None
    value: Any = getattr(event, kind)
    match kind:
        case "agent_start":
            return ev.AgentStart(value.text, value.message_id)
        case "turn_start":
            return ev.TurnStart(value.turn, _queued(value.delivered))
        case "message_start":
            return ev.MessageStart(value.message_id)
        case "text_delta":
            return ev.TextDelta(value.text)
        case "thinking_delta":
            return ev.ThinkingDelta(value.text)
        case "tool_call":
            return ev.ToolCallEvent(value.id, value.name, value.arguments_json, value.invalid_arguments)
        case "message_end":
            return ev.MessageEnd(value.message_id, error=_error(value))
        case "tool_delta":
            return ev.ToolDelta(value.tool_call_id, value.text)
        case "tool_output":
            return ev.ToolOutput(
                value.tool_call_id, value.name, value.text, value.message_id, value.is_error, value.diff
            )
        case "turn_end":
            return ev.TurnEnd(value.turn)
        case "agent_end":
            return ev.AgentEnd(_REASON[value.reason], _usage(value.usage), _error(value), _queued(value.undelivered))
        case _:
            return _side(kind, value)


def _side(kind: str, value: Any) -> ev.Body:
    match kind:
        case "state_change":
            return ev.StateChange(_STATE[getattr(value, "from")], _STATE[value.to])
        case "queue_update":
            return ev.QueueUpdate(_queued(value.steering), _queued(value.follow_ups))
        case "compaction_start":
            return ev.CompactionStart(value.reason, value.tokens_before)
        case "compaction_end":
            return ev.CompactionEnd(value.tokens_after, value.summary, _error(value))
        case "retry_scheduled":
            return ev.RetryScheduled(value.attempt, value.delay, Code(value.code), value.message)
        case "model_changed":
            return ev.ModelChanged(value.provider, value.model, value.from_provider, value.from_model, Code(value.code))
        case "usage":
            return ev.UsageReport(_usage(value))
        case "notice":
            return ev.Notice(value.code, value.text)
        case "permission_request":
            return ev.PermissionRequest(
                value.request_id, value.tool_call_id, value.tool, value.arguments_json, value.reason
            )
        case "permission_settled":
            return ev.PermissionSettled(value.request_id, _ANSWER[value.answer], value.by)
        case "gap":
            return ev.Gap(value.first_sequence, value.last_sequence)
        case "heartbeat":
            return ev.Heartbeat()
        case _:
            raise AssertionError(f"an event that nobody knows: {kind}")


def check_stream(events: Iterable[pb.AgentEvent]) -> None:
    """Assert that a stream without gaps, which may be cut anywhere, follows the grammar and counts by one.

    A run that it joined in the middle is not looked at.
    """
    told = [event for event in events if event.WhichOneof("event") != "heartbeat"]
    numbers = [event.sequence for event in told]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers))) if numbers else True, numbers
    for run_id, of_run in groupby(told, key=lambda event: event.run_id):
        bodies = [body(event) for event in of_run]
        if not run_id:
            assert not [one for one in bodies if isinstance(one, _OF_A_RUN)], bodies
        elif isinstance(bodies[0], ev.AgentStart):
            ended = any(isinstance(one, ev.AgentEnd) for one in bodies)
            (check_run if ended else check_begun)(bodies)


def _queued(texts: Iterable[pb.QueuedText]) -> tuple[ev.QueuedText, ...]:
    return tuple(ev.QueuedText(one.message_id, one.text, one.follow_up) for one in texts)


def _error(value: Any) -> Failure | None:
    error = value.error
    return Failure(Code(error.code), error.message, error.retryable) if value.HasField("error") else None


def _usage(value: pb.Usage) -> Usage:
    return Usage(value.input, value.output, value.cache_read, value.cache_write)
