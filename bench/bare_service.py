"""Floor for events of a service: gRPC's Python implementation alone; `python bench/bare_service.py SOCKET DELTAS`.

Answers each prompt with DELTAS deltas created in advance, or with as many in batches.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator

import grpc

from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceServicer, add_AgentServiceServicer_to_server

BATCH = 64


def event(number: int) -> pb.AgentEvent:
    text = pb.TextDelta(text="abcd")
    return pb.AgentEvent(session_id="s" * 36, run_id="r" * 36, sequence=number + 1, text_delta=text)


class Bare(AgentServiceServicer):  # the other calls answer that they are not implemented
    def __init__(self, deltas: int) -> None:
        events = [event(number) for number in range(deltas)]
        batches = [events[at : at + BATCH] for at in range(0, deltas, BATCH)]
        self._singly = [pb.PromptResponse(event=one) for one in events]
        self._batched = [pb.PromptResponse(event=first, more=more) for first, *more in batches]

    async def Prompt(self, request: pb.PromptRequest, context: object) -> AsyncGenerator[pb.PromptResponse]:  # noqa: ARG002, N802 (name required by gRPC)
        for response in self._batched if request.options.batch else self._singly:
            yield response


async def serve(socket: str, deltas: int) -> None:
    server = grpc.aio.server()
    add_AgentServiceServicer_to_server(Bare(deltas), server)  # pyright: ignore[reportAbstractUsage]
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    print("serving", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], int(sys.argv[2])))
