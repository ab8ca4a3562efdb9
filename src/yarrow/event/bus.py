"""One session's event bus: publishing never waits, and a slow reader loses the oldest events and is told which."""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from itertools import islice
from typing import Protocol

from yarrow.event.events import (
    AgentEnd,
    AgentStart,
    Body,
    Event,
    Gap,
    PermissionRequest,
    TextDelta,
    ThinkingDelta,
    ToolCallEvent,
    ToolDelta,
    ToolOutput,
)

BUFFER_EVENTS = 4096
"""Events one subscriber may be behind; then its oldest is dropped, so that the end of a run always arrives."""
RING_EVENTS = 4096
"""Events kept for a subscriber that comes late or comes back; then the oldest is dropped."""
MAX_RING_CHARACTERS = 1 << 20
"""Characters of text the kept events may hold together; then the oldest are dropped."""
RING_SECONDS = 60.0
"""How long the events of a run are kept after it ended."""
TRIM_EVERY_EVENTS = 64
"""The ring is weighed and trimmed in blocks of so many events: doing it for each would double the cost."""

_URGENT_BODIES = (AgentEnd, PermissionRequest)
"""What somebody waits for: nobody lets it wait for more."""
_TEXT_BODIES = (TextDelta, ToolDelta, ThinkingDelta, AgentStart)


def _count_characters(events: Iterable[Event]) -> int:
    weight = 0
    for event in events:
        # The few kinds that hold text of any length; the others are small and bounded.
        if isinstance(body := event.body, _TEXT_BODIES):
            weight += len(body.text)
        elif isinstance(body, ToolOutput):
            weight += len(body.text) + len(body.diff)
        elif isinstance(body, ToolCallEvent):
            weight += len(body.arguments) + len(body.invalid_arguments)
        elif isinstance(body, PermissionRequest):
            weight += len(body.arguments)
    return weight


class Observer(Protocol):
    """Measures what one session does. It is called in the middle of a run: it never waits and never raises."""

    def on_event(self, event: Event) -> None:
        """See an event of the session."""
        ...

    def on_lost(self, events: int) -> None:
        """Take note that a subscriber was told of so many events that it lost."""
        ...

    def tool_span(self, tool_call_id: str) -> AbstractContextManager[None]:
        """Return what is open while a tool runs, of which no event tells."""
        ...


class Bus:
    """The events of one session, in order. All calls belong to one event loop."""

    def __init__(
        self, session_id: str, *, now: Callable[[], float] = time.time, observer: Observer | None = None
    ) -> None:
        self.session_id = session_id
        self.observer = observer
        """Who measures the session, if anybody does."""
        self.sequence = 0
        """Of the last event published."""
        self._run_id = ""
        self._now = now
        self._subscribers: tuple[Subscription, ...] = ()
        self._ring: deque[Event] = deque()
        self._blocks: deque[int] = deque()
        self._ring_bytes = 0
        self._unmeasured = 0
        self._release: asyncio.TimerHandle | None = None

    def publish(self, body: Body) -> None:
        """Give the event its place and hand it to every subscriber; never waits."""
        self.sequence = sequence = self.sequence + 1
        event = Event(self.session_id, self._run_id, sequence, self._now(), body)
        self._ring.append(event)
        self._unmeasured += 1
        if self._unmeasured == TRIM_EVERY_EVENTS:
            self._trim()
        for subscriber in self._subscribers:
            subscriber.buffer.append(event)
            if subscriber.waiter is not None and (
                len(subscriber.buffer) >= subscriber.min_events or isinstance(body, _URGENT_BODIES)
            ):
                subscriber.wake()
        if self.observer is not None:
            self.observer.on_event(event)

    def begin_run(self, run_id: str) -> None:
        """Put the events that follow under a run; what was kept of the last run is let go."""
        self._cancel_release()
        self._run_id = run_id
        self._clear_ring()

    def end_run(self) -> None:
        """Put the events that follow under no run; the run's events are let go after `RING_SECONDS`."""
        self._run_id = ""
        self._cancel_release()
        self._release = asyncio.get_running_loop().call_later(RING_SECONDS, self._clear_ring)

    def subscribe(self, after: int | None = None) -> "Subscription":
        """Return a subscription to what follows sequence `after`, or to what is published from now on.

        Where kept events no longer reach back to `after`, the first event is a `Gap`.
        """
        start = self.sequence if after is None else min(after, self.sequence)
        subscription = Subscription(self, start + 1)
        subscription.buffer.extend(event for event in self._ring if event.sequence > start)
        self._subscribers = (*self._subscribers, subscription)
        return subscription

    def unsubscribe(self, subscription: "Subscription") -> None:
        """Take a subscription out; without effect when it is out."""
        self._subscribers = tuple(one for one in self._subscribers if one is not subscription)

    @property
    def subscribers(self) -> int:
        """How many are subscribed."""
        return len(self._subscribers)

    def count_drops(self) -> tuple[int, ...]:
        """Return how many events each present subscriber lost."""
        return tuple(subscription.dropped for subscription in self._subscribers)

    def close(self) -> None:
        """End every subscription once it has read what it has."""
        self._cancel_release()
        for subscription in self._subscribers:
            subscription.close()

    def _trim(self) -> None:
        ring, blocks = self._ring, self._blocks
        weight = _count_characters(islice(reversed(ring), TRIM_EVERY_EVENTS))
        blocks.append(weight)
        self._ring_bytes += weight
        self._unmeasured = 0
        while self._ring_bytes > MAX_RING_CHARACTERS or len(blocks) > RING_EVENTS // TRIM_EVERY_EVENTS:
            self._ring_bytes -= blocks.popleft()
            for _ in range(TRIM_EVERY_EVENTS):
                ring.popleft()

    def _clear_ring(self) -> None:
        self._ring.clear()
        self._blocks.clear()
        self._ring_bytes = 0
        self._unmeasured = 0

    def _cancel_release(self) -> None:
        if self._release is not None:
            self._release.cancel()
            self._release = None


