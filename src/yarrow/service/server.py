"""gRPC server of the service: its addresses, limits, health and shutdown."""

import asyncio
import os
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
from grpc_health.v1.health_pb2 import HealthCheckResponse
from msgspec import Struct

from yarrow.config.settings import ServiceSettings
from yarrow.errors import UsageError
from yarrow.platform import system
from yarrow.service.authentication import TokenInterceptor
from yarrow.service.grpc_options import make_server_options
from yarrow.service.rpc_middleware import Context, preload_details, register_service
from yarrow.service.servicer import Servicer
from yarrow.service.tls_certificate import TlsCertificate
from yarrow.v1 import agent_pb2 as pb

HEALTH_SERVICE_NAME = "grpc.health.v1.Health"
MAX_WATCHES = 256
"""Maximum concurrent health watches, which need no token; the next is refused."""


class HealthService:
    """Health of the whole service, for callers without a token.

    The response is the same whatever name is requested: requests are never read, since an unauthenticated one could be
    as long as the longest prompt.
    """

    def __init__(self, server: grpc.aio.Server) -> None:
        self._ended = asyncio.Event()
        self._watches = 0
        # As streams of requests, because grpc waits for the request of any other kind.
        handlers: Any = {"Check": self._handler(self._check), "Watch": self._handler(self._watch)}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(HEALTH_SERVICE_NAME, handlers),))

    def stop_serving(self) -> None:
        """Report that no more calls are accepted."""
        self._ended.set()

    async def _check(self, _: object, context: Context) -> None:
        await context.write(self._status)

    async def _watch(self, _: object, context: Context) -> None:
        if self._watches >= MAX_WATCHES:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, f"{MAX_WATCHES} streams already watch: call Check")
        self._watches += 1
        try:
            await context.write(self._status)
            if not self._ended.is_set():
                await self._ended.wait()
                await context.write(self._status)
            # A client would watch again immediately if this ended before the service does.
            await asyncio.Event().wait()
        finally:
            self._watches -= 1

    @property
    def _status(self) -> HealthCheckResponse:
        return HealthCheckResponse(
            status=HealthCheckResponse.NOT_SERVING if self._ended.is_set() else HealthCheckResponse.SERVING
        )

    @staticmethod
    def _handler(answer: Any) -> Any:
        serializer = HealthCheckResponse.SerializeToString
        return grpc.stream_stream_rpc_method_handler(answer, response_serializer=serializer)  # pyright: ignore[reportUnknownVariableType] (the stubs know no asynchronous handler)


DRAIN_SECONDS = 30.0
"""Grace period in seconds for runs after the shutdown started; then they are aborted."""
HEARTBEAT_SECONDS = 5.0
"""Seconds without another event after which a stream of a running session gets a heartbeat."""
MAX_SOCKET_PATH_BYTES = 107
"""Maximum bytes of a unix socket's path, a limit of the kernel."""
SERVICE_NAME = pb.DESCRIPTOR.services_by_name["AgentService"].full_name


class TcpAddress(Struct, frozen=True):
    """A network address and its certificate; without one the service does not listen on a network."""

    address: str
    """`HOST:PORT`; port 0 uses any free port."""
    tls: TlsCertificate


class ListenConfig(Struct, frozen=True):
    """Addresses of a service, and the token and limits for its clients."""

    socket: Path
    token: str
    limits: ServiceSettings = ServiceSettings()
    tcp: TcpAddress | None = None
    reflection: bool = False
    """Allow clients with the token to list the methods."""
    heartbeat: float = HEARTBEAT_SECONDS


@asynccontextmanager
async def run_server(servicer: Servicer, config: ListenConfig) -> AsyncGenerator[tuple[str, ...]]:
    """Serve while the context is open, which yields the addresses; leaving it drains the service.

    Raises `UsageError` if a socket cannot be created, or only insecurely.
    """
    make_private_folder(config.socket)
    with _lock_socket(config.socket):
        _remove_stale_socket(config.socket)
        async with _run_locked(servicer, config) as addresses:
            yield addresses


