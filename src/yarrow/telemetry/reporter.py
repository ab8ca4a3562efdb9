"""Reporter of measurements, and its OTLP exporters."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, suppress

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.metrics import CallbackOptions, NoOpMeterProvider, Observation
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import NoOpTracerProvider

from yarrow._version import VERSION
from yarrow.event.events import Event
from yarrow.telemetry.spans import Metrics, SpanRecorder

_logger = logging.getLogger("yarrow.telemetry")


class ExportFailureHandler(logging.Handler):
    """Logs the first export failure.

    Its text may contain an address or a header with a key, so only its origin is logged.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.on_failure: Callable[[], None] | None = None
        """Called in the exporting thread at each export failure; must not wait."""
        self._has_warned = False

    def emit(self, record: logging.LogRecord) -> None:
        """Handle a log record of OpenTelemetry."""
        if not self._has_warned:
            self._has_warned = True
            _logger.warning(
                "%s reports a failure (line %s): check OTEL_EXPORTER_OTLP_ENDPOINT and whether a collector answers. "
                "Data it does not accept is lost; runs continue. This is logged only once",
                *(record.name, record.lineno),
            )
        if self.on_failure is not None and ".exporter." in record.name:
            self.on_failure()


MAX_SHUTDOWN_SECONDS = 2.0
"""Seconds that the shutdown of a service waits for unsent data; after that, it is dropped."""
INSTRUMENTATION_SCOPE = "yarrow"


class TelemetryReporter:
    """Telemetry of one service. It owns `tracing` and `metering`, which end with it."""

    def __init__(
        self,
        tracing: TracerProvider | None,
        metering: MeterProvider | None,
        failures: ExportFailureHandler,
        *,
        content: bool,
    ) -> None:
        self._failures = failures
        self._providers = (tracing, metering)
        self._tracer = (tracing or NoOpTracerProvider()).get_tracer(INSTRUMENTATION_SCOPE)
        self._meter = (metering or NoOpMeterProvider()).get_meter(INSTRUMENTATION_SCOPE)
        self._metrics = Metrics(self._meter)
        self._content = content

    def begin(self, sessions: Callable[[], int]) -> None:
        """Report the number of sessions in memory."""

        def observe(_options: CallbackOptions) -> Iterable[Observation]:
            return (Observation(sessions()),)

        self._meter.create_observable_up_down_counter(
            "yarrow.sessions", [observe], unit="{session}", description="Sessions in memory."
        )

    def make_observer(self, session_id: str, model: Callable[[], tuple[str, str]]) -> "SafeObserver":
        """Return the observer of a session."""
        return SafeObserver(SpanRecorder(session_id, self._tracer, self._metrics, model=model, content=self._content))

    async def close(self) -> None:
        """Send the remaining data, until `MAX_SHUTDOWN_SECONDS` have passed or sending fails.

        A thread that is still running then ends with the process.
        """
        loop, ended = asyncio.get_running_loop(), asyncio.Event()

        def signal_end() -> None:
            with suppress(RuntimeError):  # the loop is closed if this took too long
                loop.call_soon_threadsafe(ended.set)

        def end() -> None:
            for provider in self._providers:
                if provider is not None:
                    _shut_down(provider)
            signal_end()

        self._failures.on_failure = signal_end
        # Not one of the loop's threads, since the interpreter would wait for it.
        threading.Thread(target=end, name="yarrow-telemetry-end", daemon=True).start()
        try:
            await asyncio.wait_for(ended.wait(), MAX_SHUTDOWN_SECONDS)
        except TimeoutError:
            _logger.warning("data that OpenTelemetry did not accept within %g s is lost", MAX_SHUTDOWN_SECONDS)


def _shut_down(provider: TracerProvider | MeterProvider) -> None:
    try:
        provider.shutdown()
    except Exception as error:  # noqa: BLE001 - whatever a library raises at its end must not hide the end of ours
        _logger.warning("OpenTelemetry failed to shut down (%s)", type(error).__name__)


class SafeObserver:
    """Isolates a run from telemetry errors; after an error, the session is no longer measured."""

    def __init__(self, spans: SpanRecorder) -> None:
        self._spans: SpanRecorder | None = spans

    def on_event(self, event: Event) -> None:
        """Record an event of the session."""
        if self._spans is not None:
            try:
                self._spans.record_event(event)
            except Exception as error:  # noqa: BLE001 - a bug in a measurement must not end a run
                self._spans = None
                _logger.warning("telemetry of a session stopped because of a bug (%s)", type(error).__name__)

    def on_lost(self, events: int) -> None:
        """Count the events that a subscriber lost."""
        if self._spans is not None:
            self._spans.metrics.dropped.add(events)

    @contextmanager
    def tool_span(self, tool_call_id: str) -> Generator[None]:
        """Measure the duration of a tool call."""
        begun = time.time()
        try:
            yield
        finally:
            if self._spans is not None:
                self._spans.record_tool_run(tool_call_id, begun, time.time())


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
