"""In-memory channel for grpc.aio stubs, and its registrar of handlers."""

import asyncio
import contextvars
from collections.abc import Callable, Coroutine, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Never, Self, TypeVar

import grpc
from grpc import aio

from yarrow.wire.rpc_call_state import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    MAX_METADATA_BYTES,
    METADATA_TOO_LARGE,
    Rpc,
    checked,
    size,
)
from yarrow.wire.server_context import as_is, serve
from yarrow.wire.stub_methods import Method, Pairs, StreamStream, StreamUnary, UnaryStream, UnaryUnary


class Registrar(aio.Server):
    """Handlers by method path, for `InMemoryChannel`; it opens no port and needs no start."""

    def __init__(self) -> None:
        self._handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}

    def handler(self, path: str) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """Return the handler of `/package.Service/Method`, None if it is not registered."""
        return self._handlers.get(path)

    def add_registered_method_handlers(
        self, service_name: str, method_handlers: "Mapping[str, grpc.RpcMethodHandler[Any, Any]]"
    ) -> None:
        """Register the handlers of one service by their names."""
        self._handlers |= {f"/{service_name}/{name}": handler for name, handler in method_handlers.items()}

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Do nothing: generated code registers the same handlers by name."""

    def add_insecure_port(self, address: str) -> Never:
        """Raise UsageError: there are no ports in memory."""
        raise aio.UsageError(f"cannot listen on {address}: a registrar serves this process only")

    def add_secure_port(self, address: str, server_credentials: grpc.ServerCredentials) -> Never:
        """Raise UsageError: there are no ports in memory."""
        del server_credentials
        self.add_insecure_port(address)

    async def start(self) -> None:
        """Do nothing: calls arrive once a channel exists."""

    async def stop(self, grace: float | None) -> None:
        """Do nothing: the channel owns the running handlers, and its `close` ends them."""

    async def wait_for_termination(self, timeout: float | None = None) -> bool:  # noqa: ASYNC109 grpc's signature
        """Return False immediately: nothing was started that could still run."""
        del timeout
        return False


MAX_MESSAGE_BYTES_IN = 8 * 1024 * 1024
"""Maximum bytes of one request; a larger one ends its call with RESOURCE_EXHAUSTED."""

MAX_MESSAGE_BYTES_OUT = 32 * 1024 * 1024
"""Maximum bytes of one response; a larger one ends its call with RESOURCE_EXHAUSTED."""

Q = TypeVar("Q")
R = TypeVar("R")


class InMemoryChannel(aio.Channel):
    """A channel whose server end is a registrar; it owns the handlers of its calls."""

    def __init__(
        self,
        registrar: Registrar,
        *,
        max_message_bytes_in: int = MAX_MESSAGE_BYTES_IN,
        max_message_bytes_out: int = MAX_MESSAGE_BYTES_OUT,
    ) -> None:
        self.max_message_bytes_in = max_message_bytes_in
        self._max_message_bytes_out = max_message_bytes_out
        self._registrar = registrar
        self._rpcs: set[Rpc] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self, grace: float | None = None) -> None:
        """Refuse new calls, wait `grace` seconds for those in flight, cancel the rest and wait for their handlers."""
        self._closed.set()
        if grace and self._tasks:
            await asyncio.wait(self._tasks, timeout=grace)
        for rpc in tuple(self._rpcs):
            rpc.terminate(CANCELLED)
        for task in self._tasks:
            if not task.cancelling():
                task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:  # noqa: FBT001, FBT002 grpc's signature
        """Return READY, or SHUTDOWN once the channel is closed."""
        del try_to_connect
        return grpc.ChannelConnectivity.SHUTDOWN if self._closed.is_set() else grpc.ChannelConnectivity.READY

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait until the state differs from the given one; the only change is the close."""
        if last_observed_state is self.get_state():
            await self._closed.wait()

    async def channel_ready(self) -> None:
        """Return immediately: there is nothing to connect."""

    # ---- called by the stub's constructor ----

    def unary_unary(
        self,
        method: str,
        request_serializer: Callable[[Q], bytes] | None = None,
        response_deserializer: Callable[[bytes], R] | None = None,
        *,
        _registered_method: bool = False,
    ) -> UnaryUnary[Q, R]:
        """Return the callable of a method with one request and one response."""
        return UnaryUnary(self._method(method, request_serializer, response_deserializer))

    def unary_stream(
        self,
        method: str,
        request_serializer: Callable[[Q], bytes] | None = None,
        response_deserializer: Callable[[bytes], R] | None = None,
        *,
        _registered_method: bool = False,
    ) -> UnaryStream[Q, R]:
        """Return the callable of a method with many responses to one request."""
        return UnaryStream(self._method(method, request_serializer, response_deserializer))

    def stream_unary(
        self,
        method: str,
        request_serializer: Callable[[Q], bytes] | None = None,
        response_deserializer: Callable[[bytes], R] | None = None,
        *,
        _registered_method: bool = False,
    ) -> StreamUnary[Q, R]:
        """Return the callable of a method with many requests and one response."""
        return StreamUnary(self._method(method, request_serializer, response_deserializer))

    def stream_stream(
        self,
        method: str,
        request_serializer: Callable[[Q], bytes] | None = None,
        response_deserializer: Callable[[bytes], R] | None = None,
        *,
        _registered_method: bool = False,
    ) -> StreamStream[Q, R]:
        """Return a callable that raises NotImplementedError: no method of ours streams both ways."""
        del request_serializer, response_deserializer
        return StreamStream(method)

    def _method(
        self, path: str, serialize: Callable[[Q], bytes] | None, parse: Callable[[bytes], R] | None
    ) -> Method[Q, R]:
        return Method(self, path, serialize=serialize or as_is, parse=parse or as_is)

    # ---- called by the methods ----

    def begin(self, path: str, timeout: float | None, metadata: Pairs | None) -> Rpc:
        """Start the handler of a method, in a fresh context; UsageError once the channel is closed."""
        if self._closed.is_set():
            raise aio.UsageError("Channel is closed.")
        # Grouped by key, as the client end of a connection does.
        rpc = Rpc(path, checked(aio.Metadata(*(metadata or ()))), timeout)
        self._rpcs.add(rpc)
        rpc.on_settled(partial(self._rpcs.discard, rpc))
        if timeout is not None and timeout <= 0:
            rpc.terminate(DEADLINE_EXCEEDED)
        elif size(rpc.metadata) > MAX_METADATA_BYTES:
            rpc.terminate(METADATA_TOO_LARGE)
        else:
            work = serve(rpc, self._registrar.handler(path), self._max_message_bytes_out)
            # A fresh context: over a connection a handler sees none of its client's variables.
            rpc.handler = self.spawn(work, path, context=contextvars.Context())
        return rpc

    def spawn(
        self, work: Coroutine[Any, Any, None], name: str, *, context: contextvars.Context | None = None
    ) -> "asyncio.Task[None]":
        """Start a task that `close` awaits, by default in a copy of the current context."""
        task = asyncio.create_task(work, name=name, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
