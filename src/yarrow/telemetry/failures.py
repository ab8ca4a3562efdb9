"""What OpenTelemetry says of its own failures, told once: a collector that is gone fails every few seconds."""

import logging
from collections.abc import Callable

_logger = logging.getLogger("yarrow.telemetry")


class Failures(logging.Handler):
    """Passes the first one on. What it was may hold an address or a header with a key: only where it was is told."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.then: Callable[[], None] | None = None
        """What is called, in the thread that sends, at each failure to send; it never waits."""
        self._told = False

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record of theirs."""
        if not self._told:
            self._told = True
            _logger.warning(
                "%s reports a failure (line %s): look at OTEL_EXPORTER_OTLP_ENDPOINT and whether a collector answers "
                "there. What it does not take is lost, runs go on, and this is not told again",
                *(record.name, record.lineno),
            )
        if self.then is not None and ".exporter." in record.name:
            self.then()
