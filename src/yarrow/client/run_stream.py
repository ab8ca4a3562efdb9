"""One run from a client's view: sends the prompt and reads each event once, across lost connections."""

import asyncio
import uuid
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any, Protocol

from grpc import aio
from msgspec import Struct

from yarrow.client.event_stream import EventStream, NamedEvent, StreamCursor
from yarrow.client.permission_prompts import PermissionPrompts, PermissionUI, open_prompts
from yarrow.client.reconnect_backoff import ReconnectBackoff
from yarrow.client.rpc_errors import parse_rpc_error
from yarrow.client.session_lookup import SessionInfo
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb

ABORT_TIMEOUT_SECONDS = 5.0
"""Timeout in seconds for aborting a run that no longer has a viewer."""
MAX_BUSY_TRIES = 4
"""Maximum attempts to repeat a prompt while the session is busy: it may be busy recording that very prompt."""
BUSY_RETRY_SECONDS = 0.1
"""Seconds between two such attempts."""


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
        except BaseException:  # a failing viewer, Ctrl+C or cancellation: a client that ends aborts its run
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
    with suppress(aio.AioRpcError):
        await stub.AnswerPermission(answer)


def _make_result(session: SessionInfo, end: pb.AgentEnd | None, *, denied: bool) -> RunResult:
    if end is None:
        message = "the service closed the stream before the run ended"
        return RunResult(session.session_id, "", error_message=message, denied=denied)
    known = pb.EndReason.DESCRIPTOR.values_by_number.get(end.reason)
    # A number is a reason that only a newer service knows.
    reason = known.name.removeprefix("END_REASON_") if known else str(end.reason)
    return RunResult(session.session_id, reason, end.error.code, end.error.message, denied)


class RunStream:
    """One run, starting with its prompt."""

    def __init__(self, stub: Stub, prompt: pb.PromptRequest) -> None:
        """Create the run of a prompt to an existing session; the prompt gets a new id, so that it is accepted once."""
        self._stub = stub
        self._prompt = prompt
        self._prompt.message_id = str(uuid.uuid4())
        self._cursor = StreamCursor(prompt.session_id, prompt.message_id)
        self._events = EventStream(stub, self._cursor, answers_permissions=prompt.options.answers_permissions)

    async def batches(self) -> AsyncGenerator[list[NamedEvent]]:
        """Yield the events as `EventStream.follow` does; the last event is the end of the run.

        Raises `aio.AioRpcError` if the prompt is refused or the service is lost for good.
        """
        call, first = await self._send_prompt()
        if call is not None and first is None:
            return
        async with aclosing(self._events.follow(call, first)) as batches:
            async for batch in batches:
                yield batch

    async def abort(self) -> None:
        """Abort the run, which no longer has a viewer."""
        if self._cursor.has_begun and not self._cursor.is_over:
            with suppress(aio.AioRpcError):
                await self._stub.Abort(
                    pb.AbortRequest(session_id=self._prompt.session_id), timeout=ABORT_TIMEOUT_SECONDS
                )

    async def _send_prompt(self) -> "tuple[aio.UnaryStreamCall[Any, Any] | None, pb.PromptResponse | None]":
        """Send the prompt until it is accepted; return the stream of its run and the first response.

        Without a stream, the response was lost and the run must be looked for in the events of the session.
        """
        backoff = ReconnectBackoff()
        tries = 0
        while True:
            tries += 1
            call = self._stub.Prompt(self._prompt)
            try:
                return call, await self._events.read(call)
            except aio.AioRpcError as error:
                reason = parse_rpc_error(error).reason
                if tries > 1 and reason == "ALREADY_ACCEPTED":
                    self._cursor.is_replay = True
                    return None, None
                if 1 < tries <= MAX_BUSY_TRIES and reason == "BUSY":
                    await asyncio.sleep(BUSY_RETRY_SECONDS)
                else:
                    await backoff.wait(error)
            except asyncio.CancelledError:
                # Otherwise the call stays open on the service.
                call.cancel()
                raise
