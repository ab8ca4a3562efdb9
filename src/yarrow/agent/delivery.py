"""The texts that wait for a run: recorded when they are accepted, and again when they are delivered or handed back."""

from yarrow.agent.hook_payloads import How
from yarrow.agent.hook_points import HookRunner
from yarrow.agent.message_queue import MessageQueue, QueuedMessage
from yarrow.agent.session_writer import SessionWriter
from yarrow.agent.shield import run_shielded
from yarrow.errors import StorageError
from yarrow.event.events import Notice, QueuedText, QueueUpdate
from yarrow.message import Block, Text
from yarrow.session.ids import new_id
from yarrow.session.record import Queued, Undelivered


class MessageDelivery:
    """The steers and follow-ups of one session."""

    def __init__(self, desk: SessionWriter) -> None:
        self._desk = desk
        self._queues = MessageQueue(desk.limits)

    def open(self) -> None:
        """Take texts from now on."""
        self._queues.open()

    def stop_accepting(self) -> None:
        """Take no more texts; those that wait go on waiting."""
        self._queues.stop_accepting()

    def snapshot(self) -> QueueUpdate:
        """Return what waits."""
        return self._desk.redactor.redact_struct(self._queues.snapshot())

    async def queue(self, content: tuple[Block, ...], how: How, *, typed: str, points: HookRunner) -> str:
        """Accept a text; return the id of the message it becomes, once it is on disk.

        Raises `Precondition` (NOT_RUNNING), `LimitExceeded` and `StorageError`.
        """
        content = await points.input(content, how)
        follow_up = how == "followUp"
        waiting = QueuedMessage(QueuedText(new_id(), _text(content), follow_up, typed), content)
        self._queues.push(waiting)
        self._desk.publish(self._queues.snapshot())
        queued = Queued(
            id=waiting.shown.message_id,
            timestamp=self._desk.timestamp(),
            mode="followUp" if follow_up else "steer",
            content=content,
            typed=typed,
        )
        try:
            await self._desk.append(queued)
        except StorageError:
            if self._queues.withdraw(waiting):
                self._desk.publish(self._queues.snapshot())
            elif any(message.id == queued.id for message in reversed(self._desk.session.messages)):
                # Delivered meanwhile, and that is on disk.
                return queued.id
            raise
        return queued.id

    async def deliver(self, *, ending: bool) -> tuple[QueuedText, ...]:
        """Deliver the steers that wait, else, if the run would end, one follow-up. Raises `StorageError`."""
        taken = self._queues.take_due(ending=ending)
        if taken:
            await run_shielded(self._record(taken))
        return tuple(waiting.shown for waiting in taken)

    def close(self) -> tuple[QueuedText, ...]:
        """Take no more texts; return those that wait, for the end of the run to hand back."""
        return tuple(waiting.shown for waiting in self._queues.close())

    def undelivered_records(self, ids: tuple[str, ...]) -> tuple[Undelivered, ...]:
        """Return the records that say that texts will not be delivered."""
        return tuple(Undelivered(id=one, timestamp=self._desk.timestamp()) for one in ids)

    async def _record(self, taken: tuple[QueuedMessage, ...]) -> None:
        messages = (self._desk.user_message(one.shown.message_id, one.content, one.shown.typed) for one in taken)
        try:
            await self._desk.append(*messages)
        except StorageError:
            self._queues.put_back(taken)
            raise
        self._desk.publish(self._queues.snapshot())


def interrupted(left: tuple[Queued, ...]) -> Notice:
    """Return the notice of texts that a run which was cut off left behind."""
    texts = "; ".join(_text(one.content) for one in left)
    return Notice("UNDELIVERED", f"accepted in a run that was cut off and never delivered: {texts}")


def _text(content: tuple[Block, ...]) -> str:
    return "".join(block.text for block in content if isinstance(block, Text))
