"""Event stream of a session: its events as they occur, and a heartbeat during a silent run."""

import asyncio
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TypeVar

from yarrow.event.bus import Subscription
from yarrow.event.events import Event, Heartbeat
from yarrow.service.loaded_session import LoadedSession
from yarrow.service.translation import fill_event
from yarrow.v1 import agent_pb2 as pb

Response = TypeVar("Response", pb.PromptResponse, pb.StreamEventsResponse)

MAX_BATCH_EVENTS = 64
"""Maximum events in one response to a client that requested batches; `MAX_BATCH_BYTES` limits them too."""
MAX_BATCH_BYTES = 1 << 20
"""Maximum bytes of events in one response, unless it has only one event."""
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
        return (_batch_responses if batch else _single_responses)(entry, events, make)


async def _wait_for_event(entry: LoadedSession, subscription: Subscription, heartbeat: float) -> bool:
    """Return True if there is something to read, False after a silent interval of a run."""
    if not heartbeat or subscription.buffer:  # a timer costs more than all else here
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


def _single_responses(
    entry: LoadedSession, events: Sequence[Event], make: Callable[[], Response]
) -> Iterator[Response]:
    """Yield a response for each event."""
    fill = _event_filler(entry)
    for event in events:
        response = make()
        fill(response.event, event)
        yield response


def _batch_responses(entry: LoadedSession, events: Sequence[Event], make: Callable[[], Response]) -> Iterator[Response]:
    """Yield responses of at most `MAX_BATCH_EVENTS` and `MAX_BATCH_BYTES`; a single event may be larger."""
    fill = _event_filler(entry)
    response, count, size = make(), 0, 0
    for event in events:
        if count == MAX_BATCH_EVENTS:
            yield response
            response, count, size = make(), 0, 0
        place = response.more.add() if count else response.event
        fill(place, event)
        count += 1
        size += place.ByteSize()
        if size > MAX_BATCH_BYTES and count > 1:
            following = make()
            following.event.CopyFrom(place)
            del response.more[-1]
            yield response
            response, count, size = following, 1, following.ByteSize()
    if count:
        yield response


def _event_filler(entry: LoadedSession) -> Callable[[pb.AgentEvent, Event], None]:
    """Return the function that fills an empty message with an event: from the session's cache if several clients read.

    For a single one the cache would only cost a copy.
    """
    if entry.bus.subscribers == 1:
        return fill_event
    return lambda place, event: place.CopyFrom(entry.translate(event))
