"""Decoder of chat-completions streams to uniform events."""

from collections.abc import Iterable
from typing import Any

import msgspec

from yarrow.message import StopReason, ToolCall
from yarrow.provider.backend_errors import Backend, make_event_error
from yarrow.provider.base import CallPiece, OpaquePiece
from yarrow.provider.base_decoder import EventBuffer, FrameDecoder
from yarrow.provider.chat_completions.chunk import (
    CallDelta,
    ChatDelta,
    ChatUsage,
    OpaqueFields,
    TextPart,
    encode_fields,
    get_call_fields,
    get_thinking,
    parse_chunk,
)
from yarrow.provider.stream_framing import SseDecoder
from yarrow.provider.tool_calls import MAX_CALLS, OpenCall, ToolCallAssembler

_NORMAL_FINISHES = frozenset({"", "stop", "tool_calls", "function_call", "end", "eos"})
"""Finish reasons of a model that ended normally; the empty one is an end mark without a reason."""
_FAILED_FINISHES = frozenset({"error", "insufficient_system_resource"})
_STOP_REASONS = {
    "length": StopReason.MAX_TOKENS,
    "content_filter": StopReason.CONTENT_FILTER,
    "model_context_window_exceeded": StopReason.CONTEXT_WINDOW,
}


class ChatDecoder(FrameDecoder):
    """Decoder of one answer in chat completions; calls, usage and the stop come together at the end."""

    def __init__(self, backend: Backend, *, chunk_size: int = 0) -> None:
        super().__init__(backend, SseDecoder(), EventBuffer(chunk_size))
        self._calls = CallFragments(backend)
        self._opaque = OpaqueFields()
        self._usage = ChatUsage()
        self._finish_reason = ""

    def _take_frame(self, frame: bytes) -> None:
        if frame[:1] != b"{" and frame.strip() == b"[DONE]":
            self.complete = True
            self._end_answer()
            return
        chunk = parse_chunk(frame, self._backend)
        if chunk.error or chunk.object == "error":
            raise make_event_error(frame, self._backend)
        self._usage.add(chunk)
        self.progress += chunk.usage is not None
        if not chunk.choices:
            return
        choice = chunk.choices[0]
        delta = choice.delta or choice.message
        if delta is not None:
            self._take_delta(delta)
        if choice.finish_reason and not self._finish_reason:
            if choice.finish_reason in _FAILED_FINISHES:
                raise make_event_error(f"finish reason {choice.finish_reason}".encode(), self._backend)
            self._finish_reason = choice.finish_reason
            self.complete = True

    def _take_delta(self, delta: ChatDelta) -> None:
        thinking, opaque = get_thinking(delta)
        self.progress += bool(thinking or delta.content or delta.refusal or delta.tool_calls)
        if thinking:
            self._events.add_thinking(thinking, opaque)
        text = delta.content or delta.refusal
        if text:
            self._events.add_text(text if isinstance(text, str) else _join_parts(text))
        if delta.tool_calls:
            for call in delta.tool_calls:
                self._calls.add(call)
        if delta.reasoning_details or delta.thinking_blocks or delta.extra_content or delta.provider_specific_fields:
            self._opaque.add(delta)

    def _end_answer(self) -> None:
        self._check_complete()
        self._events.flush()
        natural = self._finish_reason in _NORMAL_FINISHES
        calls = self._calls.finish(natural=natural)
        if opaque := self._opaque.encode():
            self._events.add_event(OpaquePiece(opaque))
        for call in calls:
            self._events.add_event(CallPiece(call))
        usual = StopReason.TOOL_USE if calls else StopReason.END_TURN
        self._finish(
            self._usage.usage(), usual if natural else _STOP_REASONS.get(self._finish_reason, StopReason.OTHER)
        )


def _join_parts(parts: Iterable[TextPart]) -> str:
    return "".join(part.text for part in parts if part.text)


class _OpenChatCall(OpenCall):
    """A call, with its position in the answer."""

    def __init__(self, index: int) -> None:
        super().__init__()
        self.index = index
        self.fields: dict[str, Any] = {}
        """Opaque fields that a gateway attached."""


class CallFragments:
    """Calls of one answer, in fragments that name their call by index or id, or not at all."""

    def __init__(self, backend: Backend) -> None:
        self._assembler = ToolCallAssembler(backend)
        self._calls: list[_OpenChatCall] = []
        self._by_index: dict[int, _OpenChatCall] = {}

    def add(self, delta: CallDelta) -> None:
        """Add one fragment."""
        function = delta.function
        name = (function.name or "") if function else ""
        arguments = _arguments_text(function.arguments) if function else ""
        call_id = str(delta.id) if delta.id is not None else ""
        call = self._find(delta.index, call_id)
        # Joining the fragments is expensive, so compare only text that could be an object of its own.
        starts_object = arguments.lstrip()[:1] == "{"
        if (
            call is None
            or _is_other_call(call, call_id)
            or (starts_object and name and not call_id and call.is_whole())
        ):
            call = self._open(delta.index)
        elif starts_object and call_id == call.id and arguments == call.arguments and call.is_whole():
            return  # a repetition of the whole call
        call.id = call_id or call.id
        call.name = name or call.name
        call.fields |= get_call_fields(delta)
        if arguments:
            self._assembler.append(call, arguments)

    def finish(self, *, natural: bool) -> list[ToolCall]:
        """Return the calls in the order of their indexes, without truncated ones.

        `natural` means that the model ended normally.
        """
        finished: list[ToolCall] = []
        for call in sorted(self._calls, key=lambda call: call.index):
            blank = not call.arguments.strip()
            if blank and not call.name:
                continue
            # A call without arguments may be truncated unless another call came after it.
            ended = natural or (blank and call is not self._calls[-1])
            if made := self._assembler.close(call, natural=ended, opaque=encode_fields(call.fields)):
                finished.append(made)
        return finished

    def _find(self, index: int | None, call_id: str) -> _OpenChatCall | None:
        if index is not None:
            return self._by_index.get(index)
        if call_id:
            return next((call for call in self._calls if call.id == call_id), None) or self._find_without_id()
        return self._calls[-1] if self._calls else None

    def _find_without_id(self) -> _OpenChatCall | None:
        """Return the last call if its id may still arrive."""
        last = self._calls[-1] if self._calls else None
        return last if last is not None and not last.id else None

    def _open(self, index: int | None) -> _OpenChatCall:
        if len(self._calls) == MAX_CALLS:
            raise self._assembler.refuse(f"more than {MAX_CALLS} tool calls in one answer")
        position = index if index is not None else len(self._calls)
        call = _OpenChatCall(position)
        self._calls.append(call)
        self._by_index[position] = call
        return call


def _is_other_call(call: OpenCall, call_id: str) -> bool:
    """Return whether a fragment belongs to another call: some proxies use the same index for all calls."""
    return bool(call_id and call.id) and call_id != call.id


def _arguments_text(arguments: str | dict[str, Any] | None) -> str:
    if isinstance(arguments, dict):
        return msgspec.json.encode(arguments).decode()
    return arguments or ""
