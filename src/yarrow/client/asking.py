"""Asks the user at the terminal whether tool calls may run, one after the other, and passes the answers on."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import NamedTuple, Protocol

from grpc import aio

from yarrow.client.patience import patiently
from yarrow.client.permission import (
    MAX_TEXT,
    Answered,
    agent_reason,
    call_lines,
    facts,
    outcome,
    scope,
    storing,
    title,
    visible,
)
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb

PROMPT = "Answer: "
CHOICES = f"Type yes, session, always or no, or what to do instead.\n{PROMPT}"
WHOLE_WORD = f"yarrow: type the whole word: yes, session, always or no\n{PROMPT}"
CONFIRM = f"Type always once more to confirm, or no.\n{PROMPT}"
_WORDS = {
    "yes": pb.PERMISSION_ANSWER_ONCE,
    "session": pb.PERMISSION_ANSWER_SESSION,
    "always": pb.PERMISSION_ANSWER_ALWAYS,
    "no": pb.PERMISSION_ANSWER_NO,
}
_LETTERS = frozenset({"", "y", "s", "a", "n"})
"""Lines that answer nothing, and are no message either."""


class Typed(NamedTuple):
    """A line that was typed while a question is open."""

    text: str
    is_answer: bool
    """Whether it was meant for the question: typed after it could be read, and after a pause."""
    is_end: bool = False
    """Whether nothing more will be typed."""


class Person(Protocol):
    """A user at a terminal."""

    async def answer(self, question: str) -> Typed:
        """Show a question, its last line as a prompt, and return the next line that is typed."""
        ...

    def keep(self, text: str) -> bool:
        """Keep a line for later; return False when nothing takes it later."""
        ...

    def tell(self, text: str) -> None:
        """Show a line."""
        ...


class Asking:
    """The questions of one run, for as long as its stream is open."""

    def __init__(self, stub: Stub, person: Person) -> None:
        self._stub = stub
        self._person = person
        self._turn = asyncio.Lock()
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._requests: dict[str, pb.PermissionRequest] = {}

    def ask(self, event: pb.AgentEvent) -> None:
        """Ask when what was asked before is answered."""
        request = event.permission_request
        self._requests[request.request_id] = request
        self._asked[request.request_id] = asyncio.create_task(self._ask(event), name=f"question {request.request_id}")

    def settled(self, settled: pb.PermissionSettled) -> None:
        """Take a question back that is not answered here: another client answered it, or it waits no more."""
        task = self._asked.get(settled.request_id)
        if task and not task.done():
            task.cancel()
            self._person.tell(f"\nyarrow: {outcome(self._requests[settled.request_id], settled).text}")

    async def close(self) -> None:
        """Take every question back, and wait until that is done. Raises what asking raised."""
        for task in self._asked.values():
            task.cancel()
        for task in self._asked.values():
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()

    async def _ask(self, event: pb.AgentEvent) -> None:
        async with self._turn:
            text = question(event.permission_request)
            confirms = False
            while text:
                typed = await self._person.answer(text)
                word = "no" if typed.is_end else typed.text.strip()
                if not typed.is_answer:
                    text = await self._set_aside(event, typed.text)
                elif word.lower() in _LETTERS:
                    text = WHOLE_WORD
                elif word.lower() == "always" and not confirms:
                    confirms, text = True, f"{storing(event.permission_request)}\n{CONFIRM}"
                else:
                    confirms, text = False, await self._answer(event, _answered(word))

    async def _answer(self, event: pb.AgentEvent, answered: Answered) -> str:
        """Pass an answer on; return what is to be asked again, empty when it is settled."""
        request = pb.AnswerPermissionRequest(
            session_id=event.session_id,
            request_id=event.permission_request.request_id,
            answer=answered.answer,
            text=answered.text,
        )
        try:
            # A connection that is cut loses no answer: the same one again is no failure.
            await patiently(partial(self._stub.AnswerPermission, request))
        except aio.AioRpcError as error:
            # An answer that could not be kept leaves the question open; it is asked again, with the reason.
            return f"yarrow: {visible(error.details() or '')}\n{CHOICES}" if await self._waits(event) else ""
        return ""

    async def _set_aside(self, event: pb.AgentEvent, text: str) -> str:
        """Keep a line that is no answer, or send it to the run; return the prompt that is shown again."""
        if not text.strip():
            return PROMPT
        if self._person.keep(text):
            return f"yarrow: not an answer, kept for after this run: {visible(text)}\n{PROMPT}"
        try:
            await self._stub.Steer(pb.SteerRequest(session_id=event.session_id, text=text))
        except aio.AioRpcError as error:
            return f"yarrow: not an answer, and not sent ({visible(error.details() or '')}): {visible(text)}\n{PROMPT}"
        return f"yarrow: not an answer, sent to the agent as a message: {visible(text)}\n{PROMPT}"

    async def _waits(self, event: pb.AgentEvent) -> bool:
        with contextlib.suppress(aio.AioRpcError):
            state = await patiently(partial(self._stub.GetState, pb.GetStateRequest(session_id=event.session_id)))
            return any(one.request_id == event.permission_request.request_id for one in state.permission_requests)
        return False


@asynccontextmanager
async def asking(stub: Stub, person: Person | None) -> AsyncGenerator[Asking | None]:
    """Open the questions of a run for a user, if there is one."""
    if person is None:
        yield None
        return
    questions = Asking(stub, person)
    try:
        yield questions
    finally:
        await questions.close()


def question(request: pb.PermissionRequest) -> str:
    """Return what a user is shown: the whole call, with everything in it that a terminal would obey or hide."""
    # Indented, so that no line of a call looks like one of ours.
    call = [f"    {f'{line.sign} ' if line.sign else ''}{line.text}" for line in call_lines(request)]
    told = [f"  {line}" for line in (facts(request, ""), agent_reason(request)) if line]
    covered = [] if request.tool == "bash" else [f"  session and always allow {scope(request)}"]
    return "\n".join([f"yarrow: {title(request)}", *call, *told, *covered, CHOICES])


def _answered(word: str) -> Answered:
    answer = _WORDS.get(word.lower())
    return Answered(pb.PERMISSION_ANSWER_NO, word[:MAX_TEXT]) if answer is None else Answered(answer)
