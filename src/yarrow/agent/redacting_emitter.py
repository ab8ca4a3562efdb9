"""Takes the keys of providers out of what is told and recorded, also where a key comes in pieces."""

from collections.abc import Callable

from yarrow.event.events import (
    Body,
    MessageEnd,
    TextDelta,
    ThinkingDelta,
    ToolCallEvent,
    ToolDelta,
)
from yarrow.session.redacting_stream import RedactingStream
from yarrow.session.redaction import Redactor

Delta = TextDelta | ThinkingDelta


def redact_event(body: Body, redactor: Redactor) -> Body:
    """Return an event without secrets; pieces of a text are the business of whoever has the text."""
    if redactor.is_empty or isinstance(body, TextDelta | ThinkingDelta | ToolDelta):
        return body
    return redactor.redact_struct(body)


class RedactingEmitter:
    """Passes on the events of one run; of a model's text it holds back what may become a key."""

    def __init__(self, emit: Callable[[Body], None], redactor: Redactor) -> None:
        self._emit = emit
        self._kind: type[Delta] = TextDelta
        self._stream = RedactingStream(redactor)

    def __call__(self, body: Body) -> None:
        """Pass an event on."""
        match body:
            case TextDelta(text) | ThinkingDelta(text):
                if type(body) is not self._kind:
                    self._flush()
                    self._kind = type(body)
                self._tell(self._stream.feed(text))
            case ToolCallEvent() | MessageEnd():
                self._flush()
                self._emit(body)
            case _:
                self._emit(body)

    def _flush(self) -> None:
        self._tell(self._stream.flush())

    def _tell(self, text: str) -> None:
        if text:
            self._emit(self._kind(text))
