"""One run from a client's view: sends the prompt and reads each event once, across lost connections."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any, Protocol

from grpc import StatusCode, aio
from msgspec import Struct

from yarrow.client.permission_prompts import PermissionPrompts, PermissionUI, open_prompts
from yarrow.client.reconnection import ReconnectBackoff
from yarrow.client.rpc_errors import parse_rpc_error
from yarrow.client.session_setup import SessionInfo
from yarrow.client.stream_cursor import NamedEvent, StreamCursor
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb


class RunResult(Struct, frozen=True):
    """Result of a run."""

    session_id: str
    reason: str
    """Reason of `AgentEnd` without its prefix, such as COMPLETED; empty if the stream stopped before the end."""
    error_code: str = ""
    """Code of the error tree; empty if nothing failed."""
    error_message: str = ""
    denied: bool = False
    """True if a tool needed permission and there was no user to ask."""


class RunViewer(Protocol):
    """Receiver of the events of a run."""

    async def show(self, event: pb.AgentEvent, kind: str) -> None:
        """Show the next event; `kind` is the name of its field that is set."""
        ...

    async def drain(self) -> None:
        """Wait until there is room for more; meanwhile the service drops events and reports them as a gap."""
        ...


async def follow_run(
    stub: Stub,
    session: SessionInfo,
    prompt: pb.PromptRequest,
    *,
    viewer: RunViewer,
    permission_ui: PermissionUI | None = None,
) -> RunResult:
    """Send a prompt to a session, show the events of its run and return the result.

    The run is aborted if this is cancelled or the viewer raises. A lost connection does not end the run: the client
    reconnects. Permission requests go to `permission_ui`; without one they are denied. Raises `aio.AioRpcError` if the
    prompt is refused or the service is lost.
    """
    request = pb.PromptRequest()
    request.CopyFrom(prompt)
    request.session_id = session.session_id
    request.options.batch = True
    request.options.answers_permissions = permission_ui is not None
    end: pb.AgentEnd | None = None
    denied = False
    stream = RunStream(stub, request)
    async with open_prompts(stub, permission_ui) as questions, aclosing(stream.batches()) as batches:
        try:
            async for batch in batches:
                for event, kind in batch:
                    if kind == "agent_end":
                        end = event.agent_end
                    elif kind.startswith("permission_"):
                        denied |= await _handle_permission(stub, event, questions)
                    await viewer.show(event, kind)
                await viewer.drain()
        except aio.AioRpcError:
            raise
        except BaseException:  # also Ctrl+C and cancellation: whatever ends this client aborts its run; re-raised
            await stream.abort()
            raise
    return _make_result(session, end, denied=denied)


async def _handle_permission(stub: Stub, event: pb.AgentEvent, questions: PermissionPrompts | None) -> bool:
    """Pass a permission event to the user; return whether the request was denied because there is no user to ask."""
    if event.HasField("permission_settled"):
        if questions is not None:
            questions.withdraw(event.permission_settled)
        return False
    if questions is not None:
        questions.ask(event)
        return False
    await _deny(stub, event)
    return True


async def _deny(stub: Stub, event: pb.AgentEvent) -> None:
    answer = pb.AnswerPermissionRequest(
        session_id=event.session_id,
        request_id=event.permission_request.request_id,
        answer=pb.PERMISSION_ANSWER_NO,
        text="no client can answer",
    )
    # The request may be gone: another client answered, or the service knew that none would.
    with contextlib.suppress(aio.AioRpcError):
        await stub.AnswerPermission(answer)


def _make_result(session: SessionInfo, end: pb.AgentEnd | None, *, denied: bool) -> RunResult:
    if end is None:
        message = "the service closed the stream before the run ended"
        return RunResult(session.session_id, "", error_message=message, denied=denied)
    known = pb.EndReason.DESCRIPTOR.values_by_number.get(end.reason)
    # A number is a reason that only a newer service knows.
    reason = known.name.removeprefix("END_REASON_") if known else str(end.reason)
    return RunResult(session.session_id, reason, end.error.code, end.error.message, denied)


MAX_SILENCE_SECONDS = 15.0
"""Seconds of silence after which a connection with heartbeats counts as lost."""
STATE_TIMEOUT_SECONDS = 10.0
"""Timeout in seconds for GetState after a lost connection, before retrying."""
ABORT_TIMEOUT_SECONDS = 5.0
"""Timeout in seconds for aborting a run that no longer has a viewer."""
MAX_BUSY_TRIES = 4
"""Maximum attempts to repeat a prompt while the session is busy: it may be busy recording that very prompt."""
BUSY_RETRY_SECONDS = 0.1
"""Seconds between two such attempts."""


class RunStream:
    """One run, starting with its prompt."""

    def __init__(self, stub: Stub, prompt: pb.PromptRequest) -> None:
        """Create the run of a prompt to an existing session; the prompt gets a new id, so that it is accepted once."""
        self._stub = stub
        self._prompt = prompt
        self._prompt.message_id = str(uuid.uuid4())
        self._backoff = ReconnectBackoff()
        self._tries = 0
        """Number of times the prompt was sent."""
        self._is_accepted = False
        """True once the service has accepted the prompt."""
        self._cursor = StreamCursor(prompt.session_id, prompt.message_id)

    async def batches(self) -> AsyncGenerator[list[NamedEvent]]:
        """Yield the events in the batches in which they arrive; the last event is the end of the run.

        If the end can no longer be read, a gap and an end with the error UNREACHABLE replace it. If the service closes
        the stream early, no end is yielded. Raises `aio.AioRpcError` if the prompt is refused or the service is lost
        for good.
        """
        while True:
            try:
                # The stream of a prompt ends by itself; the stream of a session continues after the run.
                resumes = self._is_accepted
                call = await self._open()
                try:
                    while not (resumes and self._cursor.is_over) and (response := await self._read(call)) is not None:
                        self._backoff.reset()
                        if events := self._cursor.accept(response):
                            yield events
                finally:
                    call.cancel()
                if self._cursor.is_over and not self._cursor.has_ended:
                    yield self._cursor.end_synthetically()
            except aio.AioRpcError as error:
                if not self._cursor.has_ended:
                    await self._wait_to_retry(error)
                    continue
            return

    async def abort(self) -> None:
        """Abort the run, which no longer has a viewer."""
        if self._cursor.has_begun and not self._cursor.has_ended:
            with suppress(aio.AioRpcError):
                await self._stub.Abort(
                    pb.AbortRequest(session_id=self._prompt.session_id), timeout=ABORT_TIMEOUT_SECONDS
                )

    async def _open(self) -> "aio.UnaryStreamCall[Any, Any]":
        """Start the run, or resume it after the last event read."""
        session_id, options, cursor = self._prompt.session_id, self._prompt.options, self._cursor
        if not self._is_accepted:
            self._tries += 1
            return self._stub.Prompt(self._prompt)
        state = pb.GetStateRequest(session_id=session_id)
        cursor.sync_with_state(await self._stub.GetState(state, timeout=STATE_TIMEOUT_SECONDS))
        request = pb.StreamEventsRequest(
            session_id=session_id,
            after_sequence=cursor.sequence,
            epoch=cursor.epoch,
            batch=options.batch,
            answers_permissions=options.answers_permissions,
        )
        return self._stub.StreamEvents(request)

    async def _read(self, call: "aio.UnaryStreamCall[Any, Any]") -> Any:
        """Return the next response, or None at the end of the stream."""
        try:
            async with asyncio.timeout(MAX_SILENCE_SECONDS if self._cursor.has_heartbeats else None):
                response = await call.read()
        except TimeoutError:
            sentence = f"the service has not responded for {MAX_SILENCE_SECONDS:g} s"
            raise aio.AioRpcError(StatusCode.UNAVAILABLE, aio.Metadata(), aio.Metadata(), sentence) from None
        if response is aio.EOF:
            return None
        self._is_accepted = True
        return response

    async def _wait_to_retry(self, error: aio.AioRpcError) -> None:
        """Wait before the next attempt. Raises `error` if there is none."""
        reason = parse_rpc_error(error).reason
        if not self._is_accepted and self._tries > 1 and reason == "ALREADY_ACCEPTED":
            self._is_accepted = self._cursor.is_replay = True
        elif not self._is_accepted and 1 < self._tries <= MAX_BUSY_TRIES and reason == "BUSY":
            await asyncio.sleep(BUSY_RETRY_SECONDS)
        else:
            await self._backoff.wait(error)
