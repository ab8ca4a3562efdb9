"""Callables that the generated stub gets from a channel, one per method; calling one starts a call."""

import asyncio
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Never, Protocol, TypeVar

import grpc
from grpc import aio

from yarrow.wire.client_calls import StreamUnaryCall, UnaryStreamCall, UnaryUnaryCall, Writer
from yarrow.wire.rpc_call_state import Rpc, too_large

Q = TypeVar("Q")
R = TypeVar("R")
if TYPE_CHECKING:
    from grpc.aio import StreamStreamMultiCallable, StreamUnaryMultiCallable
else:
    # The oldest supported grpcio cannot subscript these two at run time.
    StreamStreamMultiCallable = StreamUnaryMultiCallable = Generic

Pairs = aio.Metadata | Sequence[tuple[str, str | bytes]]


class Host(Protocol):
    """The part of the channel that its methods use."""

    max_message_bytes_in: int

    def begin(self, path: str, timeout: float | None, metadata: Pairs | None) -> Rpc:
        """Start the handler of a method; UsageError once the channel is closed."""
        ...

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> "asyncio.Task[None]":
        """Start a task that the channel awaits when it closes."""
        ...


class Method(Generic[Q, R]):
    """One method of a channel: its path, and how its messages are serialized and parsed."""

    def __init__(self, host: Host, path: str, *, serialize: Callable[[Q], bytes], parse: Callable[[bytes], R]) -> None:
        self.host = host
        self.path = path
        self.serialize = serialize
        self.parse = parse

    def begin(self, timeout: float | None, metadata: Pairs | None, credentials: grpc.CallCredentials | None) -> Rpc:
        """Start a call whose requests are sent later."""
        if credentials is not None:
            raise aio.UsageError("Call credentials are only valid on secure channels")
        return self.host.begin(self.path, timeout, metadata)

    def ask(
        self, request: Q, *, timeout: float | None, metadata: Pairs | None, credentials: grpc.CallCredentials | None
    ) -> Rpc:
        """Start a call with its one request."""
        data = self.serialize(request)
        rpc = self.begin(timeout, metadata, credentials)
        rpc.request = data
        if len(data) > self.host.max_message_bytes_in:
            rpc.terminate(too_large("CLIENT", len(data), self.host.max_message_bytes_in))
        return rpc


class UnaryUnary(aio.UnaryUnaryMultiCallable[Q, R]):
    """One request, one response."""

    def __init__(self, method: Method[Q, R]) -> None:
        self._method = method

    def __call__(  # noqa: PLR0913 grpc's signature
        self,
        request: Q,
        *,
        timeout: float | None = None,
        metadata: Pairs | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> UnaryUnaryCall[Q, R]:
        """Call the method; the server is always ready, and nothing is compressed."""
        del wait_for_ready, compression
        rpc = self._method.ask(request, timeout=timeout, metadata=metadata, credentials=credentials)
        return UnaryUnaryCall(rpc, self._method.parse)


class UnaryStream(aio.UnaryStreamMultiCallable[Q, R]):
    """One request, many responses."""

    def __init__(self, method: Method[Q, R]) -> None:
        self._method = method

    def __call__(  # noqa: PLR0913 grpc's signature
        self,
        request: Q,
        *,
        timeout: float | None = None,
        metadata: Pairs | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> UnaryStreamCall[Q, R]:
        """Call the method; the server is always ready, and nothing is compressed."""
        del wait_for_ready, compression
        rpc = self._method.ask(request, timeout=timeout, metadata=metadata, credentials=credentials)
        return UnaryStreamCall(rpc, self._method.parse)


class StreamUnary(StreamUnaryMultiCallable[Q, R]):
    """Many requests, one response."""

    def __init__(self, method: Method[Q, R]) -> None:
        self._method = method

    def __call__(  # noqa: PLR0913, PLR0917 grpc's signature
        self,
        request_iterator: AsyncIterable[Q] | Iterable[Q] | None = None,
        timeout: float | None = None,
        metadata: Pairs | None = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,  # noqa: FBT001 grpc's signature
        compression: grpc.Compression | None = None,
    ) -> StreamUnaryCall[Q, R]:
        """Call the method; without an iterable, write the requests to the call."""
        del wait_for_ready, compression
        method = self._method
        rpc = method.begin(timeout, metadata, credentials)
        writer = Writer(rpc, method.serialize, method.host.max_message_bytes_in)
        if request_iterator is not None:
            feeder = method.host.spawn(writer.feed(request_iterator), f"requests of {method.path}")
            rpc.on_settled(feeder.cancel)
        return StreamUnaryCall(rpc, method.parse, writer, fed=request_iterator is not None)


class StreamStream(StreamStreamMultiCallable[Q, R]):
    """Many requests, many responses: a stub may contain such a method, but not call it."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __call__(self, *_: object, **__: object) -> Never:
        """Raise NotImplementedError."""
        raise NotImplementedError(f"{self._path} is a bidirectional stream; the in-memory channel has none")
