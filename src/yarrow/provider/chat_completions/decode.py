"""Decodes the bytes of a chat-completions stream into the uniform events."""

from collections.abc import Iterable

from yarrow.errors import Code, ProviderError
from yarrow.message import StopReason
from yarrow.provider.base import CallPiece, OpaquePiece, ProviderEvent, StopPiece, UsagePiece
from yarrow.provider.chat_completions.calls import Calls
from yarrow.provider.chat_completions.chunk import Choice, Delta, Part
from yarrow.provider.chat_completions.opaque_fields import OpaqueFields
from yarrow.provider.chat_completions.parse import parse
from yarrow.provider.chat_completions.tally import ChatUsage
from yarrow.provider.chat_completions.thinking import thinking_of
from yarrow.provider.failures import Speaker, from_event
from yarrow.provider.outlet import Outlet
from yarrow.provider.sse import SseDecoder

_NATURAL = frozenset({"", "stop", "tool_calls", "function_call", "end", "eos"})
"""Finish reasons of a model that ended where it wanted to; the empty one is an end mark without a reason."""
_FAILED = frozenset({"error", "insufficient_system_resource"})
_REASONS = {
    "length": StopReason.MAX_TOKENS,
    "content_filter": StopReason.CONTENT_FILTER,
    "model_context_window_exceeded": StopReason.CONTEXT_WINDOW,
}


class ChatDecoder:
    """One answer: `feed` it what each read of the socket brought, then `end` it.

    Deltas of one feed are joined into one piece; with `chunk_size` they are joined further, until a piece has that
    many characters or another kind of event comes. Calls, usage and the stop come together, last.
    """

    def __init__(self, speaker: Speaker, *, chunk_size: int = 0) -> None:
        self.complete = False
        """Whether the answer is whole: a finish reason was seen, or the end mark."""
        self.done = False
        """Whether the stop was given, so that nothing more can come."""
        self.failure: ProviderError | None = None
        """Why nothing more comes; what came before it was given."""
        self.progress = 0
        """Number of pieces of content so far: text, thinking, parts of calls and usage."""
        self._speaker = speaker
        self._sse = SseDecoder()
        self._outlet = Outlet(chunk_size)
        self._calls = Calls(speaker)
        self._opaque = OpaqueFields()
        self._usage = ChatUsage()
        self._finish = ""

    def feed(self, data: bytes) -> list[ProviderEvent]:
        """Return what the bytes complete."""
        try:
            self._take_all(self._sse.feed(data))
        except ProviderError as error:
            self._fail(error)
        self._outlet.pause()
        return self._outlet.given()

    def take(self, event: bytes) -> list[ProviderEvent]:
        """Return what the data of one event completes, for a body that was not a stream."""
        try:
            self._take_all([event])
        except ProviderError as error:
            self._fail(error)
        return self._outlet.given()

    def end(self) -> list[ProviderEvent]:
        """Return the rest at the end of the body; one that ended too early is the failure STREAM_TRUNCATED."""
        try:
            self._take_all(self._sse.end())
            if not self.done and self.failure is None:
                self._close()
        except ProviderError as error:
            self._fail(error)
        return self._outlet.given()

    def _take_all(self, events: list[bytes]) -> None:
        for event in events:
            if self.done or self.failure is not None:
                return
            if event[:1] != b"{" and event.strip() == b"[DONE]":
                self.complete = True
                self._close()
                return
            chunk = parse(event, self._speaker)
            if chunk.error or chunk.object == "error":
                raise from_event(event, self._speaker)
            self._usage.add(chunk)
            self.progress += chunk.usage is not None
            if chunk.choices:
                self._choose(chunk.choices[0])

    def _choose(self, choice: Choice) -> None:
        delta = choice.delta or choice.message
        if delta is not None:
            self._add(delta)
        if choice.finish_reason and not self._finish:
            if choice.finish_reason in _FAILED:
                raise from_event(f"finish reason {choice.finish_reason}".encode(), self._speaker)
            self._finish = choice.finish_reason
            self.complete = True

    def _add(self, delta: Delta) -> None:
        thinking, opaque = thinking_of(delta)
        self.progress += bool(thinking or delta.content or delta.refusal or delta.tool_calls)
        if thinking:
            self._outlet.thought(thinking, opaque)
        text = delta.content or delta.refusal
        if text:
            self._outlet.text(text if isinstance(text, str) else _joined(text))
        if delta.tool_calls:
            for call in delta.tool_calls:
                self._calls.add(call)
        if delta.reasoning_details or delta.thinking_blocks or delta.extra_content or delta.provider_specific_fields:
            self._opaque.add(delta)

    def _close(self) -> None:
        """Give everything that waited for the end."""
        if not self.complete:
            sentence = f"{self._speaker.name} ended its answer before it was whole"
            raise ProviderError(Code.STREAM_TRUNCATED, sentence, retryable=True)
        self._outlet.flush()
        natural = self._finish in _NATURAL
        calls = self._calls.finish(natural=natural)
        if opaque := self._opaque.opaque():
            self._outlet.give(OpaquePiece(opaque))
        for call in calls:
            self._outlet.give(CallPiece(call))
        if usage := self._usage.usage():
            self._outlet.give(UsagePiece(usage))
        usual = StopReason.TOOL_USE if calls else StopReason.END_TURN
        self._outlet.give(StopPiece(usual if natural else _REASONS.get(self._finish, StopReason.OTHER)))
        self.done = True

    def _fail(self, error: ProviderError) -> None:
        self._outlet.flush()
        self.failure = error


def _joined(parts: Iterable[Part]) -> str:
    return "".join(part.text for part in parts if part.text)
