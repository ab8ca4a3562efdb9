"""Queue of steering and follow-up messages: recorded when accepted, and again when delivered or returned."""

from collections import deque

from msgspec import Struct

from yarrow.agent.cancellation_shield import run_shielded
from yarrow.agent.hook_payloads import How
from yarrow.agent.hooks import HookRunner
from yarrow.agent.session_writer import SessionWriter
from yarrow.config.settings import ServiceSettings
from yarrow.errors import Code, LimitExceeded, Precondition, StorageError
from yarrow.event.events import Notice, QueuedText, QueueUpdate
from yarrow.message import Block, Text
from yarrow.session.ids import new_id
from yarrow.session.record import Queued, Undelivered


class QueuedMessage(Struct, frozen=True):
    """A queued message: its display text, and the blocks of the message to be sent."""

    shown: QueuedText
    content: tuple[Block, ...]


class MessageQueue:
    """Accepts messages while a run is active; closing it returns the undelivered ones."""

    def __init__(self, limits: ServiceSettings) -> None:
        self._limits = limits
        self._steers: deque[QueuedMessage] = deque()
        self._follow_ups: deque[QueuedMessage] = deque()
        self._open = False

    def open(self) -> None:
        """Start accepting messages."""
        self._open = True

    def push(self, waiting: QueuedMessage) -> None:
        """Append a message to its queue. Raises `Precondition` (NOT_RUNNING) and `LimitExceeded` (TOO_MANY)."""
        if not self._open:
            raise Precondition("no run is in progress: send this text as a prompt", code=Code.NOT_RUNNING)
        most, longest = self._limits.queued_texts, self._limits.queued_characters
        if len(self._steers) + len(self._follow_ups) >= most:
            raise LimitExceeded(f"{most} texts are already queued: wait until some are delivered", code=Code.TOO_MANY)
        waits = sum(len(one.shown.text) for one in (*self._steers, *self._follow_ups))
        if waits + len(waiting.shown.text) > longest:
            raise LimitExceeded(
                f"the queued texts would exceed {longest} characters: wait until some are delivered",
                code=Code.TOO_MANY,
            )
        (self._follow_ups if waiting.shown.follow_up else self._steers).append(waiting)

    def withdraw(self, waiting: QueuedMessage) -> bool:
        """Remove a message; return whether it was still queued."""
        for queue in (self._steers, self._follow_ups):
            if waiting in queue:
                queue.remove(waiting)
                return True
        return False

    def stop_accepting(self) -> None:
        """Stop accepting messages; queued ones stay queued."""
        self._open = False

    def put_back(self, taken: tuple[QueuedMessage, ...]) -> None:
        """Return undeliverable messages to the head of their queue."""
        for waiting in reversed(taken):
            (self._follow_ups if waiting.shown.follow_up else self._steers).appendleft(waiting)

    def take_due(self, *, ending: bool) -> tuple[QueuedMessage, ...]:
        """Remove and return the messages to deliver now: all steers, or one follow-up if the run would end.

        If the run would end and nothing is queued, the queues close in the same step, so that no message can arrive
        between the decision to end and the end.
        """
        if self._steers:
            taken = tuple(self._steers)
            self._steers.clear()
            return taken
        if ending and self._follow_ups:
            return (self._follow_ups.popleft(),)
        if ending:
            self._open = False
        return ()

    def close(self) -> tuple[QueuedMessage, ...]:
        """Stop accepting messages; remove and return the queued ones, steers first."""
        self._open = False
        left = (*self._steers, *self._follow_ups)
        self._steers.clear()
        self._follow_ups.clear()
        return left

    def snapshot(self) -> QueueUpdate:
        """Return the complete lists of queued messages."""
        return QueueUpdate(tuple(one.shown for one in self._steers), tuple(one.shown for one in self._follow_ups))


class MessageDelivery:
    """The steering and follow-up messages of one session."""

    def __init__(self, writer: SessionWriter) -> None:
        self._writer = writer
        self._queues = MessageQueue(writer.limits)

    def open(self) -> None:
        """Start accepting messages."""
        self._queues.open()

    def stop_accepting(self) -> None:
        """Stop accepting messages; queued ones stay queued."""
        self._queues.stop_accepting()

    def snapshot(self) -> QueueUpdate:
        """Return the queued messages, redacted."""
        return self._writer.redactor.redact_struct(self._queues.snapshot())

    async def queue(self, content: tuple[Block, ...], how: How, *, typed: str, hook_runner: HookRunner) -> str:
        """Accept a message; return its message id once it is on disk.

        Raises `Precondition` (NOT_RUNNING), `LimitExceeded` and `StorageError`.
        """
        content = await hook_runner.input(content, how)
        follow_up = how == "followUp"
        waiting = QueuedMessage(QueuedText(new_id(), _text(content), follow_up, typed), content)
        self._queues.push(waiting)
        self._writer.publish(self._queues.snapshot())
        queued = Queued(
            id=waiting.shown.message_id,
            timestamp=self._writer.timestamp(),
            mode="followUp" if follow_up else "steer",
            content=content,
            typed=typed,
        )
        try:
            await self._writer.append(queued)
        except StorageError:
            if self._queues.withdraw(waiting):
                self._writer.publish(self._queues.snapshot())
            elif any(message.id == queued.id for message in reversed(self._writer.session.messages)):
                # It was delivered in the meantime, and the delivery is on disk.
                return queued.id
            raise
        return queued.id

    async def deliver(self, *, ending: bool) -> tuple[QueuedText, ...]:
        """Deliver the queued steers, or one follow-up if the run would end. Raises `StorageError`."""
        taken = self._queues.take_due(ending=ending)
        if taken:
            await run_shielded(self._record(taken))
        return tuple(waiting.shown for waiting in taken)

    def close(self) -> tuple[QueuedText, ...]:
        """Stop accepting messages; return the queued ones, which the end event of the run contains."""
        return tuple(waiting.shown for waiting in self._queues.close())

    def undelivered_records(self, ids: tuple[str, ...]) -> tuple[Undelivered, ...]:
        """Return the records that mark messages as undelivered."""
        return tuple(Undelivered(id=one, timestamp=self._writer.timestamp()) for one in ids)

    async def _record(self, taken: tuple[QueuedMessage, ...]) -> None:
        messages = (self._writer.user_message(one.shown.message_id, one.content, one.shown.typed) for one in taken)
        try:
            await self._writer.append(*messages)
        except StorageError:
            self._queues.put_back(taken)
            raise
        self._writer.publish(self._queues.snapshot())


def interrupted(left: tuple[Queued, ...]) -> Notice:
    """Return the notice about messages that an interrupted run did not deliver."""
    texts = "; ".join(_text(one.content) for one in left)
    return Notice("UNDELIVERED", f"not sent because the run was interrupted: {texts}")


def _text(content: tuple[Block, ...]) -> str:
    return "".join(block.text for block in content if isinstance(block, Text))
