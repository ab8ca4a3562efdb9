"""Refusals at the door of the service: counts, and log lines that name the peer at most once a minute each."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import unquote

from yarrow.platform import system

LOG_SECONDS = 60.0
"""Time between two log lines about refused calls of one peer, and between two about full connections."""
CHECK_SECONDS = 5.0
"""Time between two looks at how many connections are open."""
MAX_PEERS = 1_024
"""Peers whose last log line is remembered; then all are forgotten."""
MAX_NAMED_PEERS = 3
"""Peers named when no more connections are accepted: those with the most."""

_logger = logging.getLogger("yarrow.service")


class RefusalLog:
    """What one service refused since it started; `now` is a clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.calls = 0
        """Calls without the service's token."""
        self.full_seconds = 0
        """Time in which no more connections were accepted, in steps of `CHECK_SECONDS`."""
        self._now = now
        self._logged: dict[str, float] = {}
        self._unlogged: Counter[str] = Counter()

    def record_call(self, method: str, peer: str) -> None:
        """Count a call refused for its token, and log it unless the peer was logged within the last minute."""
        self.calls += 1
        host = parse_peer_host(peer)
        if not self._is_due(host):
            self._unlogged[host] += 1
            return
        more = self._unlogged.pop(host, 0)
        also = f" ({more:,} more calls since the last line)" if more else ""
        _logger.warning("%s from %s refused: UNAUTHENTICATED%s", method.rpartition("/")[2], host, also)

    def check_connections(self, port: int, limit: int) -> None:
        """Count and log, with the peers, when a port of this machine has as many connections as are accepted."""
        peers = Counter(system.list_connected_addresses(port))
        if peers.total() < limit:
            return
        self.full_seconds += int(CHECK_SECONDS)
        if self._is_due(""):
            named = ", ".join(f"{peer} ({count:,})" for peer, count in peers.most_common(MAX_NAMED_PEERS))
            _logger.warning("no more than %s connections are accepted (service.connections): %s", f"{limit:,}", named)

    async def watch_connections(self, port: int, limit: int) -> None:
        """Look every `CHECK_SECONDS` until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            with suppress(OSError):
                await asyncio.to_thread(self.check_connections, port, limit)

    def _is_due(self, peer: str) -> bool:
        now = self._now()
        if now - self._logged.get(peer, -LOG_SECONDS) < LOG_SECONDS:
            return False
        if len(self._logged) >= MAX_PEERS:
            self._logged.clear()
            self._unlogged.clear()
        self._logged[peer] = now
        return True


def parse_peer_host(peer: str) -> str:
    """Return the address in gRPC's name of a peer, such as `ipv4:192.0.2.1:50000`, without its port."""
    kind, _, rest = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return "a socket of this machine" if kind == "unix" else "an unknown peer"
    return rest.rpartition(":")[0].strip("[]")
