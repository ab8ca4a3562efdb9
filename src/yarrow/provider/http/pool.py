"""The connections to one server: how many may be busy, and which idle ones to use again."""

import asyncio

from yarrow.provider.http.connection import Connection

MAX_CONNECTIONS = 32
"""Connections to one server; further requests wait their turn."""
MAX_IDLE_SECONDS = 30.0
"""Age at which an idle connection is not used again: a router in between may have forgotten it in silence."""


class ConnectionPool:
    """At most MAX_CONNECTIONS connections to one server; whoever holds one of `slots` may take or open one."""

    def __init__(self) -> None:
        self.slots = asyncio.Semaphore(MAX_CONNECTIONS)
        self._idle: list[tuple[float, Connection]] = []

    def acquire(self) -> Connection | None:
        """Return the connection that was used last, or None when a new one has to be opened."""
        oldest = asyncio.get_running_loop().time() - MAX_IDLE_SECONDS
        while self._idle:
            since, connection = self._idle.pop()
            if connection.is_usable and since >= oldest:
                return connection
            connection.abort()
        return None

    def release(self, connection: Connection) -> None:
        """Keep a connection for the next request, or close it if it cannot carry one."""
        if connection.is_usable:
            self._idle.append((asyncio.get_running_loop().time(), connection))
        else:
            connection.abort()

    def drop_idle(self) -> None:
        """Close all idle connections: where the newest was dead, the older ones are."""
        while self._idle:
            self._idle.pop()[1].abort()
