"""Telemetry data of OpenTelemetry, kept in memory."""

from typing import Any

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from yarrow.telemetry.reporter import ExportFailureHandler, TelemetryReporter


class Measured:
    """Reports of one service, and where they went."""

    def __init__(self, *, content: bool = False) -> None:
        self.exporter = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        tracing = TracerProvider(shutdown_on_exit=False)
        tracing.add_span_processor(SimpleSpanProcessor(self.exporter))
        metering = MeterProvider([self._reader], shutdown_on_exit=False)
        self.reports = TelemetryReporter(tracing, metering, ExportFailureHandler(), content=content)

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self.exporter.get_finished_spans()

    def named(self, name: str) -> ReadableSpan:
        [span] = [span for span in self.spans if span.name == name]
        return span

    def tree(self) -> dict[str, list[str]]:
        """The names of the spans by that of the one above, in the order in which they began."""
        names = {span.get_span_context().span_id: span.name for span in self.spans}  # pyright: ignore[reportOptionalMemberAccess]
        found: dict[str, list[str]] = {}
        for span in self.spans:
            found.setdefault(names[span.parent.span_id] if span.parent else "", []).append(span.name)
        return found

    def points(self, name: str) -> list[Any]:
        """The points of a metric."""
        data = self._reader.get_metrics_data()
        assert data is not None
        metrics = [each for one in data.resource_metrics for scope in one.scope_metrics for each in scope.metrics]
        return [point for metric in metrics if metric.name == name for point in metric.data.data_points]

    def everything(self) -> str:
        """All telemetry data, as text."""
        data = self._reader.get_metrics_data()
        return "\n".join(span.to_json() for span in self.spans) + (data.to_json() if data else "")
