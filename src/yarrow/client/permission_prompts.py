"""Permission prompts at the terminal: asks about one tool call at a time and sends the answers to the service."""

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
from yarrow.client.reconnect_backoff import retry_while_lost
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb

PROMPT = "Answer: "
CHOICES = f"Type yes, session, always or no, or what to do instead.\n{PROMPT}"
WHOLE_WORD = f"yarrow: type the whole word: yes, session, always or no\n{PROMPT}"
CONFIRM = f"Type always again to confirm, or no.\n{PROMPT}"
_ANSWERS = {
    "yes": pb.PERMISSION_ANSWER_ONCE,
    "session": pb.PERMISSION_ANSWER_SESSION,
    "always": pb.PERMISSION_ANSWER_ALWAYS,
    "no": pb.PERMISSION_ANSWER_NO,
}
_TOO_SHORT = frozenset({"", "y", "s", "a", "n"})
"""Lines that count neither as an answer nor as a message to the model."""


class TypedAnswer(NamedTuple):
    """A line typed while a question is open."""

    text: str
    is_answer: bool
    """True if the line is meant for the question: typed after it could be read, and after a pause."""
    is_end: bool = False
    """True if no more input follows."""


class PermissionUI(Protocol):
    """A user at a terminal."""

    async def answer(self, question: str) -> TypedAnswer:
        """Show a question, with its last line as the prompt, and return the next line typed."""
        ...

    def keep(self, text: str) -> bool:
        """Keep a line for later; return False if nothing will read it."""
        ...

    def tell(self, text: str) -> None:
        """Show a line."""
        ...


class PermissionPrompts:
    """The permission questions of one run while its event stream is open."""

    def __init__(self, stub: Stub, ui: PermissionUI) -> None:
        self._stub = stub
        self._ui = ui
        self._turn = asyncio.Lock()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._requests: dict[str, pb.PermissionRequest] = {}

    def ask(self, event: pb.AgentEvent) -> None:
        """Ask the user once the previous questions are answered."""
        request = event.permission_request
        self._requests[request.request_id] = request
        self._tasks[request.request_id] = asyncio.create_task(self._ask(event), name=f"question {request.request_id}")

    def withdraw(self, settled: pb.PermissionSettled) -> None:
        """Withdraw an open question: another client answered it, or it no longer waits for an answer."""
        task = self._tasks.get(settled.request_id)
        if task and not task.done():
            task.cancel()
            self._ui.tell(f"\nyarrow: {format_outcome(self._requests[settled.request_id], settled).text}")

    async def close(self) -> None:
        """Withdraw all questions and wait until their tasks have ended. Raises what a task raised."""
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
        """Send an answer; return the text to ask again with, empty if the request is settled."""
        request = pb.AnswerPermissionRequest(
            session_id=event.session_id,
            request_id=event.permission_request.request_id,
            answer=answered.answer,
            text=answered.text,
        )
        try:
            # A lost connection loses no answer: sending the same one again is not an error.
            await retry_while_lost(partial(self._stub.AnswerPermission, request))
        except aio.AioRpcError as error:
            # A request whose answer could not be saved stays open: ask again and show the reason.
            return f"yarrow: {reveal(error.details() or '')}\n{CHOICES}" if await self._is_pending(event) else ""
        return ""

    async def _redirect_line(self, event: pb.AgentEvent, text: str) -> str:
        """Keep a line that is not an answer, or send it to the run; return the prompt to show again."""
        if not text.strip():
            return PROMPT
        if self._ui.keep(text):
            return f"yarrow: not an answer, queued until this run ends: {reveal(text)}\n{PROMPT}"
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
    """Open the permission questions of a run; yield None if there is no user interface."""
    if ui is None:
        yield None
        return
    questions = PermissionPrompts(stub, ui)
    try:
        yield questions
    finally:
        await questions.close()


def format_question(request: pb.PermissionRequest) -> str:
    """Return the text of a question: the whole call, with characters revealed that a terminal would obey or hide."""
    # Indented, so that no line of a call looks like one of Yarrow's own.
    call = [f"    {f'{line.sign} ' if line.sign else ''}{line.text}" for line in format_call_lines(request)]
    told = [f"  {line}" for line in (format_facts(request, ""), format_agent_reason(request)) if line]
    covered: list[str] = []
    if request.tool != "bash":
        covered.append(f"  session: allows {describe_scope(request)} until Yarrow ends")
        covered.append("  always: allows the same from now on")
    return "\n".join([f"yarrow: {format_question_title(request)}", *call, *told, *covered, CHOICES])


def _parse_answer(word: str) -> PermissionReply:
    answer = _ANSWERS.get(word.lower())
    return (
        PermissionReply(pb.PERMISSION_ANSWER_NO, word[:MAX_REPLY_CHARACTERS])
        if answer is None
        else PermissionReply(answer)
    )
