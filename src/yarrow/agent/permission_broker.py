"""Permission requests of one session: recorded before they are shown, answered once, closed when the run ends."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Generator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from yarrow.agent.cancellation_shield import run_shielded
from yarrow.agent.session_writer import SessionWriter
from yarrow.config.settings import AllowedCall
from yarrow.errors import Code, NotFound, Precondition, YarrowError
from yarrow.event.events import Answer, AnsweredBy, Notice, PermissionRequest, PermissionSettled
from yarrow.message import Message, Role, Text, ToolCall
from yarrow.policy.permission.path_rules import CallDescription, ToolKind
from yarrow.session.ids import new_id
from yarrow.session.record import PermissionAnswered, PermissionAsked, Record
from yarrow.session.state import SessionState

MAX_KEPT_ANSWERS = 256
"""Maximum settled requests remembered to distinguish late answers from unknown ids; the oldest is dropped."""
TIMEOUT = 600.0
"""Default timeout of a request in seconds."""


class PermissionDecision(Struct, frozen=True):
    """The answer to a permission request."""

    answer: Answer
    text: str = ""
    """Message passed to the model when the request is denied."""
    by: AnsweredBy = "person"


_NO_CLIENT = PermissionDecision("no", by="nobody")
_TOO_LATE = PermissionDecision("no", by="timeout")
_ABORTED = PermissionDecision("no", by="abort")
_NOT_KEPT = Notice(
    "NOT_KEPT", "the call is allowed for this session only: it contains an API key, which is never saved"
)


async def _keep_nothing(_call: AllowedCall) -> None:
    """Default for `PermissionConfig.keep`: does nothing."""


async def _forget_nothing(_call: AllowedCall) -> None:
    """Default for `PermissionConfig.forget`: does nothing."""


class PermissionConfig(Struct, frozen=True):
    """Permission settings that exist before any call."""

    rules: Mapping[str, str] = {}
    """The configured rules."""
    always: AbstractSet[AllowedCall] = frozenset()
    """Calls that are always allowed; it grows as calls are saved."""
    keep: Callable[[AllowedCall], Awaitable[None]] = _keep_nothing
    """Saves a call as always allowed. Raises `YarrowError`."""
    forget: Callable[[AllowedCall], Awaitable[None]] = _forget_nothing
    """Revokes an always allowed call. Raises `YarrowError`."""
    file: str = ""
    """Path of the file in which calls are saved; empty if they are not saved."""
    timeout: float = TIMEOUT
    """Timeout of a request in seconds."""


class _PendingRequest:
    def __init__(self, told: PermissionRequest, like: AllowedCall, consent: PermissionConfig):
        self.told = told
        self.like = like
        self.consent = consent
        self.holds_key = False
        """True if the call contains a provider key and must not be saved."""
        self.claimed: PermissionDecision | None = None
        """The answer that counts, unless saving it fails."""
        self.otherwise: PermissionDecision | None = None
        """The answer that counts if saving the claimed one fails, because it became due in the meantime."""
        self.answered: asyncio.Future[PermissionDecision] = asyncio.get_running_loop().create_future()
        self.settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done when the answer is on disk or could not be written."""

    def decide_if_unclaimed(self, given: PermissionDecision) -> None:
        """Answer in place of the user; if a user's answer is being saved, only if that fails."""
        if self.claimed is None:
            self.give(given)
        else:
            self.otherwise = given

    def release_claim(self) -> None:
        """Wait for another answer, unless one is already due."""
        self.claimed = None
        if self.otherwise is not None:
            self.give(self.otherwise)

    def give(self, given: PermissionDecision) -> None:
        """Set the answer, unless one is set."""
        if not self.answered.done():
            self.claimed = given
            self.answered.set_result(given)


