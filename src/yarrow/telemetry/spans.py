"""Spans and metrics of one session, derived from its events."""

import re
from collections.abc import Callable
from typing import TypeVar, assert_never

import msgspec
from opentelemetry.metrics import Meter
from opentelemetry.trace import INVALID_SPAN, Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context

from yarrow.config.provider_adapter_table import VENDORS, get_provider_id
from yarrow.errors import Failure
from yarrow.event import events as ev
from yarrow.message import Usage

DURATION_BUCKETS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKEN_BUCKETS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
"""Bucket bounds, as recommended by the GenAI conventions."""


class Metrics:
    """The metric instruments of a service."""

    def __init__(self, meter: Meter) -> None:
        self.duration = meter.create_histogram(
            "gen_ai.client.operation.duration",
            unit="s",
            description="Duration of one model call.",
            explicit_bucket_boundaries_advisory=DURATION_BUCKETS,
        )
        self.tokens = meter.create_histogram(
            "gen_ai.client.token.usage",
            unit="{token}",
            description="Tokens of one model call, by gen_ai.token.type.",
            explicit_bucket_boundaries_advisory=TOKEN_BUCKETS,
        )
        self.runs = meter.create_counter("yarrow.runs", unit="{run}", description="Finished runs, by outcome.")
        self.dropped = meter.create_counter(
            "yarrow.events.dropped", unit="{event}", description="Events reported lost to slow subscribers."
        )


Attributes = dict[str, str | int | float]

MAX_REMEMBERED_CALLS = 256
"""Maximum tool calls tracked per session at one time; the oldest is then not measured."""
PLAIN_NAME_PATTERN = r"[\w.:-]{1,128}"
"""Valid form of a tool name or call id."""
PROVIDER_NAMES = {get_provider_id(kind): vendor.telemetry_name for kind, vendor in VENDORS.items()}
"""Names of vendors in the conventions, by provider id; empty if it is the id."""
V = TypeVar("V")


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1_000_000_000)


