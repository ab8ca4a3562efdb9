"""Cost of an event in the in-memory channel, as counts that do not depend on the machine."""

import sys
from collections.abc import AsyncIterator
from types import FrameType
from typing import Any

from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceServicer, AgentServiceStub, add_AgentServiceServicer_to_server
from yarrow.wire.channel import InMemoryChannel, Registrar

CALLS_OF_AN_EVENT = 16.0
"""Python functions that are entered or gone on with, at both ends and in the event loop; 14.6 were measured."""


def response(number: int) -> pb.PromptResponse:
    return pb.PromptResponse(event=pb.AgentEvent(sequence=number, text_delta=pb.TextDelta(text=f"{number:04}")))


class Answering(AgentServiceServicer):
    """Answers a prompt with so many events as its text says."""

    async def Prompt(self, request: pb.PromptRequest, context: Any) -> AsyncIterator[pb.PromptResponse]:
        for number in range(int(request.text)):
            yield response(number)


async def calls(events: int) -> int:
    """The Python functions that are entered until a client has read so many events."""
    entered = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal entered
        entered += event == "call"

    registrar = Registrar()
    add_AgentServiceServicer_to_server(Answering(), registrar)  # pyright: ignore[reportAbstractUsage]
    async with InMemoryChannel(registrar) as channel:
        stub: Any = AgentServiceStub(channel)
        sys.setprofile(count)
        try:
            read = sum([1 async for _ in stub.Prompt(pb.PromptRequest(text=str(events)))])
        finally:
            sys.setprofile(None)
    assert read == events
    return entered


async def test_python_calls_of_an_event() -> None:
    few, many = await calls(1_000), await calls(5_000)
    assert (many - few) / 4_000 <= CALLS_OF_AN_EVENT
