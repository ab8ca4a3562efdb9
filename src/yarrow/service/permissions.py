"""The RPCs about permission: answers to requests, and what was allowed and can be revoked."""

from collections.abc import Iterable
from contextlib import ExitStack

from yarrow.agent.permission_broker import PermissionDecision
from yarrow.config.settings import AllowedCall
from yarrow.errors import Code, InvalidArgument, LimitExceeded, NotFound
from yarrow.service.answers import Context, answers
from yarrow.service.entry import Entry
from yarrow.service.parts import Parts
from yarrow.service.sessions import Sessions
from yarrow.service.translate import ANSWERS
from yarrow.v1 import agent_pb2 as pb

MAX_TEXT = 10_000
"""Characters of what a person says with a no; a longer text is refused."""
LONGEST = 200
"""Maximum characters of a field in an error; the rest is cut."""


class Permissions:
    """The part of the service that takes answers."""

    _sessions: Sessions
    _parts: Parts

    @answers
    async def AnswerPermission(
        self, request: pb.AnswerPermissionRequest, context: Context
    ) -> pb.AnswerPermissionResponse:
        """Take the answer to a question."""
        entry = await self._sessions.lookup(request.session_id)
        await entry.agent.questions.answer(request.request_id, _given(request))
        return pb.AnswerPermissionResponse()

    @answers
    async def ListPermissions(self, request: pb.ListPermissionsRequest, context: Context) -> pb.ListPermissionsResponse:
        """List what runs without asking."""
        consent = self._parts.consent
        calls = [(call, True) for call in sorted(consent.always, key=_order)]
        if request.session_id:
            entry = await self._sessions.get_or_load(request.session_id)
            calls += [(call, False) for call in sorted(entry.agent.questions.allowed, key=_order)]
        return pb.ListPermissionsResponse(
            calls=[self._shown(call, always=always) for call, always in calls], file=consent.file
        )

    @answers
    async def RevokePermission(
        self, request: pb.RevokePermissionRequest, context: Context
    ) -> pb.RevokePermissionResponse:
        """Ask about a call again."""
        consent, asked = self._parts.consent, request.call
        if asked.always:
            for call in self._like(asked, consent.always):
                await consent.forget(call)
        else:
            entry = await self._sessions.get_or_load(request.session_id)
            for call in self._like(asked, entry.agent.questions.allowed):
                entry.agent.questions.allowed.discard(call)
        return pb.RevokePermissionResponse()

    def _like(self, asked: pb.AllowedCall, allowed: Iterable[AllowedCall]) -> list[AllowedCall]:
        """Return the calls that a client means, who sees them without keys. Raises `NotFound`."""
        found = [call for call in allowed if self._shown(call, always=asked.always) == asked]
        if not found:
            what = f"{asked.tool[:LONGEST]} {asked.subject[:LONGEST]!r} in {asked.cwd[:LONGEST]}"
            raise NotFound(f"{what} is not allowed: ListPermissions lists what is", code=Code.NOT_FOUND)
        return found

    def _shown(self, call: AllowedCall, *, always: bool) -> pb.AllowedCall:
        shown = self._sessions.redactors.keys().struct(call)
        return pb.AllowedCall(
            tool=shown.tool, subject=shown.subject, cwd=shown.cwd, uncontained=shown.uncontained, always=always
        )


def attending(entry: Entry, *, answers: bool) -> ExitStack:
    """Say that a client which `answers` questions, or not, is there until what is returned is closed."""
    stack = ExitStack()
    if answers:
        stack.enter_context(entry.agent.questions.presence.connected())
    return stack


def _order(call: AllowedCall) -> tuple[str, ...]:
    return call.cwd, call.tool, call.subject, str(call.uncontained)


def _given(request: pb.AnswerPermissionRequest) -> PermissionDecision:
    if len(request.text) > MAX_TEXT:
        raise LimitExceeded(f"text has {len(request.text)} characters; the limit is {MAX_TEXT}")
    for answer, number in ANSWERS.items():
        if number == request.answer:
            if request.text and answer != "no":
                raise InvalidArgument("text", "goes with PERMISSION_ANSWER_NO alone")
            return PermissionDecision(answer, request.text)
    raise InvalidArgument("answer", f"{request.answer} is no answer: say ONCE, SESSION, ALWAYS or NO")
