"""What OpenTelemetry says of its own failures, told once: a collector that is gone fails every few seconds."""

import logging
from collections.abc import Callable

_logger = logging.getLogger("yarrow.telemetry")


class ExportFailureHandler(logging.Handler):
    """Passes the first one on. What it was may hold an address or a header with a key: only where it was is told."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.on_failure: Callable[[], None] | None = None
        """What is called, in the thread that sends, at each failure to send; it never waits."""
        self._has_warned = False

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record of theirs."""
        if not self._has_warned:
            self._has_warned = True
            _logger.warning(
                "%s reports a failure (line %s): look at OTEL_EXPORTER_OTLP_ENDPOINT and whether a collector answers "
                "there. What it does not take is lost, runs go on, and this is not told again",
                *(record.name, record.lineno),
            )
        if self.on_failure is not None and ".exporter." in record.name:
            self.on_failure()
