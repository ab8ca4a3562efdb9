"""Follows a session for one stream: its events as they come, and a heartbeat while a run is silent."""

import asyncio
import time
from contextlib import suppress

from yarrow.event.bus import Subscription
from yarrow.event.events import Event, Heartbeat
from yarrow.service.loaded_session import LoadedSession

MAX_BATCH_EVENTS = 64
"""Events in one response of a client that asked for batches; `MAX_BATCH_BYTES` bounds them too."""
BATCH_SECONDS = 0.005
"""How long such a client waits for more events once there is one."""


async def next_events(
    entry: LoadedSession, subscription: Subscription, heartbeat: float, *, window: float = 0.0
) -> list[Event]:
    """Wait for the next events; an empty list when the bus was closed.

    After `heartbeat` seconds without any while a run goes on, the one event is a `Heartbeat`; 0 sends none. What comes
    within `window` seconds of the first is taken too, up to `MAX_BATCH_EVENTS` and to what is urgent; 0 takes what is
    there.
    """
    if not await _wait_for_event(entry, subscription, heartbeat):
        return [Event(entry.id, entry.agent.run_id, 0, time.time(), Heartbeat())]
    if window:
        with suppress(TimeoutError):
            async with asyncio.timeout(window):
                await subscription.wait(MAX_BATCH_EVENTS)
    return subscription.read(MAX_BATCH_EVENTS)


async def _wait_for_event(entry: LoadedSession, subscription: Subscription, heartbeat: float) -> bool:
    """Return when there is something to read; False when a run was silent for so long."""
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
