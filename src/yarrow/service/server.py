"""The service on a unix socket: who may reach it, what it bears, and how it ends."""

import asyncio
import os
import socket
import stat
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import grpc

from yarrow.errors import UsageError
from yarrow.service.servicer import Servicer
from yarrow.v1.agent_pb2_grpc import add_AgentServiceServicer_to_server

MAX_MESSAGE_IN = 8 << 20
"""Bytes of one request; a larger one is refused with RESOURCE_EXHAUSTED."""
MAX_MESSAGE_OUT = 32 << 20
"""Bytes of one response."""
MAX_STREAMS = 256
"""Calls at one time on one connection; the next waits for one to end."""
DRAIN_SECONDS = 30.0
"""How long runs may go on after the service was told to end; then they are aborted."""
MAX_SOCKET_PATH = 107
"""Bytes of a unix socket's path; the kernel takes no more."""

CLIENT_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_OUT),
    ("grpc.max_send_message_length", MAX_MESSAGE_IN),
)
"""Of a client's channel."""
OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_IN),
    ("grpc.max_send_message_length", MAX_MESSAGE_OUT),
    ("grpc.max_concurrent_streams", MAX_STREAMS),
    ("grpc.so_reuseport", 0),
)


@asynccontextmanager
async def serving(servicer: Servicer, path: Path) -> AsyncGenerator[None]:
    """Serve on a unix socket at `path` while the context is open; leaving it drains the service.

    Raises `UsageError` when the socket cannot be made safely.
    """
    _prepare(path)
    server = grpc.aio.server(options=OPTIONS)
    add_AgentServiceServicer_to_server(servicer, server)
    before = os.umask(0o077)
    try:
        server.add_insecure_port(f"unix:{path}")
        await server.start()
    except RuntimeError as error:
        raise UsageError(f"cannot listen on {path}: {error}") from error
    finally:
        os.umask(before)
    try:
        yield
    finally:
        servicer.drain()
        # Told to end a second time, it does not wait for runs any longer.
        with suppress(TimeoutError, asyncio.CancelledError):
            await asyncio.wait_for(servicer.settled(), DRAIN_SECONDS)
        await servicer.close()
        await server.stop(grace=1.0)
        path.unlink(missing_ok=True)


def _prepare(path: Path) -> None:
    """Make the socket's directory private and take away the socket of a service that is gone."""
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        raise UsageError(f"{path} is longer than the {MAX_SOCKET_PATH} bytes a socket's path may have")
    folder = path.parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise UsageError(f"cannot use {folder} for the socket: {error.strerror}") from error
    if found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise UsageError(
            f"{folder} must belong to you and be closed to others, since whoever reaches the socket runs commands as "
            f"you: chmod 700 {folder}, or name a path in a folder of its own"
        )
    if path.is_socket():
        if _answers(path):
            raise UsageError(f"a service is already listening on {path}")
        path.unlink()
    elif path.exists():
        raise UsageError(f"{path} exists and is not a socket")


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        return probe.connect_ex(os.fspath(path)) == 0
