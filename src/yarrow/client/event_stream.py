"""Event stream of a session for all clients: each event exactly once, across lost connections and restarts."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any, Self, TypeAlias

from grpc import StatusCode, aio

from yarrow.client.reconnect_backoff import ConnectionState, ReconnectBackoff, state_after
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb

NamedEvent: TypeAlias = tuple[pb.AgentEvent, str]
"""An event and the name of its field that is set; the name is empty for a kind that only newer services know."""
_UNKNOWN_END = "the run ended, but its result is unknown: the connection was lost or the service restarted"
MAX_SILENCE_SECONDS = 15.0
"""Seconds of silence during a run after which a connection with heartbeats counts as lost."""
STATE_TIMEOUT_SECONDS = 10.0
"""Timeout in seconds for GetState after a lost connection, before retrying."""


class StreamCursor:
    """Cursor in the events of a session.

    With the id of a prompt, it follows the run of that prompt from its first event and is over at its end. Otherwise
    it follows all runs and is never over.
    """

    def __init__(self, session_id: str, message_id: str = "") -> None:
        self.session_id = session_id
        self.sequence = 0
        """Sequence number of the last event read."""
        self.epoch: str = ""
        """Epoch of the service that the sequence number belongs to; empty until it is known."""
        self.has_heartbeats = False
        """True if streams that are silent during a run have heartbeats."""
        self.has_begun = False
        """True once an event of the prompt's run was read."""
        self.is_open = bool(message_id)
        """True while the end of a run is yet to be read."""
        self.is_replay = False
        """True if the stream may contain other events before the prompt's run."""
        self._message_id = message_id
        self._run_id = ""
        """Id of the open run; empty if none is open, or if none of its events was read yet."""
        self._last: int | None = None
        """Sequence number after which no event of the open run comes; None while the run may continue."""
        self._held_gaps: list[NamedEvent] = []
        """Gaps before the first event, held until they are known to belong to the prompt's run."""

    @classmethod
    def from_state(cls, state: pb.GetStateResponse) -> Self:
        """Return a cursor in all events of a session from now on; a current run is read from its beginning."""
        cursor = cls(state.session_id)
        cursor.sequence = 0 if state.run_id else state.sequence
        cursor.epoch = state.epoch
        cursor._run_id = state.run_id
        cursor.is_open = bool(state.run_id)
        return cursor

    @property
    def follows_run(self) -> bool:
        """True if the cursor follows the run of one prompt."""
        return bool(self._message_id)

    @property
    def is_over(self) -> bool:
        """True if no event of the prompt's run is left to read."""
        return self.follows_run and not self.is_open

    def sync(self, state: pb.GetStateResponse) -> list[NamedEvent]:
        """Adapt to the state of the session, read after a lost connection; return a missing end of a run."""
        if (self.epoch and state.epoch != self.epoch) or state.sequence < self.sequence:
            # The service restarted, or released the session and loaded it again: its sequence numbers start again.
            return self._restart(state.epoch)
        self.epoch = state.epoch
        if self.is_open and (not state.run_id or (self._run_id and state.run_id != self._run_id)):
            self._last = state.sequence
        return self._end_if_lost()

    def accept(self, response: pb.PromptResponse | pb.StreamEventsResponse) -> list[NamedEvent]:
        """Return the events of a response that were not read before, without heartbeats."""
        events: list[NamedEvent] = []
        if self.epoch and response.epoch not in ("", self.epoch):
            # The service restarted after its state was read; it sends all events of the new epoch.
            events += self._restart(response.epoch)
        self.epoch = response.epoch or self.epoch
        for event in (response.event, *response.more):
            if self.is_over:
                break
            kind = event.WhichOneof("event") or ""
            if kind == "heartbeat":
                self.has_heartbeats = True
            elif kind == "gap":
                self.sequence = max(self.sequence, event.gap.last_sequence)
                (self._held_gaps if self.is_replay and not self.has_begun else events).append((event, kind))
            elif not event.sequence or event.sequence > self.sequence:
                self.sequence = event.sequence or self.sequence
                events += self._accept_event(event, kind)
            events += self._end_if_lost()
        return events

    def _accept_event(self, event: pb.AgentEvent, kind: str) -> list[NamedEvent]:
        """Return the event, preceded by a missing end of another run or by held gaps."""
        # A session has one run at a time: the start of another one means that the end of this one was lost.
        events = self._end() if self.is_open and self._is_of_another_run(event, kind) else []
        if self.is_over:
            return events
        if kind == "agent_start" and not self.has_begun:
            self._held_gaps.clear()
        self.has_begun = True
        self._run_id = self._run_id or event.run_id
        self.is_open = self.follows_run or bool(self._run_id)
        if kind == "agent_end" and event.run_id == self._run_id:
            self._close()
        events += [*self._held_gaps, (event, kind)]
        self._held_gaps.clear()
        return events

    def _is_of_another_run(self, event: pb.AgentEvent, kind: str) -> bool:
        if self._run_id:
            is_start = kind == "agent_start" or not self.follows_run
            return is_start and event.run_id not in ("", self._run_id)
        return kind == "agent_start" and self.is_replay and event.agent_start.message_id != self._message_id

    def _restart(self, epoch: str) -> list[NamedEvent]:
        """Continue at the first event of another epoch; return the missing end of the open run."""
        events = self._end()
        self.epoch, self.sequence = epoch, 0
        return events

    def _end_if_lost(self) -> list[NamedEvent]:
        return self._end() if self._last is not None and self.sequence >= self._last else []

    def _end(self) -> list[NamedEvent]:
        """Close the open run; return a replacement for its missing end: a gap of unknown size, and an error."""
        if not self.is_open:
            return []
        gap = pb.AgentEvent(session_id=self.session_id, run_id=self._run_id, gap=pb.Gap())
        end = pb.AgentEvent(session_id=self.session_id, run_id=self._run_id)
        end.agent_end.reason = pb.END_REASON_ERROR
        end.agent_end.error.code = "UNREACHABLE"
        end.agent_end.error.message = _UNKNOWN_END
        self._close()
        return [(gap, "gap"), (end, "agent_end")]

    def _close(self) -> None:
        self.is_open, self._run_id, self._last = False, "", None


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
