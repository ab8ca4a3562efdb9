"""Benchmark of an event within the process, in CPU time: publishing on the bus, and transport through `wire/`.

`python bench/events.py`: the channel is that of the command line, with the generated stub at one end and a generated
servicer at the other. It is compared to building and reading the same responses without a channel.
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
from yarrow.wire.channel import InMemoryChannel, Registrar

PUBLISHED = 20_000
CARRIED = 20_000
SUBSCRIBERS = {1: 0.5, 10: None, 100: 20.0}
"""Number of subscribers, and the goal in microseconds."""
CHANNEL = 6.0
"""Goal in microseconds per event, with one event per response."""

Way = Callable[["Servicer"], AbstractAsyncContextManager[AsyncIterator[pb.PromptResponse]]]
"""Transport of a servicer's responses."""


def published(subscribers: int, events: int) -> float:
    """Return the microseconds per publish; the buffers fill up, as with readers that lag behind."""
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
    """Return a response of `size` events."""
    first, *more = (
        pb.AgentEvent(sequence=7, session_id="s", text_delta=pb.TextDelta(text="abcd")) for _ in range(size)
    )
    return pb.PromptResponse(event=first, more=more)


class Servicer(AgentServiceServicer):
    """Answers every prompt with the same events."""

    def __init__(self, events: int, batch: int) -> None:
        self._count, self._batch = events // batch, batch

    async def Prompt(self, request: pb.PromptRequest, context: Any) -> AsyncIterator[pb.PromptResponse]:  # noqa: N802
        del request, context
        for _ in range(self._count):
            yield built(self._batch)


@asynccontextmanager
async def bare(servicer: Servicer) -> AsyncGenerator[AsyncIterator[pb.PromptResponse]]:
    """The minimum: the generator of the handler itself."""
    yield servicer.Prompt(pb.PromptRequest(), None)


@asynccontextmanager
async def channel(servicer: Servicer) -> AsyncGenerator[AsyncIterator[pb.PromptResponse]]:
    registrar = Registrar()
    add_AgentServiceServicer_to_server(servicer, registrar)
    async with InMemoryChannel(registrar) as opened:
        stub: Any = AgentServiceStub(opened)
        yield stub.Prompt(pb.PromptRequest())


def carried(way: Way, events: int, batch: int) -> float:
    """Return the microseconds per event of the whole process: both ends, and building the events."""

    async def read() -> float:
        servicer = Servicer(events, batch)  # pyright: ignore[reportAbstractUsage] (abstract only to the type checker)
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