class SpanRecorder:
    """Recorder of one session. Works in memory; finished spans go to a bounded queue that drops when full."""

    def __init__(
        self,
        session_id: str,
        tracer: Tracer,
        metrics: Metrics,
        *,
        model: Callable[[], tuple[str, str]],
        content: bool,
    ) -> None:
        self.metrics = metrics
        self._session_id = session_id
        self._tracer = tracer
        self._model = model
        self._fallback: tuple[str, str] | None = None
        """Provider and model that replace the session's in this run."""
        self._content = content
        self._run = self._turn = self._chat = self._compaction = INVALID_SPAN
        self._call_started_at: float | None = None
        """Start of the current model call, in seconds since the epoch."""
        self._answer = AnswerText()
        self._tool_runs: dict[str, tuple[float, float]] = {}
        self._arguments: dict[str, str] = {}

    def record_event(self, event: ev.Event) -> None:
        """Record an event."""
        body, at = event.body, event.time
        match body:
            case ev.TextDelta() | ev.ToolCallEvent():
                if self._content:
                    self._record_content(body)
            case ev.AgentStart() | ev.AgentEnd():
                self._record_run(body, event.run_id, at)
            case ev.TurnStart() | ev.TurnEnd():
                self._record_turn(body, at)
            case ev.MessageStart():
                self._begin_call(at)
            case ev.MessageEnd():
                self._end_call(body, at)
            case ev.ToolOutput():
                self._record_tool(body)
            case ev.CompactionStart() | ev.CompactionEnd():
                self._record_compaction(body, at)
            case ev.UsageReport(usage):
                # The end of an answer reports its final usage; for a summary, this event is the only report.
                if self._call_started_at is None:
                    self._record_tokens(usage, self._make_attributes("chat"))
            case ev.RetryScheduled() | ev.ModelChanged():
                self._record_recovery(body, at)
            case (
                ev.ThinkingDelta()
                | ev.ToolDelta()
                | ev.StateChange()
                | ev.QueueUpdate()
                | ev.Notice()
                | ev.PermissionRequest()
                | ev.PermissionSettled()
                | ev.Gap()
                | ev.Heartbeat()
            ):
                pass
            case _:
                assert_never(body)

    def record_tool_run(self, tool_call_id: str, begun: float, ended: float) -> None:
        """Record when a tool ran; its output is reported later, in call order."""
        _remember(self._tool_runs, tool_call_id, (begun, ended))

    def _record_content(self, body: ev.TextDelta | ev.ToolCallEvent) -> None:
        if isinstance(body, ev.TextDelta):
            self._answer.add(body.text)
        else:
            _remember(self._arguments, body.id, body.arguments[:MAX_CONTENT_CHARACTERS])

    def _record_run(self, body: ev.AgentStart | ev.AgentEnd, run_id: str, at: float) -> None:
        if isinstance(body, ev.AgentStart):
            self._fallback = None
            about = self._make_attributes("invoke_agent") | {"gen_ai.agent.name": "yarrow", "yarrow.run.id": run_id}
            self._run = self._start("invoke_agent yarrow", INVALID_SPAN, at, about=about)
            if self._content:
                self._run.set_attribute("gen_ai.input.messages", format_message("user", body.text))
            return
        reason: Attributes = {"yarrow.run.end_reason": body.reason}
        failed: Attributes = {"error.type": body.error.code} if body.error else {}
        self.metrics.runs.add(1, reason | failed)
        self._run.set_attributes(reason | _usage_attributes(body.usage))
        self._run = self._end(self._run, at, body.error)
        self._tool_runs.clear()
        self._arguments.clear()

    def _record_turn(self, body: ev.TurnStart | ev.TurnEnd, at: float) -> None:
        if isinstance(body, ev.TurnStart):
            self._turn = self._start("turn", self._run, at, about={"yarrow.turn": body.turn})
        else:
            self._turn = self._end(self._turn, at)

    def _begin_call(self, at: float) -> None:
        self._call_started_at = at
        self._answer = AnswerText()
        about = self._make_attributes("chat")
        self._chat = self._start(
            f"chat {about['gen_ai.request.model']}", self._turn, at, about=about, kind=SpanKind.CLIENT
        )

    def _end_call(self, body: ev.MessageEnd, at: float) -> None:
        about = self._make_attributes("chat")
        reason = body.stop_reason or ("error" if body.error else "aborted")
        self._chat.set_attribute("gen_ai.response.finish_reasons", (reason,))
        if body.usage is not None:
            self._record_tokens(body.usage, about)
            self._chat.set_attributes(_usage_attributes(body.usage))
        if self._content:
            self._chat.set_attribute("gen_ai.output.messages", self._answer.format(reason))
        failed: Attributes = {"error.type": body.error.code} if body.error else {}
        if self._call_started_at is not None:
            self.metrics.duration.record(max(0.0, at - self._call_started_at), _metric_attributes(about) | failed)
        self._call_started_at = None
        self._chat = self._end(self._chat, at, body.error)

    def _record_tool(self, body: ev.ToolOutput) -> None:
        """Create the span of a tool that ran; a call of an interrupted message was never run and has none."""
        arguments = self._arguments.pop(body.tool_call_id, "")
        times = self._tool_runs.pop(body.tool_call_id, None)
        if times is None:
            return
        name = _check_name(body.name)
        about: Attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.call.id": _check_name(body.tool_call_id),
            "gen_ai.tool.type": "function",
            "gen_ai.conversation.id": self._session_id,
        }
        span = self._start(f"execute_tool {name}", self._turn, times[0], about=about)
        if self._content:
            span.set_attribute("gen_ai.tool.call.arguments", arguments)
            span.set_attribute("gen_ai.tool.call.result", body.text[:MAX_CONTENT_CHARACTERS])
        if body.is_error:
            span.set_attribute("error.type", "tool_failed")
            span.set_status(Status(StatusCode.ERROR))
        self._end(span, times[1])

    def _record_compaction(self, body: ev.CompactionStart | ev.CompactionEnd, at: float) -> None:
        if isinstance(body, ev.CompactionStart):
            before: Attributes = {
                "yarrow.compaction.reason": body.reason,
                "yarrow.compaction.tokens_before": body.tokens_before,
                "gen_ai.conversation.id": self._session_id,
            }
            self._compaction = self._start("compaction", self._run, at, about=before)
            return
        if body.error is None:
            self._compaction.set_attribute("yarrow.compaction.tokens_after", body.tokens_after)
        self._compaction = self._end(self._compaction, at, body.error)

    def _record_recovery(self, body: ev.RetryScheduled | ev.ModelChanged, at: float) -> None:
        about: Attributes = {"error.type": body.code}
        if isinstance(body, ev.ModelChanged):
            self._fallback = (body.provider, body.model)
            chat = self._make_attributes("chat")
            about |= {key: chat[key] for key in ("gen_ai.provider.name", "gen_ai.request.model")}
            self._run.add_event("fallback", about, _nanoseconds(at))
            return
        about |= {"yarrow.retry.attempt": body.attempt, "yarrow.retry.delay": body.delay}
        span = self._compaction if self._compaction is not INVALID_SPAN else self._run
        span.add_event("retry", about, _nanoseconds(at))

    def _record_tokens(self, usage: Usage, about: Attributes) -> None:
        kinds = {"input": usage.input + usage.cache_read + usage.cache_write, "output": usage.output}
        for kind, tokens in kinds.items():
            self.metrics.tokens.record(tokens, _metric_attributes(about) | {"gen_ai.token.type": kind})

    def _make_attributes(self, operation: str) -> Attributes:
        provider, model = self._fallback or self._model()
        return {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": PROVIDER_NAMES.get(provider) or provider,
            "gen_ai.request.model": model,
            "gen_ai.conversation.id": self._session_id,
        }

    def _start(
        self, name: str, parent: Span, at: float, *, about: Attributes, kind: SpanKind = SpanKind.INTERNAL
    ) -> Span:
        # A separate context even without a parent: spans of an embedding program must not become the parent.
        context = set_span_in_context(parent)
        return self._tracer.start_span(name, context, kind, about, start_time=_nanoseconds(at))

    def _end(self, span: Span, at: float, failure: Failure | None = None) -> Span:
        """End a span and return its placeholder; a failure is recorded by its code, without its text."""
        if failure is not None:
            span.set_attribute("error.type", failure.code)
            span.set_status(Status(StatusCode.ERROR))
        span.end(_nanoseconds(at))
        return INVALID_SPAN


