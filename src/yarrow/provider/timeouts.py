"""Says how long a server may be silent: by its place, by its settings, by the request."""

from msgspec.structs import replace

from yarrow.config.settings import ProviderSettings
from yarrow.provider.http.client import Timeouts

QUESTION_TIMEOUTS = Timeouts(connect=10.0, first_byte=30.0, idle=30.0)
"""For what a server is asked besides answers, such as the list of its models."""
SHORT_TIMEOUTS = Timeouts(connect=5.0, first_byte=5.0, idle=5.0)
"""For the question what a model can do, without whose answer we must do."""


STALL_FACTOR = 5
"""How many times as long as for bytes a server is waited for that sends bytes without content, such as heartbeats."""


def make_timeouts(settings: ProviderSettings, *, local: bool) -> Timeouts:
    """Return the limits for a server: a local one is silent for as long as it reads a long prompt."""
    usual = Timeouts(first_byte=None, idle=600.0) if local else Timeouts()
    idle = _choose_limit(settings.idle_timeout, usual.idle)
    return Timeouts(
        first_byte=_choose_limit(settings.first_byte_timeout, usual.first_byte),
        idle=idle,
        stall=_choose_limit(settings.stall_timeout, idle and STALL_FACTOR * idle),
    )


def replace_idle(timeouts: Timeouts, idle: float | None) -> Timeouts:
    """Return the limits with the seconds between two bytes that a request asks for: 0 is no limit, None leaves it."""
    if idle is None:
        return timeouts
    stall = timeouts.stall and max(timeouts.stall, STALL_FACTOR * idle)
    return replace(timeouts, idle=idle or None, stall=stall)


def _choose_limit(configured: float | None, usual: float | None) -> float | None:
    return usual if configured is None else configured or None
