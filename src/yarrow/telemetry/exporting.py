"""Makes OpenTelemetry's providers, which send from threads of their own and lose rather than wait."""

import logging
from collections.abc import Mapping

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from yarrow._version import VERSION

_logger = logging.getLogger("yarrow.telemetry")


def providers(
    environment: Mapping[str, str], *, traces: bool, metrics: bool
) -> tuple[TracerProvider | None, MeterProvider | None]:
    """Return what spans and metrics go to, each None unless it is sent. Raises ValueError for a bad variable.

    Nothing is made known to the whole process: a program that embeds Yarrow has providers of its own.
    """
    _tell_once()
    resource = _resource(environment)
    tracing = metering = None
    if traces:
        tracing = TracerProvider(resource=resource, shutdown_on_exit=False)
        tracing.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    if metrics:
        reader = PeriodicExportingMetricReader(OTLPMetricExporter())
        metering = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
    return tracing, metering


def _resource(environment: Mapping[str, str]) -> Resource:
    named = environment.get("OTEL_SERVICE_NAME") or "service.name=" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create({"service.version": VERSION, **({} if named else {"service.name": "yarrow"})})


class _Once(logging.Handler):
    """Passes on that something went wrong, once: a collector that is gone fails every few seconds.

    What exactly it was may hold an address or a header with a key, so that only its kind is told.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._told = False

    def emit(self, record: logging.LogRecord) -> None:
        if not self._told:
            self._told = True
            _logger.warning(
                "%s (line %s) reports a failure: look at OTEL_EXPORTER_OTLP_ENDPOINT and whether a collector answers "
                "there. What it does not take is lost, runs go on, and this is not told again",
                *(record.name, record.lineno),
            )


def _tell_once() -> None:
    theirs = logging.getLogger("opentelemetry")
    theirs.propagate = False
    theirs.handlers[:] = [_Once()]
