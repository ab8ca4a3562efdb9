"""Asks the person at the terminal whether tool calls may run, one after the other, and passes the answers on."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Protocol

from grpc import aio

from yarrow.client.patience import patiently
from yarrow.client.permission import MAX_TEXT, visible
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb

CHOICES = "Allow it? y once, s for this session, a always, or what to do instead [no] "
_WORDS = {
    "y": pb.PERMISSION_ANSWER_ONCE,
    "yes": pb.PERMISSION_ANSWER_ONCE,
    "once": pb.PERMISSION_ANSWER_ONCE,
    "s": pb.PERMISSION_ANSWER_SESSION,
    "session": pb.PERMISSION_ANSWER_SESSION,
    "a": pb.PERMISSION_ANSWER_ALWAYS,
    "always": pb.PERMISSION_ANSWER_ALWAYS,
    "": pb.PERMISSION_ANSWER_NO,
    "n": pb.PERMISSION_ANSWER_NO,
    "no": pb.PERMISSION_ANSWER_NO,
}


class Person(Protocol):
    """Somebody at a terminal."""

    async def answer(self, question: str) -> str:
        """Show a question, its last line as a prompt, and return the line typed after it; empty at the end of input."""
        ...


class Asking:
    """The questions of one run, for as long as its stream is open."""

    def __init__(self, stub: Stub, person: Person) -> None:
        self._stub = stub
        self._person = person
        self._turn = asyncio.Lock()
        self._asked: dict[str, asyncio.Task[None]] = {}

    def ask(self, event: pb.AgentEvent) -> None:
        """Ask when what was asked before is answered."""
        request_id = event.permission_request.request_id
        self._asked[request_id] = asyncio.create_task(self._ask(event), name=f"question {request_id}")

    def settled(self, request_id: str) -> None:
        """Take a question back: somebody answered it, or it waits no more."""
        if task := self._asked.get(request_id):
            task.cancel()

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
            while text:
                line = await self._person.answer(text)
                try:
                    # A connection that is cut loses no answer: the same one again is no failure.
                    await patiently(partial(self._stub.AnswerPermission, _answer(event, line)))
                    text = ""
                except aio.AioRpcError as error:
                    # An answer that could not be kept leaves the question open; it is asked again, with the reason.
                    again = f"yarrow: {visible(error.details() or '')}\n{CHOICES}"
                    text = again if await self._waits(event) else ""

    async def _waits(self, event: pb.AgentEvent) -> bool:
        with contextlib.suppress(aio.AioRpcError):
            state = await patiently(partial(self._stub.GetState, pb.GetStateRequest(session_id=event.session_id)))
            return any(one.request_id == event.permission_request.request_id for one in state.permission_requests)
        return False


@asynccontextmanager
async def asking(stub: Stub, person: Person | None) -> AsyncGenerator[Asking | None]:
    """Open the questions of a run for a person, if there is one."""
    if person is None:
        yield None
        return
    questions = Asking(stub, person)
    try:
        yield questions
    finally:
        await questions.close()


def question(request: pb.PermissionRequest) -> str:
    """Return what a person is shown: the whole call, with everything in it that a terminal would obey or hide."""
    where = " (in a sandbox)" if request.contained else ""
    head = f"yarrow: {visible(request.tool)} asks for permission{where}: {visible(request.reason)}"
    return f"{head}\n{visible(said(request))}\n{CHOICES}"


def said(request: pb.PermissionRequest) -> str:
    """Return what a call would do: a command as it is, any other call as its arguments."""
    # Here, since most runs ask nothing.
    import json

    try:
        arguments: dict[str, Any] = dict(json.loads(request.arguments_json))
    except (TypeError, ValueError, RecursionError):
        return request.arguments_json
    command = arguments.pop("command", None)
    if not isinstance(command, str):
        return request.arguments_json
    return f"{command}\n{json.dumps(arguments, ensure_ascii=False)}" if arguments else command


def _answer(event: pb.AgentEvent, line: str) -> pb.AnswerPermissionRequest:
    word = line.strip()
    answer = _WORDS.get(word.lower())
    return pb.AnswerPermissionRequest(
        session_id=event.session_id,
        request_id=event.permission_request.request_id,
        answer=pb.PERMISSION_ANSWER_NO if answer is None else answer,
        text=word[:MAX_TEXT] if answer is None else "",
    )
