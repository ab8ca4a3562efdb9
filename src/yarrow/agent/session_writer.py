"""The session that an agent writes: its state, its log, and its subscribers, with provider keys redacted."""

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
from yarrow.session.ids import format_timestamp
from yarrow.session.record import Record
from yarrow.session.redaction import NO_REDACTION, RedactingStream, Redactor
from yarrow.session.state import SessionState, fold_records
from yarrow.session.store import Log

DEFAULT_LIMITS = ServiceSettings()
"""Of the texts that wait, where nothing else is configured."""


class SessionSource(Struct, frozen=True):
    """Where an agent's session comes from and goes to."""

    log: Log
    state: SessionState
    reload: Callable[[], Awaitable[SessionState]]
    """Reads the session anew, after another process wrote to it."""


class SessionWriter:
    """One session and its only writer's means. What is appended is durable first, and then part of the session."""

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
        """Takes the keys of providers out of all that is recorded or told; set for each run."""
        self._source = source
        self._now = now
        self._lock = AsyncExitStack()

    async def lock(self) -> None:
        """Become the file's only writer; what another process wrote meanwhile becomes part of the session.

        Raises `Precondition` (LOCKED) and `StorageError`.
        """
        if await self._lock.enter_async_context(self._source.log.lock()):
            self.session = await self._source.reload()

    async def unlock(self) -> None:
        """Let go of the file. Raises `StorageError`, for letting go may write too."""
        await self._lock.aclose()

    def publish(self, body: Body) -> None:
        """Tell whoever watches."""
        self.bus.publish(redact_event(body, self.redactor))

    async def append(self, *records: Record) -> None:
        """Make records durable, then part of the session, both without keys. Raises `StorageError`.

        What is sent to a model is what is in the file: it stays the same when the session is loaded again.
        """
        records = tuple(map(self.redactor.redact_struct, records))
        if records:
            await self._source.log.append(*records)
            self.session = fold_records(self.session, records)

    async def flush(self) -> None:
        """Return when all that was appended is durable. Raises `StorageError`."""
        await self._source.log.flush()

    def user_message(self, message_id: str, content: tuple[Block, ...], typed: str) -> Message:
        """Return a person's message of now."""
        return Message(id=message_id, role=Role.USER, content=content, timestamp=self.timestamp(), typed=typed)

    def timestamp(self) -> str:
        """Return the time now, as records hold it."""
        return format_timestamp(self._now())


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


@asynccontextmanager
async def acquire_session(seat: ExclusiveTask, desk: SessionWriter, keys: Redactor) -> AsyncGenerator[None]:
    """Become the session's only writer, for a seat that is taken; `keys` are kept out of all that is written.

    Unless what is inside is done, file and seat are given back: what was not accepted, for a failure or for a service
    that ends, keeps no session busy. Raises `Precondition` (LOCKED) and `StorageError`.
    """
    async with AsyncExitStack() as undo:
        undo.push_async_callback(desk.unlock)
        undo.callback(seat.release)
        await seat.settled()
        desk.redactor = keys
        await desk.lock()
        yield
        undo.pop_all()
