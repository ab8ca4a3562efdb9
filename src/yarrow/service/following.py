"""Follows a session for one stream: its events as they come, and a heartbeat while a run is silent."""

import asyncio
import time

from yarrow.event.bus import Subscription
from yarrow.event.events import Event, Heartbeat
from yarrow.service.entry import Entry


async def take(entry: Entry, subscription: Subscription, heartbeat: float) -> list[Event]:
    """Wait for the next events; an empty list when the bus was closed.

    After `heartbeat` seconds without any while a run goes on, the one event is a `Heartbeat`; 0 sends none.
    """
    if not heartbeat:
        return await subscription.take()
    while True:
        try:
            async with asyncio.timeout(heartbeat):
                return await subscription.take()
        except TimeoutError:
            if entry.agent.busy:
                return [Event(entry.id, entry.agent.run_id, 0, time.time(), Heartbeat())]
