"""Conversion between internal values and protobuf messages."""

import base64
from collections.abc import Iterable
from typing import assert_never

from google.protobuf.timestamp_pb2 import Timestamp

from yarrow.config.settings import CompactionSettings, PermissionMode
from yarrow.errors import Failure
from yarrow.event import events as ev
from yarrow.message import (
    Block,
    Image,
    Message,
    Opaque,
    Role,
    StopReason,
    Text,
    Thinking,
    ThinkingLevel,
    ToolCall,
    Usage,
)
from yarrow.session.ids import milliseconds
from yarrow.v1 import agent_pb2 as pb

STATES = {
    ev.AgentState.IDLE: pb.AGENT_STATE_IDLE,
    ev.AgentState.THINKING: pb.AGENT_STATE_THINKING,
    ev.AgentState.EXECUTING: pb.AGENT_STATE_EXECUTING,
    ev.AgentState.COMPACTING: pb.AGENT_STATE_COMPACTING,
    ev.AgentState.ABORTING: pb.AGENT_STATE_ABORTING,
    ev.AgentState.ERROR: pb.AGENT_STATE_ERROR,
}
END_REASONS = {
    ev.EndReason.COMPLETED: pb.END_REASON_COMPLETED,
    ev.EndReason.ABORTED: pb.END_REASON_ABORTED,
    ev.EndReason.ERROR: pb.END_REASON_ERROR,
    ev.EndReason.TURN_LIMIT: pb.END_REASON_TURN_LIMIT,
    ev.EndReason.LOOP_DETECTED: pb.END_REASON_LOOP_DETECTED,
}
STOP_REASONS = {
    StopReason.END_TURN: pb.STOP_REASON_END_TURN,
    StopReason.TOOL_USE: pb.STOP_REASON_TOOL_USE,
    StopReason.MAX_TOKENS: pb.STOP_REASON_MAX_TOKENS,
    StopReason.STOP_SEQUENCE: pb.STOP_REASON_STOP_SEQUENCE,
    StopReason.CONTENT_FILTER: pb.STOP_REASON_CONTENT_FILTER,
    StopReason.CONTEXT_WINDOW: pb.STOP_REASON_CONTEXT_WINDOW,
    StopReason.PAUSE: pb.STOP_REASON_PAUSE,
    StopReason.OTHER: pb.STOP_REASON_OTHER,
}
ROLES = {Role.USER: pb.ROLE_USER, Role.ASSISTANT: pb.ROLE_ASSISTANT, Role.TOOL: pb.ROLE_TOOL}
THINKING = {
    ThinkingLevel.OFF: pb.THINKING_LEVEL_OFF,
    ThinkingLevel.MINIMAL: pb.THINKING_LEVEL_MINIMAL,
    ThinkingLevel.LOW: pb.THINKING_LEVEL_LOW,
    ThinkingLevel.MEDIUM: pb.THINKING_LEVEL_MEDIUM,
    ThinkingLevel.HIGH: pb.THINKING_LEVEL_HIGH,
    ThinkingLevel.XHIGH: pb.THINKING_LEVEL_XHIGH,
    ThinkingLevel.MAX: pb.THINKING_LEVEL_MAX,
}
PERMISSION_MODES = {
    PermissionMode.AUTO: pb.PERMISSION_MODE_AUTO,
    PermissionMode.ASK: pb.PERMISSION_MODE_ASK,
    PermissionMode.DENY: pb.PERMISSION_MODE_DENY,
    PermissionMode.PLAN: pb.PERMISSION_MODE_PLAN,
}
ANSWERS: dict[ev.Answer, pb.PermissionAnswer.ValueType] = {
    "once": pb.PERMISSION_ANSWER_ONCE,
    "session": pb.PERMISSION_ANSWER_SESSION,
    "always": pb.PERMISSION_ANSWER_ALWAYS,
    "no": pb.PERMISSION_ANSWER_NO,
}
THINKING_LEVELS = {number: level for level, number in THINKING.items()}
MAX_COUNT = (1 << 63) - 1
"""Maximum token count on the wire."""


def to_permission_request(asked: ev.PermissionRequest) -> pb.PermissionRequest:
    """Return a request for permission as a protobuf message."""
    return pb.PermissionRequest(
        request_id=asked.request_id,
        tool_call_id=asked.tool_call_id,
        tool=asked.tool,
        arguments_json=asked.arguments,
        reason=asked.reason,
        contained=asked.contained,
        outside=asked.outside,
        model_reason=asked.model_reason,
        cwd=asked.cwd,
        rule_json=asked.rule,
        rule_file=asked.rule_file,
    )


def to_error(failure: Failure) -> pb.Error:
    """Return a failure as a protobuf message."""
    return pb.Error(
        code=failure.code.value,
        message=failure.message,
        retryable=failure.retryable,
        context_window=clamp_count(failure.context_window),
    )


