"""Event stream of a session for all clients: each event exactly once, across lost connections and restarts."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

from grpc import StatusCode, aio

from yarrow.client.reconnection import ConnectionState, ReconnectBackoff, state_after
from yarrow.client.stream_cursor import NamedEvent, StreamCursor
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb

MAX_SILENCE_SECONDS = 15.0
"""Seconds of silence during a run after which a connection with heartbeats counts as lost."""
STATE_TIMEOUT_SECONDS = 10.0
"""Timeout in seconds for GetState after a lost connection, before retrying."""


class EventStream:
    """The events after a cursor, which advances with them."""

    def __init__(
        self,
        stub: Stub,
        cursor: StreamCursor,
        *,
        answers_permissions: bool,
        is_patient: bool = False,
        on_state: Callable[[ConnectionState], None] = lambda _: None,
    ) -> None:
        """`is_patient` is as for `ReconnectBackoff`; `on_state` is called when the state changes."""
        self._stub = stub
        self._cursor = cursor
        self._answers_permissions = answers_permissions
        self._backoff = ReconnectBackoff(is_patient=is_patient)
        self._on_state = on_state
        self._state: ConnectionState = "connected"
        self._needs_state = cursor.follows_run
        """True if the state of the session must be read before the next request for its events."""

    async def follow(
        self, call: "aio.UnaryStreamCall[Any, Any] | None" = None, first: pb.PromptResponse | None = None
    ) -> AsyncGenerator[list[NamedEvent]]:
        """Yield the events in the batches in which they arrive, until a cursor that follows a run is over.

        `call` streams the run that the cursor follows, and `first` is its first response. A run whose end can no longer
        be read ends with a gap and the error UNREACHABLE. If the service closes the stream of a run early, no end is
        yielded. Raises `aio.AioRpcError` if the service refuses or is lost for good.
        """
        cursor = self._cursor
        while True:
            try:
                if call is None and (events := await self._sync()):
                    yield events
                    if cursor.is_over:
                        return
                # The stream of a prompt ends by itself; the stream of a session continues after the run.
                ends_itself, call = call is not None, call or self._stub.StreamEvents(self._make_request())
                self._needs_state = True
                try:
                    while (response := first or await self.read(call)) is not None:
                        first = None
                        self._backoff.reset()
                        if events := cursor.accept(response):
                            yield events
                        if cursor.is_over and not ends_itself:
                            return
                finally:
                    call.cancel()
                if cursor.follows_run:
                    return
                # The service released the session, as it does after a long idle time.
                await self._backoff.pause()
            except aio.AioRpcError as error:
                if cursor.is_over:
                    return
                self._enter(state_after(error))
                await self._backoff.wait(error)
            call = None

    async def read(self, call: "aio.UnaryStreamCall[Any, Any]") -> Any:
        """Return the next response of a call, or None at its end. Raises `aio.AioRpcError`, also after a silence."""
        is_limited = self._cursor.has_heartbeats and self._cursor.is_open
        try:
            async with asyncio.timeout(MAX_SILENCE_SECONDS if is_limited else None):
                response = await call.read()
        except TimeoutError:
            sentence = f"the service has not responded for {MAX_SILENCE_SECONDS:g} s"
            raise aio.AioRpcError(StatusCode.UNAVAILABLE, aio.Metadata(), aio.Metadata(), sentence) from None
        return None if response is aio.EOF else response

    async def _sync(self) -> list[NamedEvent]:
        """Adapt the cursor to the session, which is loaded if necessary; return the missing end of a run."""
        if not self._needs_state:
            return []
        request = pb.GetStateRequest(session_id=self._cursor.session_id)
        state = await self._stub.GetState(request, timeout=STATE_TIMEOUT_SECONDS)
        self._enter("connected")
        return self._cursor.sync(state)

    def _make_request(self) -> pb.StreamEventsRequest:
        return pb.StreamEventsRequest(
            session_id=self._cursor.session_id,
            after_sequence=self._cursor.sequence,
            epoch=self._cursor.epoch,
            batch=True,
            answers_permissions=self._answers_permissions,
        )

    def _enter(self, state: ConnectionState) -> None:
        if state != self._state:
            self._state = state
            self._on_state(state)
