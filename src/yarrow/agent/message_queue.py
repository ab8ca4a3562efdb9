"""The texts that wait for delivery during a run: steers, and follow-ups for when it would end."""

from collections import deque

from msgspec import Struct

from yarrow.config.settings import ServiceSettings
from yarrow.errors import Code, LimitExceeded, Precondition
from yarrow.event.events import QueuedText, QueueUpdate
from yarrow.message import Block


class QueuedMessage(Struct, frozen=True):
    """A text as it waits: what is shown of it, and the blocks of the message that it becomes."""

    shown: QueuedText
    content: tuple[Block, ...]


class MessageQueue:
    """Open while a run takes texts; whoever closes it gets what was not delivered."""

    def __init__(self, limits: ServiceSettings) -> None:
        self._limits = limits
        self._steers: deque[QueuedMessage] = deque()
        self._follow_ups: deque[QueuedMessage] = deque()
        self._open = False

    def open(self) -> None:
        """Take texts from now on."""
        self._open = True

    def push(self, waiting: QueuedMessage) -> None:
        """Add a text at the end of its queue. Raises `Precondition` (NOT_RUNNING) and `LimitExceeded` (TOO_MANY)."""
        if not self._open:
            raise Precondition(
                "no run is going on that could take this text: send it as a prompt", code=Code.NOT_RUNNING
            )
        most, longest = self._limits.queued_texts, self._limits.queued_characters
        if len(self._steers) + len(self._follow_ups) >= most:
            raise LimitExceeded(f"{most} texts wait already: let some be delivered first", code=Code.TOO_MANY)
        waits = sum(len(one.shown.text) for one in (*self._steers, *self._follow_ups))
        if waits + len(waiting.shown.text) > longest:
            raise LimitExceeded(
                f"the texts that wait would hold more than {longest} characters: let some be delivered first",
                code=Code.TOO_MANY,
            )
        (self._follow_ups if waiting.shown.follow_up else self._steers).append(waiting)

    def withdraw(self, waiting: QueuedMessage) -> bool:
        """Take a text out again; return whether it was still there."""
        for queue in (self._steers, self._follow_ups):
            if waiting in queue:
                queue.remove(waiting)
                return True
        return False

    def stop_accepting(self) -> None:
        """Take no more texts; those that wait go on waiting."""
        self._open = False

    def put_back(self, taken: tuple[QueuedMessage, ...]) -> None:
        """Put what could not be delivered at the head again."""
        for waiting in reversed(taken):
            (self._follow_ups if waiting.shown.follow_up else self._steers).appendleft(waiting)

    def take_due(self, *, ending: bool) -> tuple[QueuedMessage, ...]:
        """Return what is delivered now: all steers, else one follow-up if the run would end.

        When the run would end and nothing waits, the queues close in the same step, so that no text can slip in
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
        """Take no more texts and return those that wait, steers first."""
        self._open = False
        left = (*self._steers, *self._follow_ups)
        self._steers.clear()
        self._follow_ups.clear()
        return left

    def snapshot(self) -> QueueUpdate:
        """Return the pending lists in full."""
        return QueueUpdate(tuple(one.shown for one in self._steers), tuple(one.shown for one in self._follow_ups))