def to_usage(usage: Usage) -> pb.Usage:
    """Return token counts as a protobuf message."""
    return pb.Usage(
        input=clamp_count(usage.input),
        output=clamp_count(usage.output),
        cache_read=clamp_count(usage.cache_read),
        cache_write=clamp_count(usage.cache_write),
    )


def clamp_count(tokens: int) -> int:
    """Return a count that the protocol can carry, whatever a backend or a file claims."""
    return min(max(0, tokens), MAX_COUNT)


def to_queued(texts: Iterable[ev.QueuedText]) -> list[pb.QueuedText]:
    """Return queued texts as protobuf messages."""
    return [
        pb.QueuedText(message_id=one.message_id, text=one.text, follow_up=one.follow_up, typed=one.typed)
        for one in texts
    ]


def to_message(message: Message) -> pb.Message:
    """Return a message with its full payload."""
    time = Timestamp()
    time.FromMilliseconds(milliseconds(message.timestamp))
    return pb.Message(
        id=message.id,
        role=ROLES[message.role],
        content=[_to_block(block) for block in message.content],
        tool_call_id=message.tool_call_id,
        tool_name=message.tool_name,
        is_error=message.is_error,
        diff=message.diff,
        usage=None if message.usage is None else to_usage(message.usage),
        stop_reason=pb.STOP_REASON_UNSPECIFIED if message.stop_reason is None else STOP_REASONS[message.stop_reason],
        incomplete=message.incomplete,
        provider=message.provider,
        model=message.model,
        time=time,
        typed=message.typed,
    )


def _to_block(block: Block) -> pb.ContentBlock:
    match block:
        case Text(text):
            return pb.ContentBlock(text=pb.TextBlock(text=text))
        case Thinking(text):
            return pb.ContentBlock(thinking=pb.ThinkingBlock(text=text))
        case ToolCall(call, name, arguments, invalid):
            return pb.ContentBlock(
                tool_call=pb.ToolCallBlock(id=call, name=name, arguments_json=arguments, invalid_arguments=invalid)
            )
        case Image(media_type, data):
            return pb.ContentBlock(image=pb.Image(media_type=media_type, data=base64.b64decode(data)))
        case Opaque(data):
            return pb.ContentBlock(opaque=pb.OpaqueBlock(json=data))
        case _:
            assert_never(block)


def _clamp_uint32(count: int) -> int:
    """Return a number from an untrusted file, clamped to the range of its field."""
    return min(max(count, 0), (1 << 32) - 1)


def to_compaction(settings: CompactionSettings) -> pb.CompactionSettings:
    """Return compaction settings as a protobuf message."""
    return pb.CompactionSettings(
        enabled=settings.enabled,
        reserve_tokens=_clamp_uint32(settings.reserve_tokens),
        keep_recent_tokens=_clamp_uint32(settings.keep_recent_tokens),
        model=settings.model,
    )


def to_blocks(text: str, images: Iterable[pb.Image]) -> tuple[Block, ...]:
    """Return a user's input as blocks of a message."""
    pictures = (Image(image.media_type, base64.b64encode(image.data).decode("ascii")) for image in images)
    return (Text(text), *pictures) if text else tuple(pictures)


def to_event(event: ev.Event) -> pb.AgentEvent:
    """Return the event as a protobuf message."""
    out = pb.AgentEvent()
    fill_event(out, event)
    return out


def fill_event(out: pb.AgentEvent, event: ev.Event) -> None:
    """Fill an empty message with the event; inside a response that is faster than copying."""
    out.session_id = event.session_id
    out.run_id = event.run_id
    out.sequence = event.sequence
    time, thousandths = out.time, int(event.time * 1000)
    time.seconds = seconds = thousandths // 1000
    time.nanos = (thousandths - seconds * 1000) * 1_000_000
    _fill_body(out, event.body)


def _fill_body(out: pb.AgentEvent, body: ev.Body) -> None:
    # Setting a field in an empty submessage leaves the submessage unset, hence SetInParent.
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
        case ev.RetryScheduled() | ev.ModelChanged():
            _fill_recovery(out, body)
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


def _fill_recovery(out: pb.AgentEvent, body: ev.RetryScheduled | ev.ModelChanged) -> None:
    match body:
        case ev.RetryScheduled(attempt, delay, code, message):
            scheduled = pb.RetryScheduled(attempt=attempt, delay=delay, code=code, message=message)
            out.retry_scheduled.CopyFrom(scheduled)
        case ev.ModelChanged(provider, model, from_provider, from_model, code):
            changed = pb.ModelChanged(
                provider=provider, model=model, from_provider=from_provider, from_model=from_model, code=code
            )
            out.model_changed.CopyFrom(changed)
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
            # `from` is a keyword in Python, so the field is set by name.
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
