"""Event stream of a session: its events as they occur, and a heartbeat during a silent run."""

import asyncio
import time
from contextlib import suppress

from yarrow.event.bus import Subscription
from yarrow.event.events import Event, Heartbeat
from yarrow.service.loaded_session import LoadedSession

MAX_BATCH_EVENTS = 64
"""Maximum events in one response to a client that requested batches; `MAX_BATCH_BYTES` limits them too."""
BATCH_SECONDS = 0.005
"""Seconds to wait for more events for such a client, after the first."""


async def next_events(
    entry: LoadedSession, subscription: Subscription, heartbeat: float, *, window: float = 0.0
) -> list[Event]:
    """Wait for the next events; an empty list means that the bus was closed.

    After `heartbeat` seconds without events during a run, the only event is a `Heartbeat`; 0 sends none. Events within
    `window` seconds of the first are included, up to `MAX_BATCH_EVENTS` or an urgent one; 0 includes only those already
    waiting.
    """
    if not await _wait_for_event(entry, subscription, heartbeat):
        return [Event(entry.id, entry.agent.run_id, 0, time.time(), Heartbeat())]
    if window:
        with suppress(TimeoutError):
            async with asyncio.timeout(window):
                await subscription.wait(MAX_BATCH_EVENTS)
    return subscription.read(MAX_BATCH_EVENTS)


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
