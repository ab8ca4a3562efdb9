"""Readers of one event per second of a session, on COUNT connections: slow_readers.py SOCKET SESSION COUNT."""

import asyncio
import sys
from pathlib import Path

import grpc

from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceStub


async def read(socket: str, session: str) -> None:
    """Read until the process is killed."""
    metadata = (("authorization", f"Bearer {Path(f'{socket}.token').read_text().strip()}"),)
    # Use a separate connection that reads at most 64 KiB ahead.
    options = [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.http2.bdp_probe", 0),
        ("grpc.http2.lookahead_bytes", 65536),
    ]
    async with grpc.aio.insecure_channel(f"unix:{socket}", options) as channel:
        async for _ in AgentServiceStub(channel).StreamEvents(
            pb.StreamEventsRequest(session_id=session), metadata=metadata
        ):
            await asyncio.sleep(1)


async def main(socket: str, session: str, count: str) -> None:
    await asyncio.gather(*(read(socket, session) for _ in range(int(count))))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
