"""The session that an agent writes: its state, log and subscribers, with provider keys redacted."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from msgspec import Struct

from yarrow.agent.exclusive_task import ExclusiveTask
from yarrow.agent.retry import REAL_CLOCK, Clock
from yarrow.config.settings import ServiceSettings
from yarrow.event.bus import Bus
from yarrow.event.events import Body, MessageEnd, TextDelta, ThinkingDelta, ToolCallEvent, ToolDelta
from yarrow.message import Block, Message, Role
from yarrow.redaction.redactor import NO_REDACTION, Redactor
from yarrow.redaction.stream import RedactingStream
from yarrow.session.ids import format_timestamp
from yarrow.session.record import Record
from yarrow.session.session_log import Log
from yarrow.session.state import SessionState, fold_records

DEFAULT_LIMITS = ServiceSettings()
"""Default limits of the message queue."""


class SessionSource(Struct, frozen=True):
    """Source of an agent's session and the log that it writes to."""

    log: Log
    state: SessionState
    reload: Callable[[], Awaitable[SessionState]]
    """Reloads the session after another process wrote to it."""


class SessionWriter:
    """State and log of one session for its only writer. Appended records are durable before they enter the state."""

    def __init__(
        self,
        source: SessionSource,
        bus: Bus,
        *,
        now: Callable[[], float] = time.time,
        pause: Clock = REAL_CLOCK,
        limits: ServiceSettings = DEFAULT_LIMITS,
    ) -> None:
        self.session = source.state
        self.bus = bus
        self.pause = pause
        self.limits = limits
        self.redactor = NO_REDACTION
        """Redacts provider keys from everything that is recorded or published; set for each run."""
        self._source = source
        self._now = now
        self._lock = AsyncExitStack()

    async def lock(self, make: Callable[[], tuple[Record, ...]] = tuple) -> None:
        """Lock the session file for writing, load what another process wrote in the meantime, and append records.

        `make` returns the records for the current session; it is called again if that was loaded. Raises
        `Precondition` (LOCKED) and `StorageError`.
        """
        first = self._redact(make())
        if await self._lock.enter_async_context(self._source.log.lock(*first)):
            self.session = await self._source.reload()
            await self.append(*make())
        elif first:
            self.session = fold_records(self.session, first)

    async def unlock(self) -> None:
        """Release the file. Raises `StorageError`, because releasing may write too."""
        await self._lock.aclose()

    def publish(self, body: Body) -> None:
        """Publish an event to all subscribers."""
        self.bus.publish(redact_event(body, self.redactor))

    async def append(self, *records: Record) -> None:
        """Persist records, then add them to the session, with keys redacted. Raises `StorageError`.

        The model is sent exactly what the file contains, so a reloaded session yields the same messages.
        """
        records = self._redact(records)
        if records:
            await self._source.log.append(*records)
            self.session = fold_records(self.session, records)

    def _redact(self, records: tuple[Record, ...]) -> tuple[Record, ...]:
        return tuple(map(self.redactor.redact_struct, records))

    async def flush(self) -> None:
        """Return when everything appended is durable. Raises `StorageError`."""
        await self._source.log.flush()

    def user_message(self, message_id: str, content: tuple[Block, ...], typed: str) -> Message:
        """Return a user message with the current time."""
        return Message(id=message_id, role=Role.USER, content=content, timestamp=self.timestamp(), typed=typed)

    def timestamp(self) -> str:
        """Return the current time in the format of session records."""
        return format_timestamp(self._now())


Delta = TextDelta | ThinkingDelta


def redact_event(body: Body, redactor: Redactor) -> Body:
    """Return an event without secrets; deltas are unchanged because their senders redact them."""
    if redactor.is_empty or isinstance(body, TextDelta | ThinkingDelta | ToolDelta):
        return body
    return redactor.redact_struct(body)


class RedactingEmitter:
    """Forwards the events of one run; holds back text that may become part of a key."""

    def __init__(self, emit: Callable[[Body], None], redactor: Redactor) -> None:
        self._emit = emit
        self._kind: type[Delta] = TextDelta
        self._stream = RedactingStream(redactor)

    def use_keys(self, redactor: Redactor) -> None:
        """Redact these keys from now on; called between two messages."""
        self._flush()
        self._stream = RedactingStream(redactor)

    def __call__(self, body: Body) -> None:
        """Forward an event."""
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


@asynccontextmanager
async def acquire_session(
    exclusive: ExclusiveTask, writer: SessionWriter, keys: Redactor, *, make: Callable[[], tuple[Record, ...]] = tuple
) -> AsyncGenerator[None]:
    """Become the session's only writer, after acquiring `exclusive`; `keys` are redacted from everything written.

    The records that `make` returns are appended as by `SessionWriter.lock`.

    Releases the file and the task if the body raises, so that neither a failure nor a shutdown leaves the session busy.
    Raises `Precondition` (LOCKED) and `StorageError`.
    """
    async with AsyncExitStack() as undo:
        undo.push_async_callback(writer.unlock)
        undo.callback(exclusive.release)
        await exclusive.settled()
        writer.redactor = keys
        await writer.lock(make)
        yield
        undo.pop_all()
