"""Telemetry configuration: what is sent to OpenTelemetry and where, from settings and `OTEL_*` variables."""

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING

from yarrow.config.settings import TelemetrySettings
from yarrow.errors import ConfigError

if TYPE_CHECKING:
    from yarrow.telemetry.reporter import TelemetryReporter

_logger = logging.getLogger("yarrow.telemetry")

OTLP_PROTOCOL = "http/protobuf"
"""The supported protocol, which is OpenTelemetry's default."""
SIGNALS = ("TRACES", "METRICS")


def start_telemetry(settings: TelemetrySettings, environment: Mapping[str, str]) -> "TelemetryReporter | None":
    """Return the reporter; None if telemetry is disabled, or cannot start although no setting asks for it.

    The latter is logged. Raises `ConfigError` if a setting asks for telemetry and it cannot start.
    """
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    try:
        sent = [signal for signal in SIGNALS if _is_sent(signal, environment)]
        return _make_reporter(settings, environment, sent) if sent else None
    except ConfigError as error:
        if settings.send == "on":
            raise
        _logger.warning("OpenTelemetry is off: %s", error.message)
        return None


def _is_sent(signal: str, environment: Mapping[str, str]) -> bool:
    """Return True if a signal is sent over OTLP. Raises `ConfigError` if the configuration is not supported."""
    variable = f"OTEL_{signal}_EXPORTER"
    exporter = environment.get(variable, "").strip() or "otlp"
    if exporter == "none":
        return False
    if exporter != "otlp":
        raise ConfigError(f"{variable} is {exporter!r}; use otlp or none")
    variables = (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
    variable, protocol = next(
        ((name, value) for name in variables if (value := environment.get(name, "").strip())), ("", OTLP_PROTOCOL)
    )
    if protocol != OTLP_PROTOCOL:
        raise ConfigError(f"{variable} is {protocol!r}; only {OTLP_PROTOCOL} is supported, usually on port 4318")
    return True


def _make_reporter(settings: TelemetrySettings, environment: Mapping[str, str], sent: list[str]) -> "TelemetryReporter":
    try:
        from yarrow.telemetry.reporter import ExportFailureHandler, TelemetryReporter, make_providers
    except ImportError as error:
        raise ConfigError(
            f"{error.name or error} is not installed: pip install '.[otel]' in Yarrow's checkout"
        ) from None
    failures = ExportFailureHandler()
    try:
        tracing, metering = make_providers(environment, failures, traces="TRACES" in sent, metrics="METRICS" in sent)
    except (ValueError, OSError) as error:
        raise ConfigError(f"invalid value in an OTEL_ variable: {error}") from None
    return TelemetryReporter(tracing, metering, failures, content=settings.content)