class Subscription:
    """One reader's place on a bus, with a buffer of its own."""

    __slots__ = ("_bus", "_closed", "_dropped", "_next", "buffer", "min_events", "waiter")

    def __init__(self, bus: Bus, next_sequence: int) -> None:
        self._bus = bus
        self._next = next_sequence
        self._dropped = 0
        self._closed = False
        self.buffer: deque[Event] = deque(maxlen=BUFFER_EVENTS)
        self.waiter: asyncio.Future[None] | None = None
        self.min_events = 1
        """How many events the waiter waits for; it is woken by fewer when one of them is urgent."""

    @property
    def dropped(self) -> int:
        """Events lost so far, also those whose gap was not read yet."""
        return self._dropped + self._count_missing()

    async def take(self, limit: int = 64) -> list[Event]:
        """Wait for events and return up to `limit`, in order; an empty list when the bus was closed.

        A `Gap` stands before the first event that follows lost ones.
        """
        await self.wait(1)
        return self.read(limit)

    async def wait(self, min_events: int) -> None:
        """Return when so many events can be read, or an urgent one, or lost ones are told of, or the bus was closed."""
        if len(self.buffer) >= min_events or self._closed or self._count_missing():
            return
        if any(isinstance(event.body, _URGENT_BODIES) for event in self.buffer):
            return
        self.min_events = min_events
        self.waiter = asyncio.get_running_loop().create_future()
        try:
            await self.waiter
        finally:
            self.waiter = None

    def read(self, limit: int) -> list[Event]:
        """Return up to `limit` events that are there, as `take` does; an empty list when there are none."""
        events: list[Event] = []
        if lost := self._count_missing():
            self._dropped += lost
            if self._bus.observer is not None:
                self._bus.observer.on_lost(lost)
            events.append(self._gap(lost))
            self._next += lost
        while self.buffer and len(events) < limit:
            event = self.buffer.popleft()
            self._next = event.sequence + 1
            events.append(event)
        return events

    def wake(self) -> None:
        """Let a waiting `take` go on."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def close(self) -> None:
        """Take no more events; what is in the buffer can still be taken."""
        self._closed = True
        self._bus.unsubscribe(self)
        self.wake()

    def _count_missing(self) -> int:
        upcoming = self.buffer[0].sequence if self.buffer else self._bus.sequence + 1
        return 0 if self._closed and not self.buffer else upcoming - self._next

    def _gap(self, lost: int) -> Event:
        bus = self._bus
        return Event(bus.session_id, "", 0, time.time(), Gap(self._next, self._next + lost - 1))
