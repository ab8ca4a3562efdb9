"""Limit on open files of a service, and how many connections fit in it."""

from msgspec.structs import replace

from yarrow.config.settings import ServiceSettings
from yarrow.platform import system

MAX_OPEN_FILES = 65_536
"""Open files asked for where the hard limit allows more: some programs that commands start count up to the limit."""
RESERVED_FILES = 256
"""Open files kept for sessions, runs and programs; connections share the rest."""
MIN_CONNECTIONS = 16


def fit_connections(limits: ServiceSettings) -> ServiceSettings:
    """Raise the limit on open files, which is often 1,024, and return `limits` with the connections that fit in it."""
    fitting = max(system.raise_open_file_limit(MAX_OPEN_FILES) - RESERVED_FILES, MIN_CONNECTIONS)
    return replace(limits, connections=min(limits.connections, fitting))
