"""The states of an agent and which may follow which."""

from collections.abc import Callable

from yarrow.event.events import AgentState, StateChange

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
