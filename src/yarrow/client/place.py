"""Where the reader of one run is in the events of its session: what it read, and whether anything is to come."""

from typing import TypeAlias

from yarrow.v1 import agent_pb2 as pb

Told: TypeAlias = tuple[pb.AgentEvent, str]
"""An event, and the name of the one field that says what happened; empty for a kind that only newer services know."""
_UNTOLD = "the run is over, and how it ended was not told: the connection was cut, or the service was started again"


def untold(session_id: str, run_id: str) -> tuple[pb.AgentEvent, pb.AgentEvent]:
    """Return what stands for the end of a run that was not told: a gap of unknown size, and an end that says so."""
    missed = pb.AgentEvent(session_id=session_id, run_id=run_id, gap=pb.Gap())
    end = pb.AgentEvent(session_id=session_id, run_id=run_id)
    end.agent_end.reason = pb.END_REASON_ERROR
    end.agent_end.error.code = "UNREACHABLE"
    end.agent_end.error.message = _UNTOLD
    return missed, end


class Place:
    """Begins before the first event of a run, whose prompt has the id `message_id`."""

    def __init__(self, session_id: str, message_id: str) -> None:
        self.begun = False
        """Whether an event of the run was read."""
        self.ended = False
        """Whether its end was."""
        self.replays = False
        """Whether the run is read from a stream that may tell other things before it."""
        self.beats = False
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
        self._held: list[Told] = []
        """A gap before the first event, until it is known to be one of this run."""

    @property
    def is_over(self) -> bool:
        """Whether nothing of the run is to come."""
        return self.ended or (self._last is not None and self.sequence >= self._last)

    def compare(self, state: pb.GetStateResponse) -> None:
        """Find out by the state of the session, as it is after a cut, whether the run goes on."""
        if self.epoch and state.epoch != self.epoch:
            self._last = 0
        elif not state.run_id or (self._run_id and state.run_id != self._run_id):
            self._last = state.sequence

    def take(self, response: pb.PromptResponse | pb.StreamEventsResponse) -> list[Told]:
        """Return the events of a response that were not read before, without signs of life."""
        if self.epoch and response.epoch not in ("", self.epoch):
            self._last = 0
            return []
        self.epoch = response.epoch or self.epoch
        told: list[Told] = []
        for event in (response.event, *response.more):
            kind = event.WhichOneof("event") or ""
            if kind == "heartbeat":
                self.beats = True
            elif kind == "gap":
                self.sequence = max(self.sequence, event.gap.last_sequence)
                (told if self.begun or not self.replays else self._held).append((event, kind))
            elif not event.sequence or event.sequence > self.sequence:
                self.sequence = event.sequence or self.sequence
                told += self._taken(event, kind)
            if self.is_over:
                break
        return told

    def untold(self) -> list[Told]:
        """Return what stands for the end of a run that was not told: a gap, and an end that says so."""
        self.ended = True
        return [(event, event.WhichOneof("event") or "") for event in untold(self._session_id, self._run_id)]

    def _taken(self, event: pb.AgentEvent, kind: str) -> list[Told]:
        """Return the event with what was held back before it; nothing when it is of another run."""
        if kind == "agent_start" and not self._is_ours(event):
            # A session has one run at a time: this one is over, and its end was lost.
            self._last = 0
            return []
        if not self.begun:
            if kind == "agent_start":
                self._held.clear()
            self.begun = True
        self._run_id = self._run_id or event.run_id
        self.ended = self.ended or (kind == "agent_end" and event.run_id == self._run_id)
        told = [*self._held, (event, kind)]
        self._held.clear()
        return told

    def _is_ours(self, event: pb.AgentEvent) -> bool:
        if self._run_id:
            return event.run_id == self._run_id
        return not self.replays or event.agent_start.message_id == self._message_id