class PermissionBroker:
    """Permission requests of one session, each owned by the run that asks. Must be used from one event loop."""

    def __init__(self, writer: SessionWriter) -> None:
        self._writer = writer
        self._open: dict[str, _PendingRequest] = {}
        self._past: OrderedDict[str, PermissionDecision] = OrderedDict()
        self.presence = ClientPresence(self._nobody, self._call_later)
        """Connected clients; pending requests are denied when the last one is gone."""
        self.allowed: set[AllowedCall] = set()
        """Calls allowed for the session, held in memory only."""
        self.later: Later | None = None
        """Timer used instead of the event loop's."""

    @property
    def pending(self) -> tuple[PermissionRequest, ...]:
        """The pending requests, in order."""
        return tuple(question.told for question in self._open.values() if not question.answered.done())

    async def ask(
        self, call: ToolCall, request: CallDescription, reason: str, *, consent: PermissionConfig
    ) -> PermissionDecision:
        """Ask for permission and return the answer once it is on disk; deny at once if no client is connected.

        Raises `StorageError`. If this is cancelled, the answer is no.
        """
        redactor = self._writer.redactor
        holds_key = redactor.redact_struct(request.allow_key) != request.allow_key
        told = PermissionRequest(
            new_id(),
            call.id,
            call.name,
            redactor.redact_json(call.arguments),
            redactor.redact_text(reason),
            request.is_sandboxed,
            outside=request.leaves_sandbox,
            model_reason=redactor.redact_text(request.model_reason),
            cwd=redactor.redact_text(request.allow_key.cwd) if request.kind is ToolKind.SHELL else "",
            rule=redactor.redact_json(msgspec.json.encode(request.allow_key).decode()),
            rule_file="" if holds_key else consent.file,
        )
        question = _PendingRequest(told, request.allow_key, consent)
        question.holds_key = holds_key
        await run_shielded(self._begin(question))
        timer = self._call_later(consent.timeout, lambda: question.decide_if_unclaimed(_TOO_LATE))
        try:
            return await asyncio.shield(question.answered)
        finally:
            timer.cancel()
            await run_shielded(self._settle(question))

    async def answer(self, request_id: str, given: PermissionDecision) -> None:
        """Answer a request; the answer is on disk on return. Repeating the same answer has no effect.

        Raises `NotFound` (NOT_FOUND), `Precondition` (NOT_RUNNING) if another answer was given before, and the error of
        saving an "always" answer; the request stays pending then.
        """
        question = self._open.get(request_id)
        before = question.claimed if question else self._past.get(request_id)
        if question is None and before is None:
            raise NotFound(
                f"no permission request {request_id!r}: GetState lists the pending ones", code=Code.NOT_FOUND
            )
        if before is not None and before != given:
            raise Precondition(
                f"permission request {request_id} was already answered: {before.answer} ({before.by})",
                code=Code.NOT_RUNNING,
            )
        if question is not None:
            if before is None:
                # Set before the first await, so that no other answer can intervene.
                question.claimed = given
                await run_shielded(self._give(question, given))
            await asyncio.shield(question.settled)

    async def _give(self, question: _PendingRequest, given: PermissionDecision) -> None:
        if given.answer == "always" and not question.holds_key:
            with ExitStack() as undo:
                # Release the claim if saving fails; otherwise the request could never be answered.
                undo.callback(question.release_claim)
                await question.consent.keep(question.like)
                undo.pop_all()
        question.give(given)

    async def _begin(self, question: _PendingRequest) -> None:
        told = question.told
        await self._writer.append(
            PermissionAsked(
                id=told.request_id,
                timestamp=self._writer.timestamp(),
                tool_call_id=told.tool_call_id,
                tool=told.tool,
                reason=told.reason,
            )
        )
        self._open[told.request_id] = question
        self._writer.publish(told)
        if not self.presence.any_connected:
            question.give(_NO_CLIENT)

    def _nobody(self) -> None:
        for question in self._open.values():
            question.decide_if_unclaimed(_NO_CLIENT)

    def _call_later(self, seconds: float, then: Callable[[], None]) -> asyncio.TimerHandle:
        return (self.later or asyncio.get_running_loop().call_later)(seconds, then)

    async def _settle(self, question: _PendingRequest) -> None:
        """Persist and publish the answer; a request without one was aborted."""
        question.give(question.claimed or _ABORTED)
        given = question.answered.result()
        is_cut_short = given.answer == "always" and question.holds_key
        counts = replace(given, answer="session") if is_cut_short else given
        request_id = question.told.request_id
        try:
            await self._writer.append(_answered(request_id, self._writer.timestamp(), counts))
        except YarrowError as error:
            question.settled.set_exception(error)
            # Mark the exception as retrieved: the run raises it too, and asyncio would log it as unhandled.
            question.settled.exception()
            raise
        else:
            if counts.answer in ("session", "always") and question.like not in question.consent.always:
                self.allowed.add(question.like)
            self._writer.publish(PermissionSettled(request_id, counts.answer, counts.by))
            if is_cut_short:
                self._writer.publish(_NOT_KEPT)
            question.settled.set_result(None)
        finally:
            del self._open[request_id]
            self._past[request_id] = given
            while len(self._past) > MAX_KEPT_ANSWERS:
                self._past.popitem(last=False)


