"""Asks the user at the terminal whether tool calls may run, one after the other, and passes the answers on."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple, Protocol

from grpc import aio

from yarrow.client.permission_texts import (
    MAX_REPLY_CHARACTERS,
    PermissionReply,
    describe_scope,
    format_agent_reason,
    format_call_lines,
    format_facts,
    format_outcome,
    format_question_title,
    format_rule,
    reveal,
)
from yarrow.client.reconnection import retry_while_lost
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb

PROMPT = "Answer: "
CHOICES = f"Type yes, session, always or no, or what to do instead.\n{PROMPT}"
WHOLE_WORD = f"yarrow: type the whole word: yes, session, always or no\n{PROMPT}"
CONFIRM = f"Type always once more to confirm, or no.\n{PROMPT}"
_ANSWERS = {
    "yes": pb.PERMISSION_ANSWER_ONCE,
    "session": pb.PERMISSION_ANSWER_SESSION,
    "always": pb.PERMISSION_ANSWER_ALWAYS,
    "no": pb.PERMISSION_ANSWER_NO,
}
_TOO_SHORT = frozenset({"", "y", "s", "a", "n"})
"""Lines that answer nothing, and are no message either."""


class TypedAnswer(NamedTuple):
    """A line that was typed while a question is open."""

    text: str
    is_answer: bool
    """Whether it was meant for the question: typed after it could be read, and after a pause."""
    is_end: bool = False
    """Whether nothing more will be typed."""


class PermissionUI(Protocol):
    """A user at a terminal."""

    async def answer(self, question: str) -> TypedAnswer:
        """Show a question, its last line as a prompt, and return the next line that is typed."""
        ...

    def keep(self, text: str) -> bool:
        """Keep a line for later; return False when nothing takes it later."""
        ...

    def tell(self, text: str) -> None:
        """Show a line."""
        ...


class PermissionPrompts:
    """The questions of one run, for as long as its stream is open."""

    def __init__(self, stub: Stub, ui: PermissionUI) -> None:
        self._stub = stub
        self._ui = ui
        self._turn = asyncio.Lock()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._requests: dict[str, pb.PermissionRequest] = {}

    def ask(self, event: pb.AgentEvent) -> None:
        """Ask when what was asked before is answered."""
        request = event.permission_request
        self._requests[request.request_id] = request
        self._tasks[request.request_id] = asyncio.create_task(self._ask(event), name=f"question {request.request_id}")

    def withdraw(self, settled: pb.PermissionSettled) -> None:
        """Take a question back that is not answered here: another client answered it, or it waits no more."""
        task = self._tasks.get(settled.request_id)
        if task and not task.done():
            task.cancel()
            self._ui.tell(f"\nyarrow: {format_outcome(self._requests[settled.request_id], settled).text}")

    async def close(self) -> None:
        """Take every question back, and wait until that is done. Raises what asking raised."""
        for task in self._tasks.values():
            task.cancel()
        for task in self._tasks.values():
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()

    async def _ask(self, event: pb.AgentEvent) -> None:
        async with self._turn:
            text = format_question(event.permission_request)
            confirms = False
            while text:
                typed = await self._ui.answer(text)
                word = "no" if typed.is_end else typed.text.strip()
                if not typed.is_answer:
                    text = await self._redirect_line(event, typed.text)
                elif word.lower() in _TOO_SHORT:
                    text = WHOLE_WORD
                elif word.lower() == "always" and not confirms:
                    confirms, text = True, f"{format_rule(event.permission_request)}\n{CONFIRM}"
                else:
                    confirms, text = False, await self._send_answer(event, _parse_answer(word))

    async def _send_answer(self, event: pb.AgentEvent, answered: PermissionReply) -> str:
        """Pass an answer on; return what is to be asked again, empty when it is settled."""
        request = pb.AnswerPermissionRequest(
            session_id=event.session_id,
            request_id=event.permission_request.request_id,
            answer=answered.answer,
            text=answered.text,
        )
        try:
            # A connection that is cut loses no answer: the same one again is no failure.
            await retry_while_lost(partial(self._stub.AnswerPermission, request))
        except aio.AioRpcError as error:
            # An answer that could not be kept leaves the question open; it is asked again, with the reason.
            return f"yarrow: {reveal(error.details() or '')}\n{CHOICES}" if await self._is_pending(event) else ""
        return ""

    async def _redirect_line(self, event: pb.AgentEvent, text: str) -> str:
        """Keep a line that is no answer, or send it to the run; return the prompt that is shown again."""
        if not text.strip():
            return PROMPT
        if self._ui.keep(text):
            return f"yarrow: not an answer, kept for after this run: {reveal(text)}\n{PROMPT}"
        try:
            await self._stub.Steer(pb.SteerRequest(session_id=event.session_id, text=text))
        except aio.AioRpcError as error:
            return f"yarrow: not an answer, and not sent ({reveal(error.details() or '')}): {reveal(text)}\n{PROMPT}"
        return f"yarrow: not an answer, sent to the agent as a message: {reveal(text)}\n{PROMPT}"

    async def _is_pending(self, event: pb.AgentEvent) -> bool:
        with contextlib.suppress(aio.AioRpcError):
            state = await retry_while_lost(
                partial(self._stub.GetState, pb.GetStateRequest(session_id=event.session_id))
            )
            return any(one.request_id == event.permission_request.request_id for one in state.permission_requests)
        return False


@asynccontextmanager
async def open_prompts(stub: Stub, ui: PermissionUI | None) -> AsyncGenerator[PermissionPrompts | None]:
    """Open the questions of a run for a user, if there is one."""
    if ui is None:
        yield None
        return
    questions = PermissionPrompts(stub, ui)
    try:
        yield questions
    finally:
        await questions.close()


def format_question(request: pb.PermissionRequest) -> str:
    """Return what a user is shown: the whole call, with everything in it that a terminal would obey or hide."""
    # Indented, so that no line of a call looks like one of ours.
    call = [f"    {f'{line.sign} ' if line.sign else ''}{line.text}" for line in format_call_lines(request)]
    told = [f"  {line}" for line in (format_facts(request, ""), format_agent_reason(request)) if line]
    covered = [] if request.tool == "bash" else [f"  session and always allow {describe_scope(request)}"]
    return "\n".join([f"yarrow: {format_question_title(request)}", *call, *told, *covered, CHOICES])


def _parse_answer(word: str) -> PermissionReply:
    answer = _ANSWERS.get(word.lower())
    return (
        PermissionReply(pb.PERMISSION_ANSWER_NO, word[:MAX_REPLY_CHARACTERS])
        if answer is None
        else PermissionReply(answer)
    )
