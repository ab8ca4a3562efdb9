"""Measures what an event costs inside the process, in CPU time: published on the bus, and carried through `wire/`.

`python bench/events.py`: the channel is the one that the command line uses, with the generated stub at one end and a
generated servicer at the other. What it is beside is the same responses built and read without a channel.
"""

import argparse
import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from parts import Found, Table, Values, at_most, figure, in_turns, middle, parser, tell

from yarrow.event.bus import Bus
from yarrow.event.events import TextDelta
from yarrow.service.event_stream import MAX_BATCH_EVENTS
from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceServicer, AgentServiceStub, add_AgentServiceServicer_to_server
from yarrow.wire.channel import InMemoryChannel
from yarrow.wire.registrar import Registrar

PUBLISHED = 20_000
CARRIED = 20_000
SUBSCRIBERS = {1: 0.5, 10: None, 100: 20.0}
"""How many wait for what is published, and the goal in microseconds."""
CHANNEL = 6.0
"""The goal of one event to one response, in microseconds."""

Way = Callable[["Servicer"], AbstractAsyncContextManager[AsyncIterator[pb.PromptResponse]]]
"""Hands over what a servicer answers."""


def published(subscribers: int, events: int) -> float:
    """Microseconds of one publish; the buffers are full after a while, as behind readers that do not keep up."""
    bus = Bus("s")
    waiting = [bus.subscribe() for _ in range(subscribers)]
    body = TextDelta("abcd")
    began = time.process_time()
    for _ in range(events):
        bus.publish(body)
    spent = time.process_time() - began
    for one in waiting:
        one.close()
    return spent / events * 1e6


def built(size: int) -> pb.PromptResponse:
    """A response of so many events."""
    first, *more = (
        pb.AgentEvent(sequence=7, session_id="s", text_delta=pb.TextDelta(text="abcd")) for _ in range(size)
    )
    return pb.PromptResponse(event=first, more=more)


class Servicer(AgentServiceServicer):
    """Answers any prompt with the same events."""

    def __init__(self, events: int, batch: int) -> None:
        self._count, self._batch = events // batch, batch

    async def Prompt(self, request: pb.PromptRequest, context: Any) -> AsyncIterator[pb.PromptResponse]:  # noqa: N802
        del request, context
        for _ in range(self._count):
            yield built(self._batch)


@asynccontextmanager
async def bare(servicer: Servicer) -> AsyncGenerator[AsyncIterator[pb.PromptResponse]]:
    """The least there is: the handler's own generator."""
    yield servicer.Prompt(pb.PromptRequest(), None)


@asynccontextmanager
async def channel(servicer: Servicer) -> AsyncGenerator[AsyncIterator[pb.PromptResponse]]:
    registrar = Registrar()
    add_AgentServiceServicer_to_server(servicer, registrar)
    async with InMemoryChannel(registrar) as opened:
        stub: Any = AgentServiceStub(opened)
        yield stub.Prompt(pb.PromptRequest())


def carried(way: Way, events: int, batch: int) -> float:
    """Microseconds per event, all of the process: both ends, and the building."""

    async def read() -> float:
        servicer = Servicer(events, batch)  # pyright: ignore[reportAbstractUsage] (only to the type checker)
        async with way(servicer) as responses:
            began = time.process_time()
            count = sum([1 + len(response.more) async for response in responses])
            assert count == events
            return (time.process_time() - began) / events * 1e6

    return asyncio.run(read())


def measure(options: argparse.Namespace) -> Found:
    events = 2_000 if options.small else PUBLISHED
    bus = in_turns({str(count): lambda count=count: published(count, events) for count in SUBSCRIBERS}, options.runs)
    events = 2_048 if options.small else CARRIED // MAX_BATCH_EVENTS * MAX_BATCH_EVENTS
    ways: dict[str, Callable[[], float]] = {
        f"{name}, {batch} to a response": lambda way=way, batch=batch: carried(way, events, batch)
        for batch in (1, MAX_BATCH_EVENTS)
        for name, way in (("in-memory channel", channel), ("no channel", bare))
    }
    wire = in_turns(ways, options.runs)
    return Found([table(bus, wire)], {"publish": bus, "channel": wire})


def table(bus: Values, wire: Values) -> Table:
    rows = [
        (f"publish to {count}", figure(middle(bus[str(count)])), at_most(middle(bus[str(count)]), goal) if goal else "")
        for count, goal in SUBSCRIBERS.items()
    ]
    for name, values in wire.items():
        goal = at_most(middle(values), CHANNEL) if name == "in-memory channel, 1 to a response" else ""
        rows.append((name, figure(middle(values)), goal))
    return Table(("an event", "µs of CPU", "goal"), rows)


if __name__ == "__main__":
    given = parser(__doc__, runs=9).parse_args()
    tell(measure(given), given.json)
