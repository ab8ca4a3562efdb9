"""Follows a session for one stream: its events as they come, and a heartbeat while a run is silent."""

import asyncio
import time
from contextlib import suppress

from yarrow.event.bus import Subscription
from yarrow.event.events import AgentEnd, Event, Heartbeat, PermissionRequest
from yarrow.service.entry import Entry

BATCH_EVENTS = 64
"""Events in one response of a client that asked for batches; `BATCH_BYTES` bounds them too."""
BATCH_SECONDS = 0.005
"""How long such a client waits for more events once there is one."""
_URGENT = (AgentEnd, PermissionRequest)
"""What somebody waits for: it goes out at once."""


async def take(entry: Entry, subscription: Subscription, heartbeat: float, *, window: float = 0.0) -> list[Event]:
    """Wait for the next events; an empty list when the bus was closed.

    After `heartbeat` seconds without any while a run goes on, the one event is a `Heartbeat`; 0 sends none. What comes
    within `window` seconds of the first is taken too, up to `BATCH_EVENTS`; 0 takes what is there.
    """
    events = await _first(entry, subscription, heartbeat)
    if not window or not events:
        return events
    with suppress(TimeoutError):
        async with asyncio.timeout(window):
            more = events
            while len(events) < BATCH_EVENTS and not any(isinstance(event.body, _URGENT) for event in more):
                more = await subscription.take(BATCH_EVENTS - len(events))
                if not more:
                    break
                events += more
    return events


async def _first(entry: Entry, subscription: Subscription, heartbeat: float) -> list[Event]:
    if not heartbeat:
        return await subscription.take()
    while True:
        try:
            async with asyncio.timeout(heartbeat):
                return await subscription.take()
        except TimeoutError:
            if entry.agent.busy:
                return [Event(entry.id, entry.agent.run_id, 0, time.time(), Heartbeat())]
