"""Server side of a call: its context, and the task that runs the handler."""

import inspect
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, Never

import grpc
from grpc import aio

from yarrow.wire.rpc_call_state import Metadata, Rpc, Status, checked, notify, too_large


class ServicerContext:
    """The methods of `grpc.aio.ServicerContext`, for handlers."""

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
        """Return the client's metadata as (key, value) pairs."""
        return self._rpc.metadata

    def peer(self) -> str:
        """Return the name of the peer; it is always this process."""
        return "in-memory"

    def peer_identities(self) -> Iterable[bytes] | None:
        """Return None: clients are not authenticated."""
        return None

    def peer_identity_key(self) -> str | None:
        """Return None: clients are not authenticated."""
        return None

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """Return an empty mapping: there is no secured connection."""
        return {}

    def time_remaining(self) -> float | None:
        """Return the seconds until the client's deadline, at least 0; None without one."""
        return self._rpc.time_remaining()

    def cancelled(self) -> bool:
        """Return whether the client gave up, by cancelling, by its deadline or by dropping the call."""
        return self._rpc.terminated

    def done(self) -> bool:
        """Return whether a status has been sent."""
        return self._rpc.final is not None

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        """Call back with this context when the handler has finished."""
        self._callbacks.append(partial(notify, callback, self))

    # ---- the response ----

    def code(self) -> grpc.StatusCode | None:
        """Return the code that was set, if any."""
        return self._code

    def set_code(self, code: grpc.StatusCode) -> None:
        """Set the code of the call's status for when the handler returns or raises."""
        self._code = code

    def details(self) -> str:
        """Return the details that were set."""
        return self._details

    def set_details(self, details: str) -> None:
        """Set the details for a code other than OK."""
        self._details = details

    def trailing_metadata(self) -> Metadata:
        """Return the trailing metadata that was set."""
        return self._trailing_metadata

    def set_trailing_metadata(self, trailing_metadata: Iterable[tuple[str, str | bytes]]) -> None:
        """Set the metadata sent with the status."""
        self._trailing_metadata = checked(trailing_metadata)

    def set_compression(self, compression: grpc.Compression) -> None:
        """Do nothing: there is no wire to save bytes on."""

    def disable_next_message_compression(self) -> None:
        """Do nothing: there is no wire to save bytes on."""

    async def send_initial_metadata(self, initial_metadata: Iterable[tuple[str, str | bytes]]) -> None:
        """Send the initial metadata now; UsageError if it or a response was already sent."""
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
        """End the call with this status, even if the handler catches the AbortError that this raises."""
        if self._abortion is not None:
            raise aio.UsageError("Abort already called!")
        if code is grpc.StatusCode.OK:
            raise ValueError("a call is aborted with a code other than OK")
        if not isinstance(trailing_metadata, tuple):
            # A real server refuses it too; accepting it here would hide the failure there.
            raise TypeError(f"trailing_metadata must be a tuple, not {type(trailing_metadata).__name__}")
        self._refuse_after_end()
        self._code = code
        self._details = details or self._details
        self._trailing_metadata = checked(trailing_metadata) or self._trailing_metadata
        self._abortion = aio.AbortError("Locally aborted.")
        self._rpc.finish(Status(code, self._details, self._trailing_metadata))
        raise self._abortion

    async def abort_with_status(self, status: grpc.Status) -> Never:
        """Abort with a status object."""
        await self.abort(status.code, status.details, tuple(status.trailing_metadata or ()))

    # ---- for the runner ----

    def encode(self, message: Any) -> bytes:
        """Serialize a response; one over the limit ends the call and raises InternalError."""
        data = self._serialize(message)
        if len(data) > self._max_message_bytes:
            status = too_large("SERVER", len(data), self._max_message_bytes)
            self._rpc.finish(status)
            raise aio.InternalError(status.details)
        return data

    def conclude(self, error: Exception | None = None) -> None:
        """End the call with the handler's status, unless it has already ended."""
        code, details = self._code or grpc.StatusCode.OK, self._details
        if error is not None:
            code = grpc.StatusCode.UNKNOWN if code is grpc.StatusCode.OK else code
            details = f"Unexpected {type(error)}: {error}"
        elif code is grpc.StatusCode.OK:
            details = ""
        self._rpc.finish(Status(code, details, self._trailing_metadata))

    def call_back(self) -> None:
        """Run the done callbacks."""
        for callback in self._callbacks:
            callback()

    def _refuse_after_end(self) -> None:
        if self._abortion is not None:
            raise self._abortion
        if self._rpc.final is not None:
            raise aio.UsageError("RPC already finished.")
        if self._rpc.status is not None:
            raise aio.InternalError(f"the client no longer listens: {self._rpc.status.details}")


class StreamContext(ServicerContext):
    """The context of a handler that responds with a stream."""

    async def write(self, message: Any) -> None:
        """Send one response; waits while `RESPONSES_WAITING` of them are unread."""
        self._refuse_after_end()
        data = self.encode(message)
        self._rpc.open()
        await self._rpc.responses.write(data)


_LOG = logging.getLogger(__name__)

NOT_FOUND = Status(grpc.StatusCode.UNIMPLEMENTED, "Method not found!")
HANDLER_CANCELLED = Status(grpc.StatusCode.CANCELLED, "The handler was cancelled.")


def as_is(message: Any) -> Any:
    """Return the message unchanged; the default serializer."""
    return message


async def serve(rpc: Rpc, handler: "grpc.RpcMethodHandler[Any, Any] | None", max_message_bytes: int) -> None:
    """Run the handler of a call; it is a coroutine or an asynchronous generator function.

    An exception in it becomes the status UNKNOWN, or the code that it set. A cancelled handler ends the call.
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
        # After an abort, a cancellation or a message over the limit, the error only stopped the handler.
        if not (isinstance(error, aio.BaseError) and (rpc.final or rpc.status)):
            _LOG.exception("Unexpected [%s] raised by servicer method [%s]", type(error).__name__, rpc.method)
        context.conclude(error)
    finally:
        # Only a handler that was cancelled, but not by its client, has sent no status yet.
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
    # Closed in this task: a generator suspended in a write would run its `finally` at some later time.
    async with aclosing(answer):
        async for message in answer:
            await context.write(message)
