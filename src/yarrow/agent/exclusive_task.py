"""The one task that an agent runs at a time: its states, how it is aborted, and its outcome."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct

from yarrow.errors import Code, Failure, Precondition, YarrowError
from yarrow.event.events import AgentState, EndReason, StateChange


class RunningCount:
    """Those of all sessions of a service: how many are taken is known without asking each."""

    def __init__(self) -> None:
        self.taken = 0


class ExclusiveTask:
    """Taken before anything else is done, so that two callers never work on one session."""

    def __init__(self, session_id: str, among: RunningCount) -> None:
        self._session_id = session_id
        self._among = among
        self._task: asyncio.Task[None] | None = None
        self._abortable = False
        self._abort_early = False
        self.taken = False
        """Whether the agent is busy, or about to be."""

    def acquire(self, advice: str) -> None:
        """Take the seat. Raises `Precondition` (BUSY) with advice."""
        if self.taken:
            raise Precondition(f"session {self._session_id} is running: {advice}", code=Code.BUSY)
        self.taken = True
        self._among.taken += 1
        self._abort_early = False

    def release(self) -> None:
        """Let the next one have it; without effect when it is free."""
        self._among.taken -= self.taken
        self.taken = False

    def start(self, doing: Coroutine[Any, Any, None], name: str) -> None:
        """Run it as a task, which calls `mark_abortable` first and `mark_finishing` before its end."""
        self._task = asyncio.create_task(doing, name=name)

    def mark_abortable(self) -> bool:
        """Say that an abort may strike from now on; return whether one was asked for before."""
        self._abortable = not self._abort_early
        return self._abort_early

    def mark_finishing(self) -> None:
        """Say that an abort strikes no more."""
        self._abortable = False

    def abort(self) -> bool:
        """Cancel the task; return whether that was possible now. If not, it is remembered for `mark_abortable`."""
        if self._task is not None and self._abortable:
            self._abortable = False
            self._task.cancel()
            return True
        # A task that is cancelled before its first step would never tell its end.
        self._abort_early = True
        return False

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        if self._task is not None:
            await asyncio.wait([self._task])


_S = AgentState

TRANSITIONS: dict[AgentState, frozenset[AgentState]] = {
    _S.IDLE: frozenset({_S.THINKING, _S.EXECUTING, _S.COMPACTING}),
    _S.THINKING: frozenset({_S.EXECUTING, _S.COMPACTING, _S.ABORTING, _S.ERROR, _S.IDLE}),
    _S.EXECUTING: frozenset({_S.THINKING, _S.COMPACTING, _S.ABORTING, _S.ERROR, _S.IDLE}),
    _S.COMPACTING: frozenset({_S.THINKING, _S.EXECUTING, _S.ABORTING, _S.ERROR, _S.IDLE}),
    _S.ABORTING: frozenset({_S.IDLE}),
    _S.ERROR: frozenset({_S.IDLE}),
}


class StateMachine:
    """Where an agent is; every transition is told."""

    def __init__(self, emit: Callable[[StateChange], None]) -> None:
        self.current = AgentState.IDLE
        self._emit = emit

    def enter(self, state: AgentState) -> None:
        """Go to a state; going where one is does nothing.

        An illegal transition is a bug: it raises `AssertionError` and the state stays.
        """
        before = self.current
        if state is before:
            return
        if state not in TRANSITIONS[before]:
            raise AssertionError(f"illegal transition of the agent from {before} to {state}")
        self.current = state
        self._emit(StateChange(before, state))


_REASONS = {Code.TURN_LIMIT: EndReason.TURN_LIMIT, Code.LOOP_DETECTED: EndReason.LOOP_DETECTED}


class RunOutcome(Struct, frozen=True):
    """What is told of the end of a run."""

    reason: EndReason
    failure: Failure | None = None


def from_error(error: YarrowError) -> RunOutcome:
    """Return the end that an error of the tree makes."""
    return RunOutcome(_REASONS.get(error.code, EndReason.ERROR), error.failure())


def from_exception(error: Exception, run_id: str) -> RunOutcome:
    """Return the end that a bug of ours makes; the log has the rest of it under the run's id."""
    text = f"a bug in Yarrow ended the run ({type(error).__name__}); the log has it under {run_id}"
    return RunOutcome(EndReason.ERROR, Failure(Code.INTERNAL, text))
