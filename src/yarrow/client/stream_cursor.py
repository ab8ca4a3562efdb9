"""Where the reader of one run is in the events of its session: what it read, and whether anything is to come."""

from typing import TypeAlias

from yarrow.v1 import agent_pb2 as pb

NamedEvent: TypeAlias = tuple[pb.AgentEvent, str]
"""An event, and the name of the one field that says what happened; empty for a kind that only newer services know."""
_UNKNOWN_END = (
    "the run is over, and how it ended was not told: the connection was cut, or the service was started again"
)


def make_synthetic_end(session_id: str, run_id: str) -> tuple[pb.AgentEvent, pb.AgentEvent]:
    """Return what stands for the end of a run that was not told: a gap of unknown size, and an end that says so."""
    missed = pb.AgentEvent(session_id=session_id, run_id=run_id, gap=pb.Gap())
    end = pb.AgentEvent(session_id=session_id, run_id=run_id)
    end.agent_end.reason = pb.END_REASON_ERROR
    end.agent_end.error.code = "UNREACHABLE"
    end.agent_end.error.message = _UNKNOWN_END
    return missed, end


class StreamCursor:
    """Begins before the first event of a run, whose prompt has the id `message_id`."""

    def __init__(self, session_id: str, message_id: str) -> None:
        self.has_begun = False
        """Whether an event of the run was read."""
        self.has_ended = False
        """Whether its end was."""
        self.is_replay = False
        """Whether the run is read from a stream that may tell other things before it."""
        self.has_heartbeats = False
        """Whether silent streams have signs of life."""
        self.sequence = 0
        """Of the last event that was read."""
        self.epoch = ""
        """Of the service, to which the sequence belongs; empty before it is known."""
        self._session_id = session_id
        self._message_id = message_id
        self._run_id = ""
        self._last: int | None = None
        """Sequence after which nothing of the run comes; None while it may go on."""
        self._held_gaps: list[NamedEvent] = []
        """A gap before the first event, until it is known to be one of this run."""

    @property
    def is_over(self) -> bool:
        """Whether nothing of the run is to come."""
        return self.has_ended or (self._last is not None and self.sequence >= self._last)

    def sync_with_state(self, state: pb.GetStateResponse) -> None:
        """Find out by the state of the session, as it is after a cut, whether the run goes on."""
        if self.epoch and state.epoch != self.epoch:
            self._last = 0
        elif not state.run_id or (self._run_id and state.run_id != self._run_id):
            self._last = state.sequence

    def accept(self, response: pb.PromptResponse | pb.StreamEventsResponse) -> list[NamedEvent]:
        """Return the events of a response that were not read before, without signs of life."""
        if self.epoch and response.epoch not in ("", self.epoch):
            self._last = 0
            return []
        self.epoch = response.epoch or self.epoch
        told: list[NamedEvent] = []
        for event in (response.event, *response.more):
            kind = event.WhichOneof("event") or ""
            if kind == "heartbeat":
                self.has_heartbeats = True
            elif kind == "gap":
                self.sequence = max(self.sequence, event.gap.last_sequence)
                (told if self.has_begun or not self.is_replay else self._held_gaps).append((event, kind))
            elif not event.sequence or event.sequence > self.sequence:
                self.sequence = event.sequence or self.sequence
                told += self._accept_event(event, kind)
            if self.is_over:
                break
        return told

    def end_synthetically(self) -> list[NamedEvent]:
        """Return what stands for the end of a run that was not told: a gap, and an end that says so."""
        self.has_ended = True
        return [
            (event, event.WhichOneof("event") or "") for event in make_synthetic_end(self._session_id, self._run_id)
        ]

    def _accept_event(self, event: pb.AgentEvent, kind: str) -> list[NamedEvent]:
        """Return the event with what was held back before it; nothing when it is of another run."""
        if kind == "agent_start" and not self._is_ours(event):
            # A session has one run at a time: this one is over, and its end was lost.
            self._last = 0
            return []
        if not self.has_begun:
            if kind == "agent_start":
                self._held_gaps.clear()
            self.has_begun = True
        self._run_id = self._run_id or event.run_id
        self.has_ended = self.has_ended or (kind == "agent_end" and event.run_id == self._run_id)
        told = [*self._held_gaps, (event, kind)]
        self._held_gaps.clear()
        return told

    def _is_ours(self, event: pb.AgentEvent) -> bool:
        if self._run_id:
            return event.run_id == self._run_id
        return not self.is_replay or event.agent_start.message_id == self._message_id