class AbandonedRequests(Struct, frozen=True):
    """Requests left open by an interrupted run: the records that close them, and notices for the user."""

    records: tuple[Record, ...]
    notices: tuple[Notice, ...]


def find_abandoned(session: SessionState, now: str) -> AbandonedRequests:
    """Return the denial of every request that was pending when the session's run was interrupted.

    The call also gets a result if it is an unanswered call of the last answer; otherwise the history is repaired when
    it is sent to the model.
    """
    records: list[Record] = []
    notices: list[Notice] = []
    waiting = _unanswered_calls(session) if session.asked else set[str]()
    for asked in session.asked:
        records.append(_answered(asked.id, now, PermissionDecision("no", by="restart")))
        text = "Not run: the service stopped before the user answered. Ask again if it is still needed."
        if asked.tool_call_id in waiting:
            waiting.remove(asked.tool_call_id)
            records.append(
                Message(
                    id=new_id(),
                    role=Role.TOOL,
                    content=(Text(text),),
                    timestamp=now,
                    tool_call_id=asked.tool_call_id,
                    tool_name=asked.tool,
                    is_error=True,
                )
            )
        told = f"{asked.tool} was denied: the service stopped before the request was answered"
        notices.append(Notice("PERMISSION_DENIED", told))
    return AbandonedRequests(tuple(records), tuple(notices))


def _unanswered_calls(session: SessionState) -> set[str]:
    answered: set[str] = set()
    for message in reversed(session.messages):
        if message.role is not Role.TOOL:
            return {call.id for call in message.tool_calls} - answered
        answered.add(message.tool_call_id)
    return set()


def _answered(request_id: str, now: str, given: PermissionDecision) -> PermissionAnswered:
    return PermissionAnswered(id=request_id, timestamp=now, answer=given.answer, by=given.by, text=given.text)


MAX_ABSENCE_SECONDS = 30.0
"""Grace period in seconds after the last client disconnects, so that a reconnecting client still counts as present."""
Later = Callable[[float, Callable[[], None]], asyncio.TimerHandle]
"""Schedules a callback after a delay in seconds."""


class ClientPresence:
    """The connected clients of one session that can answer. Must be used from one event loop."""

    def __init__(self, gone: Callable[[], None], later: Later) -> None:
        """Create the tracker; `gone` is called when the last client has left and its grace period is over."""
        self._gone = gone
        self._later = later
        self._present = 0
        self._running = False
        self._awaited: asyncio.TimerHandle | None = None

    @property
    def any_connected(self) -> bool:
        """True if a client is connected or the grace period is running."""
        return self._present > 0 or self._awaited is not None

    def begin_run(self) -> None:
        """Grant disconnected clients a grace period from now on."""
        self._running = True

    def end_run(self) -> None:
        """Grant no more grace periods; cancel the current one."""
        self._running = False
        self._stop_waiting()

    @contextmanager
    def connected(self) -> Generator[None]:
        """Count a client as connected within the context."""
        self._stop_waiting()
        self._present += 1
        try:
            yield
        finally:
            self._present -= 1
            # A closed stream does not show whether the client left or lost its connection.
            if not self._present and self._running:
                self._awaited = self._later(MAX_ABSENCE_SECONDS, self._give_up)

    def _give_up(self) -> None:
        self._awaited = None
        self._gone()

    def _stop_waiting(self) -> None:
        if self._awaited is not None:
            self._awaited.cancel()
            self._awaited = None
