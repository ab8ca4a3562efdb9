"""Limit on open files of a service, and how many connections fit in it."""

from msgspec.structs import replace

from yarrow.config.settings import ServiceSettings
from yarrow.platform import system

MOST = 65_536
"""Open files asked for where the hard limit allows more: some programs that commands start count up to the limit."""
RESERVE = 256
"""Open files kept for sessions, runs and programs; connections share the rest."""
FEWEST_CONNECTIONS = 16


def within_open_files(limits: ServiceSettings) -> ServiceSettings:
    """Raise the limit on open files, which is often 1,024, and return `limits` with the connections that fit in it."""
    fitting = max(system.allow_open_files(MOST) - RESERVE, FEWEST_CONNECTIONS)
    return replace(limits, connections=min(limits.connections, fitting))
