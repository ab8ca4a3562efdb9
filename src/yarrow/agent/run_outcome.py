"""How a run ended: what left the loop, as the reason and the error that its end tells."""

from msgspec import Struct

from yarrow.errors import Code, Failure, YarrowError
from yarrow.event.events import EndReason

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
