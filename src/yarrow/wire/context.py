"""Server side of a call: its context, and the task that runs the handler."""

import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Never

import grpc
from grpc import aio

from yarrow.wire.metadata import Metadata, checked
from yarrow.wire.rpc import Rpc, Status, notify, too_large


class ServicerContext:
    """What a handler may ask and set: the methods of `grpc.aio.ServicerContext`."""

    def __init__(self, rpc: Rpc, max_message_bytes: int, serialize: Callable[[Any], bytes]) -> None:
        self._rpc = rpc
        self._max_message_bytes = max_message_bytes
        self._serialize = serialize
        self._code: grpc.StatusCode | None = None
        self._details = ""
        self._trailing_metadata: Metadata = ()
        self._abortion: aio.AbortError | None = None
        self._callbacks: list[Callable[[], None]] = []

    # ---- the call ----

    def invocation_metadata(self) -> Metadata:
        """Returns what the client sent, as (key, value) pairs."""
        return self._rpc.metadata

    def peer(self) -> str:
        """Returns who calls; it is always this process."""
        return "in-memory"

    def peer_identities(self) -> Iterable[bytes] | None:
        """Returns None: nobody proved who they are."""
        return None

    def peer_identity_key(self) -> str | None:
        """Returns None: nobody proved who they are."""
        return None

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """Returns nothing: no connection was secured."""
        return {}

    def time_remaining(self) -> float | None:
        """Returns the seconds until the client's deadline, at least 0; None without one."""
        return self._rpc.time_remaining()

    def cancelled(self) -> bool:
        """Returns whether the client gave up, by cancelling, by its deadline or by dropping the call."""
        return self._rpc.terminated

    def done(self) -> bool:
        """Returns whether a status has been sent."""
        return self._rpc.final is not None

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Calls back with this context when the handler is over."""
        self._callbacks.append(partial(notify, callback, self))

    # ---- the answer ----

    def code(self) -> grpc.StatusCode | None:
        """Returns the code that was set, if one was."""
        return self._code

    def set_code(self, code: grpc.StatusCode) -> None:
        """Sets the code that the call ends with when the handler returns or raises."""
        self._code = code

    def details(self) -> str:
        """Returns the details that were set."""
        return self._details

    def set_details(self, details: str) -> None:
        """Sets the details that go with a code other than OK."""
        self._details = details

    def trailing_metadata(self) -> Metadata:
        """Returns the trailing metadata that was set."""
        return self._trailing_metadata

    def set_trailing_metadata(self, trailing_metadata: Iterable[tuple[str, str | bytes]]) -> None:
        """Sets what goes with the status."""
        self._trailing_metadata = checked(trailing_metadata)

    def set_compression(self, compression: grpc.Compression) -> None:
        """Does nothing: there is no wire to spare."""

    def disable_next_message_compression(self) -> None:
        """Does nothing: there is no wire to spare."""

    async def send_initial_metadata(self, initial_metadata: Iterable[tuple[str, str | bytes]]) -> None:
        """Sends the initial metadata now; UsageError if it or a response has gone already."""
        self._refuse_after_end()
        if self._rpc.opened:
            raise aio.UsageError("Send initial metadata failed: already sent")
        self._rpc.open(checked(initial_metadata))

    async def abort(
        self,
        code: grpc.StatusCode,
        details: str = "",
        trailing_metadata: aio.Metadata | Sequence[tuple[str, str | bytes]] = (),
    ) -> Never:
        """Ends the call with this status, whatever the handler does with the AbortError that this raises."""
        if self._abortion is not None:
            raise aio.UsageError("Abort already called!")
        if code is grpc.StatusCode.OK:
            raise ValueError("a call is aborted with a code other than OK")
        if not isinstance(trailing_metadata, tuple):
            # A real server refuses it too; taken here it would fail there alone.
            raise TypeError(f"trailing_metadata must be a tuple, not {type(trailing_metadata).__name__}")
        self._refuse_after_end()
        self._code = code
        self._details = details or self._details
        self._trailing_metadata = checked(trailing_metadata) or self._trailing_metadata
        self._abortion = aio.AbortError("Locally aborted.")
        self._rpc.finish(Status(code, self._details, self._trailing_metadata))
        raise self._abortion

    async def abort_with_status(self, status: grpc.Status) -> Never:
        """Aborts with a status object."""
        await self.abort(status.code, status.details, tuple(status.trailing_metadata or ()))

    # ---- for the runner ----

    def encode(self, message: Any) -> bytes:
        """Serialises a response; one over the limit ends the call and raises InternalError."""
        data = self._serialize(message)
        if len(data) > self._max_message_bytes:
            status = too_large("SERVER", len(data), self._max_message_bytes)
            self._rpc.finish(status)
            raise aio.InternalError(status.details)
        return data

    def conclude(self, error: Exception | None = None) -> None:
        """Ends the call as the handler left it, unless it is over."""
        code, details = self._code or grpc.StatusCode.OK, self._details
        if error is not None:
            code = grpc.StatusCode.UNKNOWN if code is grpc.StatusCode.OK else code
            details = f"Unexpected {type(error)}: {error}"
        elif code is grpc.StatusCode.OK:
            details = ""
        self._rpc.finish(Status(code, details, self._trailing_metadata))

    def call_back(self) -> None:
        """Runs the done callbacks."""
        for callback in self._callbacks:
            callback()

    def _refuse_after_end(self) -> None:
        if self._abortion is not None:
            raise self._abortion
        if self._rpc.final is not None:
            raise aio.UsageError("RPC already finished.")
        if self._rpc.status is not None:
            raise aio.InternalError(f"nobody listens any more: {self._rpc.status.details}")


class StreamContext(ServicerContext):
    """The context of a handler that answers with a stream."""

    async def write(self, message: Any) -> None:
        """Sends one response; waits while `RESPONSES_WAITING` of them are unread."""
        self._refuse_after_end()
        data = self.encode(message)
        self._rpc.open()
        await self._rpc.responses.write(data)


_LOG = logging.getLogger(__name__)

NOT_FOUND = Status(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
HANDLER_CANCELLED = Status(grpc.StatusCode.CANCELLED, "The handler was cancelled.")


def as_is(message: Any) -> Any:
    """Stands in where no serialiser was given."""
    return message


async def serve(rpc: Rpc, handler: "grpc.RpcMethodHandler[Any, Any] | None", max_message_bytes: int) -> None:
    """Answers the call; a handler is a coroutine or an asynchronous generator function.

    Whatever it raises becomes the status UNKNOWN, or the code that it set. A cancelled handler ends the call.
    """
    if handler is None:
        rpc.finish(NOT_FOUND)
        return
    kind = StreamContext if handler.response_streaming else ServicerContext
    context = kind(rpc, max_message_bytes, handler.response_serializer or as_is)
    try:
        await _answer(rpc, handler, context)
        context.conclude()
    except Exception as error:  # noqa: BLE001 whatever a handler raises is its status, never the end of the service
        # After an abort, a cancellation or a message over the limit it is only how the handler was stopped.
        if not (isinstance(error, aio.BaseError) and (rpc.final or rpc.status)):
            _LOG.exception("Unexpected [%s] raised by servicer method [%s]", type(error).__name__, rpc.method)
        context.conclude(error)
    finally:
        # Only a handler that was cancelled, but not by its client, has said nothing yet.
        rpc.finish(HANDLER_CANCELLED)
        context.call_back()


async def _answer(rpc: Rpc, handler: "grpc.RpcMethodHandler[Any, Any]", context: ServicerContext) -> None:
    parse = handler.request_deserializer or as_is
    method: Any = handler.unary_unary or handler.unary_stream or handler.stream_unary or handler.stream_stream
    async with aclosing(_requests(rpc, parse)) as requests:
        answer = method(requests if handler.request_streaming else parse(rpc.request), context)
        if isinstance(context, StreamContext):
            await _stream(answer, context)
            return
        response = await answer if inspect.isawaitable(answer) else answer
        if context.code() in {None, grpc.StatusCode.OK}:
            rpc.response = context.encode(response)


async def _requests(rpc: Rpc, parse: Callable[[bytes], Any]) -> AsyncGenerator[Any, None]:
    while (data := await rpc.requests.read()) is not None:
        yield parse(data)


async def _stream(answer: Any, context: StreamContext) -> None:
    if inspect.isawaitable(answer):
        await answer
        return
    # Closed here, in this task: a generator left suspended in a write would run its `finally` at some later time.
    async with aclosing(answer):
        async for message in answer:
            await context.write(message)
