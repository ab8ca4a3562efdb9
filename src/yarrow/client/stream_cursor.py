"""Position of the reader of one run in the events of its session: what it read, and whether more will come."""

from typing import TypeAlias

from yarrow.v1 import agent_pb2 as pb

NamedEvent: TypeAlias = tuple[pb.AgentEvent, str]
"""An event and the name of its field that is set; the name is empty for a kind that only newer services know."""
_UNKNOWN_END = "the run ended, but its result is unknown: the connection was lost or the service restarted"


def make_synthetic_end(session_id: str, run_id: str) -> tuple[pb.AgentEvent, pb.AgentEvent]:
    """Return a replacement for the missing end of a run: a gap of unknown size, and an end with an error."""
    missed = pb.AgentEvent(session_id=session_id, run_id=run_id, gap=pb.Gap())
    end = pb.AgentEvent(session_id=session_id, run_id=run_id)
    end.agent_end.reason = pb.END_REASON_ERROR
    end.agent_end.error.code = "UNREACHABLE"
    end.agent_end.error.message = _UNKNOWN_END
    return missed, end


class StreamCursor:
    """Cursor that starts before the first event of a run; `message_id` is the id of the run's prompt."""

    def __init__(self, session_id: str, message_id: str) -> None:
        self.has_begun = False
        """True once an event of the run was read."""
        self.has_ended = False
        """True once the end of the run was read."""
        self.is_replay = False
        """True if the stream may contain other events before the run."""
        self.has_heartbeats = False
        """True if silent streams have heartbeats."""
        self.sequence = 0
        """Sequence number of the last event read."""
        self.epoch = ""
        """Epoch of the service that the sequence number belongs to; empty until it is known."""
        self._session_id = session_id
        self._message_id = message_id
        self._run_id = ""
        self._last: int | None = None
        """Sequence number after which no event of the run comes; None while the run may continue."""
        self._held_gaps: list[NamedEvent] = []
        """Gaps before the first event, held until they are known to belong to this run."""

    @property
    def is_over(self) -> bool:
        """True if no more events of the run will come."""
        return self.has_ended or (self._last is not None and self.sequence >= self._last)

    def sync_with_state(self, state: pb.GetStateResponse) -> None:
        """Determine from the state of the session, read after a lost connection, whether the run continues."""
        if self.epoch and state.epoch != self.epoch:
            self._last = 0
        elif not state.run_id or (self._run_id and state.run_id != self._run_id):
            self._last = state.sequence

    def accept(self, response: pb.PromptResponse | pb.StreamEventsResponse) -> list[NamedEvent]:
        """Return the events of a response that were not read before, without heartbeats."""
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
        """Return a replacement for the missing end of the run: a gap, and an end with an error."""
        self.has_ended = True
        return [
            (event, event.WhichOneof("event") or "") for event in make_synthetic_end(self._session_id, self._run_id)
        ]

    def _accept_event(self, event: pb.AgentEvent, kind: str) -> list[NamedEvent]:
        """Return the event, preceded by held gaps; nothing if it belongs to another run."""
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
