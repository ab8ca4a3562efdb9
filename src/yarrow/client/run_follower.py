"""Sends one prompt and shows its events to a viewer until the run is over."""

import contextlib
from contextlib import aclosing
from typing import Protocol

from grpc import aio
from msgspec import Struct

from yarrow.client.permission_prompts import PermissionPrompts, PermissionUI, open_prompts
from yarrow.client.run_stream import RunStream
from yarrow.client.session_setup import SessionInfo
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb


class RunResult(Struct, frozen=True):
    """How a run ended."""

    session_id: str
    reason: str
    """That of `AgentEnd` without its prefix, such as COMPLETED; empty when the stream stopped before the end."""
    error_code: str = ""
    """A code of the error tree; empty when nothing failed."""
    error_message: str = ""
    denied: bool = False
    """Whether a tool wanted a person's permission and nobody was there."""


class RunViewer(Protocol):
    """What a run is shown to."""

    async def show(self, event: pb.AgentEvent, kind: str) -> None:
        """Take the next event; `kind` is the name of the one field that says what happened."""
        ...

    async def drain(self) -> None:
        """Wait until there is room for more; meanwhile the service drops events, and says so with a gap."""
        ...


async def follow_run(
    stub: Stub,
    session: SessionInfo,
    prompt: pb.PromptRequest,
    *,
    viewer: RunViewer,
    permission_ui: PermissionUI | None = None,
) -> RunResult:
    """Send a prompt to a session and show what comes of it.

    The run is aborted when this is cancelled or the viewer raises; a connection that is cut does not end it, and is
    made again. A request for permission is put to the `person`; without one it is answered with no.
    Raises `aio.AioRpcError` when the prompt is refused or the service is lost.
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
        except BaseException:
            # Ctrl+C and cancellation are no `Exception`. Whatever ends this client ends its run too, and is raised.
            await stream.abort()
            raise
    return _make_result(session, end, denied=denied)


async def _handle_permission(stub: Stub, event: pb.AgentEvent, questions: PermissionPrompts | None) -> bool:
    """Put what an event asks to the person; return whether it was denied since nobody is there."""
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
        text="nobody is there to ask",
    )
    # The request may be gone: somebody else answered, or the service knew that nobody would.
    with contextlib.suppress(aio.AioRpcError):
        await stub.AnswerPermission(answer)


def _make_result(session: SessionInfo, end: pb.AgentEnd | None, *, denied: bool) -> RunResult:
    if end is None:
        message = "the service ended the stream before the run was over"
        return RunResult(session.session_id, "", error_message=message, denied=denied)
    known = pb.EndReason.DESCRIPTOR.values_by_number.get(end.reason)
    # A number is a reason that only a newer service knows.
    reason = known.name.removeprefix("END_REASON_") if known else str(end.reason)
    return RunResult(session.session_id, reason, end.error.code, end.error.message, denied)