def _usage_attributes(usage: Usage) -> Attributes:
    """Return the usage as attributes; the input includes cached tokens, as in the conventions."""
    return {
        "gen_ai.usage.input_tokens": usage.input + usage.cache_read + usage.cache_write,
        "gen_ai.usage.output_tokens": usage.output,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write,
    }


def _metric_attributes(about: Attributes) -> Attributes:
    """Return the low-cardinality attributes: a session id in a metric would create one series per session."""
    return {key: value for key, value in about.items() if key != "gen_ai.conversation.id"}


def _check_name(name: str) -> str:
    """Return a name, or a placeholder if it is invalid: a model may write any text as a name."""
    return name if re.fullmatch(PLAIN_NAME_PATTERN, name) else "_OTHER"


def _remember(calls: dict[str, V], call_id: str, value: V) -> None:
    if len(calls) >= MAX_REMEMBERED_CALLS:
        calls.pop(next(iter(calls)))
    calls[call_id] = value


MAX_CONTENT_CHARACTERS = 16_384
"""Maximum characters of a recorded text; the rest is truncated."""


def format_message(role: str, text: str, **more: str) -> str:
    """Return a list with one message as JSON text."""
    message = {"role": role, "parts": [{"type": "text", "content": text[:MAX_CONTENT_CHARACTERS]}], **more}
    return msgspec.json.encode([message]).decode()


class AnswerText:
    """Collects the text of one answer."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._room = MAX_CONTENT_CHARACTERS

    def add(self, text: str) -> None:
        """Add text; everything beyond `MAX_CONTENT_CHARACTERS` is dropped."""
        if self._room > 0:
            self._pieces.append(text[: self._room])
            self._room -= len(text)

    def format(self, reason: str) -> str:
        """Return the answer as a message."""
        return format_message("assistant", "".join(self._pieces), finish_reason=reason)
