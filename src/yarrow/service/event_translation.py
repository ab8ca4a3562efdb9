"""The events of a session to protobuf messages."""

from typing import assert_never

from yarrow.event import events as ev
from yarrow.service.translation import (
    ANSWERS,
    END_REASONS,
    STATES,
    STOP_REASONS,
    clamp_count,
    to_error,
    to_permission_request,
    to_queued,
    to_usage,
)
from yarrow.v1 import agent_pb2 as pb


def to_event(event: ev.Event) -> pb.AgentEvent:
    """Return the event as clients see it."""
    out = pb.AgentEvent()
    fill_event(out, event)
    return out


def fill_event(out: pb.AgentEvent, event: ev.Event) -> None:
    """Make an empty message the event as clients see it; inside of a response that is faster than to copy one there."""
    out.session_id, out.run_id, out.sequence = event.session_id, event.run_id, event.sequence
    time = out.time
    time.seconds, thousandths = divmod(int(event.time * 1000), 1000)
    time.nanos = thousandths * 1_000_000
    _fill_body(out, event.body)


def _fill_body(out: pb.AgentEvent, body: ev.Body) -> None:
    # Setting a field of a kind that has none set would leave the kind out, hence SetInParent.
    match body:
        case ev.TextDelta(text):
            out.text_delta.text = text
        case ev.ThinkingDelta(text):
            out.thinking_delta.text = text
        case ev.ToolDelta(call, text):
            out.tool_delta.CopyFrom(pb.ToolDelta(tool_call_id=call, text=text))
        case ev.ToolCallEvent(call, name, arguments, invalid):
            out.tool_call.CopyFrom(pb.ToolCall(id=call, name=name, arguments_json=arguments, invalid_arguments=invalid))
        case ev.ToolOutput():
            out.tool_output.CopyFrom(_tool_output(body))
        case ev.AgentStart(text, message_id, typed):
            out.agent_start.CopyFrom(pb.AgentStart(text=text, message_id=message_id, typed=typed))
        case ev.TurnStart(turn, delivered):
            out.turn_start.CopyFrom(pb.TurnStart(turn=turn, delivered=to_queued(delivered)))
        case ev.MessageStart(message_id):
            out.message_start.CopyFrom(pb.MessageStart(message_id=message_id))
        case ev.MessageEnd():
            out.message_end.CopyFrom(_message_end(body))
        case ev.TurnEnd(turn):
            out.turn_end.turn = turn
        case ev.AgentEnd():
            out.agent_end.CopyFrom(_agent_end(body))
        case ev.RetryScheduled(attempt, delay, code, message):
            scheduled = pb.RetryScheduled(attempt=attempt, delay=delay, code=code, message=message)
            out.retry_scheduled.CopyFrom(scheduled)
        case ev.CompactionStart() | ev.CompactionEnd():
            _fill_compaction(out, body)
        case ev.PermissionRequest():
            out.permission_request.CopyFrom(to_permission_request(body))
        case ev.PermissionSettled(request_id, answer, by):
            settled = pb.PermissionSettled(request_id=request_id, answer=ANSWERS[answer], by=by)
            out.permission_settled.CopyFrom(settled)
        case ev.StateChange() | ev.QueueUpdate() | ev.UsageReport() | ev.Notice() | ev.Gap() | ev.Heartbeat():
            _fill_status(out, body)
        case _:
            assert_never(body)


def _fill_compaction(out: pb.AgentEvent, body: ev.CompactionStart | ev.CompactionEnd) -> None:
    match body:
        case ev.CompactionStart(reason, before):
            out.compaction_start.CopyFrom(pb.CompactionStart(reason=reason, tokens_before=clamp_count(before)))
        case ev.CompactionEnd(after, summary, error):
            failed = None if error is None else to_error(error)
            out.compaction_end.CopyFrom(
                pb.CompactionEnd(tokens_after=clamp_count(after), summary=summary, error=failed)
            )
        case _:
            assert_never(body)


def _fill_status(
    out: pb.AgentEvent, body: ev.StateChange | ev.QueueUpdate | ev.UsageReport | ev.Notice | ev.Gap | ev.Heartbeat
) -> None:
    match body:
        case ev.StateChange(before, after):
            # `from` is a word of Python, so the field is set by name.
            out.state_change.CopyFrom(pb.StateChange(**{"from": STATES[before]}, to=STATES[after]))
        case ev.QueueUpdate(steering, follow_ups):
            out.queue_update.CopyFrom(pb.QueueUpdate(steering=to_queued(steering), follow_ups=to_queued(follow_ups)))
        case ev.UsageReport(usage):
            out.usage.CopyFrom(to_usage(usage))
        case ev.Notice(code, text):
            out.notice.CopyFrom(pb.Notice(code=code, text=text))
        case ev.Gap(first, last):
            out.gap.CopyFrom(pb.Gap(first_sequence=first, last_sequence=last))
        case ev.Heartbeat():
            out.heartbeat.SetInParent()
        case _:
            assert_never(body)


def _tool_output(body: ev.ToolOutput) -> pb.ToolOutput:
    return pb.ToolOutput(
        tool_call_id=body.tool_call_id,
        name=body.name,
        text=body.text,
        is_error=body.is_error,
        diff=body.diff,
        message_id=body.message_id,
    )


def _message_end(body: ev.MessageEnd) -> pb.MessageEnd:
    return pb.MessageEnd(
        message_id=body.message_id,
        stop_reason=pb.STOP_REASON_UNSPECIFIED if body.stop_reason is None else STOP_REASONS[body.stop_reason],
        usage=None if body.usage is None else to_usage(body.usage),
        error=None if body.error is None else to_error(body.error),
    )


def _agent_end(body: ev.AgentEnd) -> pb.AgentEnd:
    return pb.AgentEnd(
        reason=END_REASONS[body.reason],
        error=None if body.error is None else to_error(body.error),
        usage=to_usage(body.usage),
        undelivered=to_queued(body.undelivered),
    )
