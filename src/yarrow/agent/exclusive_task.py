"""The single task that an agent runs at a time: its states, cancellation and outcome."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from msgspec import Struct

from yarrow.errors import Code, Failure, Precondition, YarrowError
from yarrow.event.events import AgentState, EndReason, StateChange


class RunningCount:
    """Number of running tasks in all sessions of a service, so that no session needs to be queried."""

    def __init__(self) -> None:
        self.taken = 0


class ExclusiveTask:
    """Slot for an agent's current task; acquired first, so that two callers never work on one session."""

    def __init__(self, session_id: str, among: RunningCount) -> None:
        self._session_id = session_id
        self._among = among
        self._task: asyncio.Task[None] | None = None
        self._abortable = False
        self._abort_early = False
        self.taken = False
        """True while the agent is busy or about to be."""

    def acquire(self, advice: str) -> None:
        """Acquire the slot. Raises `Precondition` (BUSY) with advice if it is in use."""
        if self.taken:
            raise Precondition(f"session {self._session_id} is running: {advice}", code=Code.BUSY)
        self.taken = True
        self._among.taken += 1
        self._abort_early = False

    def release(self) -> None:
        """Release the slot; has no effect if it is free."""
        self._among.taken -= self.taken
        self.taken = False

    def start(self, doing: Coroutine[Any, Any, None], name: str) -> None:
        """Run `doing` as a task; it must call `mark_abortable` first and `mark_finishing` before it ends."""
        self._task = asyncio.create_task(doing, name=name)

    def mark_abortable(self) -> bool:
        """Allow aborts from now on; return True if one was already requested."""
        self._abortable = not self._abort_early
        return self._abort_early

    def mark_finishing(self) -> None:
        """Disallow aborts from now on."""
        self._abortable = False

    def abort(self) -> bool:
        """Cancel the task; return whether it was cancelled. If not, `mark_abortable` reports the request."""
        if self._task is not None and self._abortable:
            self._abortable = False
            self._task.cancel()
            return True
        # A task that is cancelled before its first step would never emit its end event.
        self._abort_early = True
        return False

    async def settled(self) -> None:
        """Wait until no task is running."""
        if self._task is not None and not self._task.done():
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
    """State of an agent; each transition emits an event."""

    def __init__(self, emit: Callable[[StateChange], None]) -> None:
        self.current = AgentState.IDLE
        self._emit = emit

    def enter(self, state: AgentState) -> None:
        """Change to a state; has no effect if it is the current one.

        An illegal transition is a bug: it raises `AssertionError` and leaves the state unchanged.
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
    """Outcome of a run, as its end event reports it."""

    reason: EndReason
    failure: Failure | None = None


def from_error(error: YarrowError) -> RunOutcome:
    """Return the outcome for a Yarrow error."""
    return RunOutcome(_REASONS.get(error.code, EndReason.ERROR), error.failure())


def from_exception(error: Exception, run_id: str) -> RunOutcome:
    """Return the outcome for an unexpected exception; the log has the details under the run id."""
    text = f"a bug in Yarrow ended the run ({type(error).__name__}); the log has details under {run_id}"
    return RunOutcome(EndReason.ERROR, Failure(Code.INTERNAL, text))
