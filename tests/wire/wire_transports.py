"""The transports that the conformance suite compares, and the little that every check needs."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import grpc
import pytest
from grpc import aio

from yarrow.service.tls_certificate import CERTIFICATE_NAME, create_certificate
from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceServicer, AgentServiceStub, add_AgentServiceServicer_to_server
from yarrow.wire.channel import InMemoryChannel, Registrar

if TYPE_CHECKING:
    from yarrow.v1.agent_pb2_grpc import AgentServiceAsyncStub

MIB = 1024 * 1024
PATIENCE = 10.0
"""Seconds after which something that must happen has not."""
QUIET = 0.1
"""Seconds without a change after which something has stopped."""


class Limits(NamedTuple):
    """Bytes of one message, into the service and out of it."""

    into: int = 8 * MIB
    out: int = 32 * MIB


DEFAULT_LIMITS = Limits()


class Peer(NamedTuple):
    """A client that is connected to the servicer of one check."""

    stub: "AgentServiceAsyncStub"
    channel: aio.Channel


class Serve(Protocol):
    """Connects a client to a servicer with the given methods; the fixture of every check."""

    async def __call__(self, *, limits: Limits = DEFAULT_LIMITS, **methods: Callable[..., Any]) -> Peer: ...


# ---- the transports, one row each ----

Connected = Callable[[AgentServiceServicer, Limits, Path], AbstractAsyncContextManager[aio.Channel]]


@asynccontextmanager
async def in_memory(servicer: AgentServiceServicer, limits: Limits, directory: Path) -> AsyncGenerator[aio.Channel]:
    registrar = Registrar()
    add_AgentServiceServicer_to_server(servicer, registrar)
    async with InMemoryChannel(
        registrar, max_message_bytes_in=limits.into, max_message_bytes_out=limits.out
    ) as channel:
        yield channel


@asynccontextmanager
async def connection(
    servicer: AgentServiceServicer,
    limits: Limits,
    directory: Path,
    *,
    listen: Callable[[aio.Server, Path], str],
    opened: Callable[..., aio.Channel] = aio.insecure_channel,
) -> AsyncGenerator[aio.Channel]:
    receive, send = "grpc.max_receive_message_length", "grpc.max_send_message_length"
    server = aio.server(options=((receive, limits.into), (send, limits.out)))
    add_AgentServiceServicer_to_server(servicer, server)
    address = listen(server, directory)
    await server.start()
    try:
        async with opened(address, options=((receive, limits.out), (send, limits.into))) as channel:
            yield channel
    finally:
        await server.stop(None)


def unix_socket(server: aio.Server, directory: Path) -> str:
    address = f"unix:{directory}/socket"
    server.add_insecure_port(address)
    return address


def tcp(server: aio.Server, directory: Path) -> str:
    return f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"


# Made once: it takes longer than most checks.
MADE = create_certificate()
TLS_NAME = ("grpc.ssl_target_name_override", CERTIFICATE_NAME)


def tls(server: aio.Server, directory: Path) -> str:
    return f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', MADE.credentials())}"


def over_tls(address: str, *, options: tuple[tuple[str, int], ...]) -> aio.Channel:
    return aio.secure_channel(address, grpc.ssl_channel_credentials(MADE.certificate), options=(TLS_NAME, *options))


TRANSPORTS: dict[str, Connected] = {
    "memory": in_memory,
    "unix": partial(connection, listen=unix_socket),
    "tcp": partial(connection, listen=tcp),
    "tls": partial(connection, listen=tls, opened=over_tls),
}


def servicer(methods: dict[str, Callable[..., Any]]) -> AgentServiceServicer:
    """Makes a servicer whose methods are the functions of one check; the others are not implemented."""
    members = {name: staticmethod(method) for name, method in methods.items()}
    return type("Servicer", (AgentServiceServicer,), members)()


def stub(channel: aio.Channel) -> "AgentServiceAsyncStub":
    return AgentServiceStub(channel)


# ---- messages and waits ----

STATE = pb.GetStateRequest(session_id="s")
PROMPT = pb.PromptRequest(session_id="s")


def event(sequence: int, text: str = "") -> pb.PromptResponse:
    return pb.PromptResponse(event=pb.AgentEvent(sequence=sequence, text_delta=pb.TextDelta(text=text)))


async def sequences(responses: AsyncIterable[pb.PromptResponse]) -> list[int]:
    return [response.event.sequence async for response in responses]


async def failure(outcome: Awaitable[object]) -> aio.AioRpcError:
    with pytest.raises(aio.AioRpcError) as caught:
        await asyncio.wait_for(outcome, PATIENCE)
    return caught.value


T = TypeVar("T")


async def soon(outcome: Awaitable[T]) -> T:
    return await asyncio.wait_for(outcome, PATIENCE)


async def stopped(measure: Callable[[], int]) -> int:
    """Waits until a number has not changed for a while, and returns it."""
    last = -1
    while (now := measure()) != last:
        last = now
        await asyncio.sleep(QUIET)
    return now
