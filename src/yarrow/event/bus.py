"""Event bus of one session: publishing never waits, and a slow reader loses the oldest events and gets a gap event."""

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
"""Maximum events buffered per subscriber; the oldest is dropped, so that the end of a run always arrives."""
RING_EVENTS = 4096
"""Maximum events kept for late or reconnecting subscribers; the oldest is dropped."""
MAX_RING_CHARACTERS = 1 << 20
"""Maximum characters of text in the kept events; the oldest are dropped."""
RING_SECONDS = 60.0
"""Seconds for which the events of a run are kept after its end."""
TRIM_EVERY_EVENTS = 64
"""Block size in events for measuring and trimming the ring; doing it per event would double the cost."""

_URGENT_BODIES = (AgentEnd, PermissionRequest)
"""Events that wake a waiting subscriber at once."""
_TEXT_BODIES = (TextDelta, ToolDelta, ThinkingDelta, AgentStart)


def _count_characters(events: Iterable[Event]) -> int:
    weight = 0
    for event in events:
        # Only these kinds contain text of any length; the others are small and bounded.
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
    """Measures the activity of one session. It is called during a run and must neither wait nor raise."""

    def on_event(self, event: Event) -> None:
        """Observe an event of the session."""
        ...

    def on_lost(self, events: int) -> None:
        """Record that a subscriber lost this many events."""
        ...

    def tool_span(self, tool_call_id: str) -> AbstractContextManager[None]:
        """Return a context manager to hold open while a tool runs, which no event reports."""
        ...


class Bus:
    """The events of one session, in order. Must be used from one event loop."""

    def __init__(
        self, session_id: str, *, now: Callable[[], float] = time.time, observer: Observer | None = None
    ) -> None:
        self.session_id = session_id
        self.observer = observer
        """Observer of the session; None if it is not measured."""
        self.sequence = 0
        """Sequence number of the last published event."""
        self._run_id = ""
        self._now = now
        self._subscribers: tuple[Subscription, ...] = ()
        self._ring: deque[Event] = deque()
        self._blocks: deque[int] = deque()
        self._ring_bytes = 0
        self._unmeasured = 0
        self._release: asyncio.TimerHandle | None = None

    def publish(self, body: Body) -> None:
        """Number the event and deliver it to every subscriber; never waits."""
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
        """Assign later events to a run; drop the events kept of the previous run."""
        self._cancel_release()
        self._run_id = run_id
        self._clear_ring()

    def end_run(self) -> None:
        """Assign later events to no run; drop the run's events after `RING_SECONDS`."""
        self._run_id = ""
        self._cancel_release()
        self._release = asyncio.get_running_loop().call_later(RING_SECONDS, self._clear_ring)

    def subscribe(self, after: int | None = None) -> "Subscription":
        """Return a subscription to the events after sequence `after`, or to those published from now on.

        If the kept events do not reach back to `after`, the first event is a `Gap`.
        """
        start = self.sequence if after is None else min(after, self.sequence)
        subscription = Subscription(self, start + 1)
        subscription.buffer.extend(event for event in self._ring if event.sequence > start)
        self._subscribers = (*self._subscribers, subscription)
        return subscription

    def unsubscribe(self, subscription: "Subscription") -> None:
        """Remove a subscription; has no effect if it is already removed."""
        self._subscribers = tuple(one for one in self._subscribers if one is not subscription)

    @property
    def subscribers(self) -> int:
        """Number of subscribers."""
        return len(self._subscribers)

    def count_drops(self) -> tuple[int, ...]:
        """Return the number of lost events per current subscriber."""
        return tuple(subscription.dropped for subscription in self._subscribers)

    def close(self) -> None:
        """Close every subscription; buffered events can still be read."""
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
    """One reader's position on a bus, with its own buffer."""

    __slots__ = ("_bus", "_closed", "_dropped", "_next", "buffer", "min_events", "waiter")

    def __init__(self, bus: Bus, next_sequence: int) -> None:
        self._bus = bus
        self._next = next_sequence
        self._dropped = 0
        self._closed = False
        self.buffer: deque[Event] = deque(maxlen=BUFFER_EVENTS)
        self.waiter: asyncio.Future[None] | None = None
        self.min_events = 1
        """Number of events to wait for; an urgent event ends the wait earlier."""

    @property
    def dropped(self) -> int:
        """Number of lost events, including those whose gap is still unread."""
        return self._dropped + self._count_missing()

    async def take(self, limit: int = 64) -> list[Event]:
        """Wait for events and return up to `limit`, in order; an empty list if the bus is closed.

        A `Gap` precedes the first event after lost ones.
        """
        await self.wait(1)
        return self.read(limit)

    async def wait(self, min_events: int) -> None:
        """Return when that many events, an urgent one or a gap can be read, or when the bus is closed."""
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
        """Return up to `limit` buffered events, as `take` does, without waiting; empty if there are none."""
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
        """Wake a waiting `take`."""
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def close(self) -> None:
        """Accept no more events; buffered ones can still be read."""
        self._closed = True
        self._bus.unsubscribe(self)
        self.wake()

    def _count_missing(self) -> int:
        upcoming = self.buffer[0].sequence if self.buffer else self._bus.sequence + 1
        return 0 if self._closed and not self.buffer else upcoming - self._next

    def _gap(self, lost: int) -> Event:
        bus = self._bus
        return Event(bus.session_id, "", 0, time.time(), Gap(self._next, self._next + lost - 1))
