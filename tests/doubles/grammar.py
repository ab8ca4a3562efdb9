"""The event grammar of law 6 as a checker over internal events; it raises at the first event out of place."""

from collections.abc import Iterable

import regex

from yarrow.errors import Code
from yarrow.event import events as ev

_LETTERS: dict[type, str] = {
    ev.AgentStart: "A",
    ev.TurnStart: "T",
    ev.MessageStart: "M",
    ev.TextDelta: "x",
    ev.ThinkingDelta: "x",
    ev.ToolCallEvent: "x",
    ev.MessageEnd: "m",
    ev.ToolDelta: "d",
    ev.ToolOutput: "o",
    ev.TurnEnd: "t",
    ev.AgentEnd: "a",
}
_SIDE = (
    ev.StateChange,
    ev.QueueUpdate,
    ev.UsageReport,
    ev.CompactionStart,
    ev.CompactionEnd,
    ev.Notice,
    ev.RetryScheduled,
    ev.ModelChanged,
    ev.PermissionRequest,
    ev.PermissionSettled,
    ev.Gap,
    ev.Heartbeat,
)
_RUN = regex.compile(r"A(TMx*m(d*o)*t)*a")


def check_run(bodies: Iterable[ev.Body]) -> None:
    """Assert that the bodies of one run follow the grammar, with every call answered once and brackets matching."""
    told = list(bodies)
    letters = _spelled(told)
    assert _RUN.fullmatch(letters), f"not the grammar: {letters}"
    assert isinstance(told[0], ev.AgentStart)
    assert isinstance(told[-1], ev.AgentEnd)
    _check_calls(told)
    _check_states(told)
    turns = [body.turn for body in told if isinstance(body, ev.TurnStart)]
    assert turns == list(range(1, len(turns) + 1))
    assert turns == [body.turn for body in told if isinstance(body, ev.TurnEnd)]


def check_begun(bodies: Iterable[ev.Body]) -> None:
    """Assert that the bodies are the beginning of a run, cut anywhere."""
    letters = _spelled(bodies)
    assert _RUN.fullmatch(letters, partial=True), f"not the beginning of the grammar: {letters}"


def check_sequences(events: Iterable[ev.Event]) -> None:
    """Assert that sequence numbers go on by one."""
    numbers = [event.sequence for event in events]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def _spelled(bodies: Iterable[ev.Body]) -> str:
    return "".join(_LETTERS[type(body)] for body in bodies if not isinstance(body, _SIDE))


def _check_calls(told: list[ev.Body]) -> None:
    """Within a turn the outputs answer the calls, in order, once each, deltas beside their output."""
    last = told[-1]
    if isinstance(last, ev.AgentEnd) and last.error is not None and last.error.code is Code.STORAGE:
        return  # a result that could not be recorded is not told
    calls: list[str] = []
    answered: list[str] = []
    open_call = ""
    for body in told:
        if isinstance(body, ev.TurnStart):
            calls, answered, open_call = [], [], ""
        elif isinstance(body, ev.ToolCallEvent):
            calls.append(body.id)
        elif isinstance(body, ev.ToolDelta):
            assert open_call in ("", body.tool_call_id), "deltas of two calls are mixed"
            open_call = body.tool_call_id
        elif isinstance(body, ev.ToolOutput):
            assert open_call in ("", body.tool_call_id), "an output closes another call's deltas"
            open_call = ""
            answered.append(body.tool_call_id)
        elif isinstance(body, ev.TurnEnd):
            assert answered == calls, f"calls {calls} were answered as {answered}"


def _check_states(told: list[ev.Body]) -> None:
    now = ev.AgentState.IDLE
    for body in told:
        if isinstance(body, ev.StateChange):
            assert body.before is now
            now = body.after
    assert now is ev.AgentState.IDLE, "the run's end was told before the agent was idle"
