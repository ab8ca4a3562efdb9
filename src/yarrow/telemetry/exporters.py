"""OpenTelemetry providers that export from their own threads and drop data rather than wait."""

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
from yarrow.telemetry.reporter import ExportFailureHandler


def make_providers(
    environment: Mapping[str, str], failures: ExportFailureHandler, *, traces: bool, metrics: bool
) -> tuple[TracerProvider | None, MeterProvider | None]:
    """Return the providers of traces and metrics, None if disabled. Raises ValueError for an invalid variable.

    Nothing is registered globally: a program that embeds Yarrow has providers of its own.
    """
    theirs = logging.getLogger("opentelemetry")
    theirs.propagate = False
    theirs.handlers[:] = [failures]
    resource = _make_resource(environment)
    tracing = metering = None
    if traces:
        tracing = TracerProvider(resource=resource, shutdown_on_exit=False)
        tracing.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    if metrics:
        reader = PeriodicExportingMetricReader(OTLPMetricExporter())
        metering = MeterProvider([reader], resource=resource, shutdown_on_exit=False)
    return tracing, metering


def _make_resource(environment: Mapping[str, str]) -> Resource:
    named = environment.get("OTEL_SERVICE_NAME") or "service.name=" in environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    return Resource.create({"service.version": VERSION, **({} if named else {"service.name": "yarrow"})})
