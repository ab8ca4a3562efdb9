"""What the log tells of each call: its method, session, status and time, and nothing of its content."""

import logging
import time

from yarrow.session.ids import is_valid_id

_logger = logging.getLogger("yarrow.service")


class RpcLog:
    """One call that is being answered; until its `status` is known it counts as cancelled."""

    def __init__(self, method: str, request: object) -> None:
        self.status = "CANCELLED"
        self._method = method
        session = getattr(request, "session_id", "")
        # What is no id could be any text, also one that looks like another line of the log.
        self._session = session if is_valid_id(session) else "-"
        self._started = time.monotonic()

    def write(self) -> None:
        """Write the line."""
        if _logger.isEnabledFor(logging.INFO):
            milliseconds = round((time.monotonic() - self._started) * 1000, 1)
            fields = {
                "method": self._method,
                "session": self._session,
                "status": self.status,
                "milliseconds": milliseconds,
            }
            _logger.info(
                "%s session=%s %s %s ms", self._method, self._session, self.status, milliseconds, extra={"call": fields}
            )
