"""Event stream of a session: its events as they occur, and a heartbeat during a silent run."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from yarrow.event.bus import Subscription
from yarrow.event.events import Event, Heartbeat
from yarrow.service.loaded_session import LoadedSession, Response, batch_responses

MAX_BATCH_EVENTS = 64
"""Maximum events in one response to a client that requested batches; `MAX_BATCH_BYTES` limits them too."""
BATCH_SECONDS = 0.005
"""Seconds to wait for more events for such a client, after the first."""


class EventStreams:
    """Settings of all event streams of a service."""

    def __init__(self) -> None:
        self.heartbeat = 0.0
        """Seconds between heartbeats on silent streams; 0 sends none, as in the client's process."""
        self.batch_window = BATCH_SECONDS
        self.epoch = os.urandom(16).hex()
        """Random id of this process; sequence numbers of another process mean nothing here."""

    async def next_events(
        self, entry: LoadedSession, subscription: Subscription, *, batch: bool = False
    ) -> list[Event]:
        """Wait for the next events; an empty list means that the bus was closed.

        After `heartbeat` seconds without events during a run, the only event is a `Heartbeat`. For a client that
        requested batches, events within `batch_window` seconds of the first are included, up to `MAX_BATCH_EVENTS` or
        an urgent one; for others only those already waiting.
        """
        if not await _wait_for_event(entry, subscription, self.heartbeat):
            return [Event(entry.id, entry.agent.run_id, 0, time.time(), Heartbeat())]
        if batch and self.batch_window:
            with suppress(TimeoutError):
                async with asyncio.timeout(self.batch_window):
                    await subscription.wait(MAX_BATCH_EVENTS)
        return subscription.read(MAX_BATCH_EVENTS)

    @staticmethod
    def responses(
        entry: LoadedSession, events: Sequence[Event], *, batch: bool, make: Callable[[], Response]
    ) -> Iterator[Response]:
        """Yield the responses that carry the events, one event each unless the client requested batches."""
        return batch_responses(entry, events, limit=MAX_BATCH_EVENTS if batch else 1, make=make)


async def _wait_for_event(entry: LoadedSession, subscription: Subscription, heartbeat: float) -> bool:
    """Return True if there is something to read, False after a silent interval of a run."""
    if not heartbeat:
        await subscription.wait(1)
        return True
    while True:
        try:
            async with asyncio.timeout(heartbeat):
                await subscription.wait(1)
        except TimeoutError:
            if entry.agent.busy:
                return False
        else:
            return True
