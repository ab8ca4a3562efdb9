"""Opens what a command talks to: the service of this process or one that runs elsewhere, and there a session."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NamedTuple

import grpc

from yarrow.cli.arguments import Arguments
from yarrow.cli.compose import compose
from yarrow.cli.places import absolute
from yarrow.client.failure import refusal
from yarrow.client.session import Session, find_session, make_session, newest_session, open_session
from yarrow.client.stub import Stub
from yarrow.config.layers import Loaded
from yarrow.errors import Code, ProviderError
from yarrow.extension.load import Extensions
from yarrow.service.server import CLIENT_OPTIONS
from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceStub, add_AgentServiceServicer_to_server
from yarrow.wire.channel import InMemoryChannel
from yarrow.wire.registrar import Registrar


class Start(NamedTuple):
    """What a command begins with."""

    arguments: Arguments
    loaded: Loaded
    extensions: Extensions
    """None are loaded for a service that runs elsewhere: it has its own."""
    out: int = 1
    """The descriptor that the answer is written to: one of our own where extensions may print."""


@asynccontextmanager
async def opened(start: Start) -> AsyncGenerator[Stub]:
    """Open the service: one of this process over an in-memory channel, or a running one at its socket."""
    if attach := start.arguments.attach:
        address = attach if ":" in attach else f"unix:{absolute(attach, '--attach')}"
        async with grpc.aio.insecure_channel(address, options=CLIENT_OPTIONS) as channel:
            try:
                yield AgentServiceStub(channel)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE or refusal(error).reason:
                    raise
                sentence = f"no service answers at {address}: start one with yarrow serve --socket PATH"
                raise ProviderError(Code.UNREACHABLE, sentence) from None
        return
    servicer = compose(start.loaded.settings, os.environ, start.extensions.added)
    registrar = Registrar()
    add_AgentServiceServicer_to_server(servicer, registrar)
    try:
        async with InMemoryChannel(registrar) as channel:
            yield AgentServiceStub(channel)
    finally:
        # A run that was interrupted is recorded to its end before the process goes.
        await servicer.close()
        await start.extensions.close()


async def chosen(stub: Stub, arguments: Arguments, request: pb.PromptRequest) -> Session:
    """Return the session that flags name, else a new one. Raises `aio.AioRpcError` and `SessionNotFound`."""
    if not arguments.newest and not arguments.resume:
        return await make_session(stub, request)
    resume = arguments.resume
    session_id = await find_session(stub, resume) if resume else await newest_session(stub, request.cwd)
    return await open_session(stub, session_id, request.settings)
