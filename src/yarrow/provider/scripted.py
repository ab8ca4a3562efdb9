"""A provider that plays a script and checks every request it is sent against the public rules."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import msgspec

from yarrow.errors import Code, ConfigError, ProviderError
from yarrow.message import Role, StopReason, ToolCall, Usage
from yarrow.provider.adapter_config import AdapterConfig
from yarrow.provider.base import (
    CallPiece,
    CompletionRequest,
    ModelEntry,
    Provider,
    ProviderEvent,
    ProviderInfo,
    StopPiece,
    TextPiece,
    ThinkingPiece,
    UsagePiece,
)
from yarrow.provider.chat_completions.request import encode_chat_request
from yarrow.provider.chat_completions.tool_calls import new_call_id
from yarrow.provider.history import Target
from yarrow.provider.json_object import is_json_object
from yarrow.provider.rules import violations
from yarrow.provider.script import (
    CallStep,
    DelayStep,
    ExpectStep,
    FailStep,
    SayStep,
    Script,
    Step,
    StopStep,
    ThinkStep,
    WaitStep,
    load_script,
)

MAX_KEPT_REQUESTS = 1000
"""Requests that can be looked at afterwards; then the oldest is forgotten."""
SCRIPT_ENDED = "(script ended)"
"""What is said when all turns were played."""


class ScriptedProvider:
    """Plays one turn of its script per request.

    The first request starts at the turn whose number is the count of assistant messages it holds, so that a session
    resumed in another process goes on where it was; each later request gets the next turn, whatever it holds.
    """

    def __init__(
        self, name: str, model: str, *, script: Script, gates: Mapping[str, asyncio.Event] | None = None
    ) -> None:
        self.requests: list[CompletionRequest] = []
        """The last ones, also those that were refused."""
        self.gates = dict(gates or {})
        """What the steps named `wait` wait for."""
        self._name = name
        self._model = model or "scripted"
        self._script = script
        self._next: int | None = None

    async def info(self) -> ProviderInfo:
        """Return what the script claims."""
        info = self._script.info
        return ProviderInfo(
            name=self._name,
            model=self._model,
            max_tokens=info.max_tokens,
            context_window=info.context_window,
            has_tool_call=info.has_tool_call,
            has_images=info.has_images,
        )

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[ProviderEvent]:
        """Play a turn; raises INVALID_REQUEST when the request breaks a rule, and takes no turn then."""
        self.requests.append(request)
        if len(self.requests) > MAX_KEPT_REQUESTS:
            del self.requests[0]
        self._check(request)
        called = False
        for step in self._turn(request):
            called |= isinstance(step, CallStep)
            event = await self._play(step, request)
            if event is not None:
                yield event
            if isinstance(event, StopPiece):
                return
        yield StopPiece(StopReason.TOOL_USE if called else StopReason.END_TURN)

    async def list_models(self) -> list[ModelEntry]:
        """Return the one model there is."""
        return [ModelEntry(self._model, self._script.info.context_window)]

    async def close(self) -> None:
        """Nothing is held."""

    def _turn(self, request: CompletionRequest) -> tuple[Step, ...]:
        if self._next is None:
            self._next = sum(message.role is Role.ASSISTANT for message in request.messages)
        turn, self._next = self._next, self._next + 1
        return self._script.turns[turn] if turn < len(self._script.turns) else (SayStep(SCRIPT_ENDED),)

    async def _play(self, step: Step, request: CompletionRequest) -> ProviderEvent | None:
        match step:
            case SayStep(text):
                return TextPiece(text) if text else None
            case ThinkStep(text):
                return ThinkingPiece(text) if text else None
            case CallStep():
                return CallPiece(_make_call(step))
            case Usage():
                return UsagePiece(step)
            case FailStep():
                raise _make_error(step)
            case StopStep(reason):
                return StopPiece(reason)
            case DelayStep(seconds):
                await asyncio.sleep(seconds)
            case WaitStep(gate):
                await self.gates.setdefault(gate, asyncio.Event()).wait()
            case ExpectStep(contains):
                self._expect(contains, request)
        return None

    def _check(self, request: CompletionRequest) -> None:
        has_images = self._script.info.has_images
        target = Target(self._name, request.model, takes_image=lambda _: has_images)
        problems = violations(encode_chat_request(request, target, fields=_make_sampling_fields(request), extra={}))
        if problems:
            raise self._refuse("; ".join(problems))

    def _expect(self, contains: str, request: CompletionRequest) -> None:
        last = request.messages[-1].text if request.messages else ""
        if contains not in last:
            raise self._refuse(f"the last message does not hold {contains!r}: {last[:500]!r}")

    def _refuse(self, why: str) -> ProviderError:
        return ProviderError(Code.INVALID_REQUEST, f"{self._name} refuses the request: {why}")


async def build(config: AdapterConfig) -> Provider:
    """Return the provider of the script that is configured; raises ConfigError when there is none."""
    if not config.settings.script:
        raise ConfigError(f"providers.{config.name}.script is not set; it is the path of the script to play")
    script = load_script(Path(config.settings.script).expanduser())
    return ScriptedProvider(config.name, config.model, script=script)


def _make_sampling_fields(request: CompletionRequest) -> dict[str, object]:
    fields: dict[str, object] = {}
    if request.temperature is not None:
        fields["temperature"] = request.temperature
    if request.max_tokens:
        fields["max_tokens"] = request.max_tokens
    return fields


def _make_call(step: CallStep) -> ToolCall:
    call_id = step.id or new_call_id()
    if isinstance(step.arguments, dict):
        return ToolCall(call_id, step.name, msgspec.json.encode(step.arguments).decode())
    if is_json_object(step.arguments):
        return ToolCall(call_id, step.name, step.arguments)
    return ToolCall(call_id, step.name, invalid_arguments=step.arguments)


def _make_error(step: FailStep) -> ProviderError:
    error = ProviderError(step.code, step.message, retryable=step.retryable)
    error.retry_after = step.retry_after
    error.context_window = step.context_window
    return error
