"""The RPC by which a person says whether a tool call runs, and who is there to say it."""

from contextlib import ExitStack

from yarrow.agent.permission import Given
from yarrow.errors import InvalidArgument, LimitExceeded
from yarrow.service.answers import Context, answers
from yarrow.service.entry import Entry
from yarrow.service.sessions import Sessions
from yarrow.service.translate import ANSWERS
from yarrow.v1 import agent_pb2 as pb

MAX_TEXT = 10_000
"""Characters of what a person says with a no; a longer text is refused."""


class Permissions:
    """The part of the service that takes answers."""

    _sessions: Sessions

    @answers
    async def AnswerPermission(
        self, request: pb.AnswerPermissionRequest, context: Context
    ) -> pb.AnswerPermissionResponse:
        """Take the answer to a question."""
        entry = await self._sessions.lookup(request.session_id)
        await entry.agent.questions.answer(request.request_id, _given(request))
        return pb.AnswerPermissionResponse()


def attending(entry: Entry, *, answers: bool) -> ExitStack:
    """Say that a client which `answers` questions, or not, is there until what is returned is closed."""
    stack = ExitStack()
    if answers:
        stack.enter_context(entry.agent.questions.presence.attended())
    return stack


def _given(request: pb.AnswerPermissionRequest) -> Given:
    if len(request.text) > MAX_TEXT:
        raise LimitExceeded(f"text has {len(request.text)} characters; the limit is {MAX_TEXT}")
    for answer, number in ANSWERS.items():
        if number == request.answer:
            if request.text and answer != "no":
                raise InvalidArgument("text", "goes with PERMISSION_ANSWER_NO alone")
            return Given(answer, request.text)
    raise InvalidArgument("answer", f"{request.answer} is no answer: say ONCE, SESSION, ALWAYS or NO")