@asynccontextmanager
async def _run_locked(servicer: Servicer, config: ListenConfig) -> AsyncGenerator[tuple[str, ...]]:
    preload_details()
    server = grpc.aio.server(
        interceptors=(TokenInterceptor(config.token, servicer.refusal_log),), options=make_server_options(config.limits)
    )
    register_service(servicer.handlers, server)
    health = HealthService(server)
    if config.reflection:
        _enable_reflection(server)
    addresses = await _listen(server, config)
    watching = _watch_connections(servicer, addresses, config)
    servicer.streams.heartbeat = config.heartbeat
    try:
        yield addresses
    finally:
        if watching is not None:
            watching.cancel()
        servicer.drain()
        # A second signal ends the wait for runs.
        with suppress(TimeoutError, asyncio.CancelledError):
            health.stop_serving()
            await asyncio.wait_for(servicer.wait_until_idle(), DRAIN_SECONDS)
        await servicer.close()
        await server.stop(grace=1.0)
        config.socket.unlink(missing_ok=True)


def _watch_connections(
    servicer: Servicer, addresses: tuple[str, ...], config: ListenConfig
) -> "asyncio.Task[None] | None":
    """Start watching the number of network connections; the serving context owns the task."""
    if config.tcp is None:
        return None
    port = int(addresses[-1].rpartition(":")[2])
    return asyncio.create_task(servicer.refusal_log.watch_connections(port, config.limits.connections))


def _enable_reflection(server: grpc.aio.Server) -> None:
    # Imported lazily, since it is rarely enabled.
    from grpc_reflection.v1alpha import reflection

    reflection.enable_server_reflection((SERVICE_NAME, reflection.SERVICE_NAME), server)


async def _listen(server: grpc.aio.Server, config: ListenConfig) -> tuple[str, ...]:
    addresses: list[str] = []
    place = ""
    before = os.umask(0o077)
    try:
        if tcp := config.tcp:
            place = tcp.address
            port = server.add_secure_port(place, tcp.tls.credentials())
            addresses.append(f"{place.rpartition(':')[0]}:{port}")
        place = str(config.socket)
        server.add_insecure_port(f"unix:{place}")
        await server.start()
    except RuntimeError as error:
        await server.stop(None)
        # grpc reports the cause only in its own log.
        causes = "check that the address is free and local, and that certificate and key match"
        raise UsageError(f"cannot listen on {place}: {causes}") from error
    finally:
        os.umask(before)
    return (f"unix:{config.socket}", *addresses)


def lock_path_for(socket: Path) -> Path:
    """Return the file that a service locks while it owns the socket; it is never deleted, or two could own it."""
    return socket.with_name(f"{socket.name}.lock")


@contextmanager
def _lock_socket(path: Path) -> Generator[None]:
    """Hold the socket's path exclusively, from before it is checked until after it is removed.

    The socket alone does not show its owner: neither a new service nor one that is ending answers on it.
    """
    beside = lock_path_for(path)
    try:
        descriptor = os.open(beside, os.O_RDWR | os.O_CREAT | system.BASE_FLAGS | system.NOFOLLOW, 0o600)
    except OSError as error:
        raise UsageError(f"cannot use {beside} for the socket: {error.strerror}") from error
    try:
        try:
            system.try_lock(descriptor)
        except BlockingIOError as error:
            raise UsageError(f"a service is already listening on {path}, or is still shutting down") from error
        yield
    finally:
        os.close(descriptor)


def _remove_stale_socket(path: Path) -> None:
    """Remove the socket of a service that is gone."""
    if path.is_socket():
        if system.is_socket_listening(path):
            raise UsageError(f"a service is already listening on {path}")
        path.unlink()
    elif path.exists():
        raise UsageError(f"{path} exists and is not a socket")


def make_private_folder(path: Path) -> None:
    """Create the directory of a socket, closed to other users. Raises `UsageError` if it is open to them."""
    if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
        raise UsageError(f"{path} is longer than {MAX_SOCKET_PATH_BYTES} bytes, the limit: use a shorter path")
    folder = path.parent
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
    except OSError as error:
        raise UsageError(f"cannot use {folder} for the socket: {error.strerror}") from error
    if not (system.is_owned(found) and system.is_private_mode(found.st_mode)):
        raise UsageError(
            f"you must own {folder} and others must have no access, because the socket lets them run commands as you: "
            f"chmod 700 {folder}, or use a path in a separate directory"
        )
