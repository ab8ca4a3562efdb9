"""Scripted provider for tests; it plays a script and rejects requests that no provider would accept."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, Struct

from yarrow.errors import Code, ConfigError, ProviderError
from yarrow.message import Role, StopReason, ToolCall, Usage
from yarrow.provider.base import (
    AdapterConfig,
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
from yarrow.provider.chat_request_rules import violations
from yarrow.provider.history_repair import Target
from yarrow.provider.stream_framing import is_json_object
from yarrow.provider.tool_calls import new_call_id


class SayStep(Struct, frozen=True):
    """A piece of text."""

    text: str


class ThinkStep(Struct, frozen=True):
    """A piece of thinking."""

    thinking: str


class CallStep(Struct, frozen=True, forbid_unknown_fields=True):
    """A tool call."""

    name: str
    arguments: dict[str, Any] | str = {}
    id: str = ""


class FailStep(Struct, frozen=True, forbid_unknown_fields=True):
    """The failing end of a turn."""

    code: Code
    message: str
    retryable: bool = False
    retry_after: float | None = None
    context_window: int = 0


class DelayStep(Struct, frozen=True):
    """A silence, in seconds."""

    delay: float


class WaitStep(Struct, frozen=True):
    """A silence until the gate of this name opens."""

    wait: str


class ExpectStep(Struct, frozen=True, forbid_unknown_fields=True):
    """Text that the last message of the request must contain."""

    contains: str


class StopStep(Struct, frozen=True):
    """The reason the model stops."""

    stop: StopReason


Step = SayStep | ThinkStep | CallStep | Usage | FailStep | DelayStep | WaitStep | ExpectStep | StopStep


class ScriptInfo(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Capabilities that the scripted model claims."""

    context_window: int = 0
    max_tokens: int = 0
    has_tool_call: bool = True
    has_images: bool = False


class Script(Struct, frozen=True):
    """Turns of the script, and the model's capabilities."""

    turns: tuple[tuple[Step, ...], ...]
    info: ScriptInfo = ScriptInfo()


class _ScriptFile(Struct, frozen=True, forbid_unknown_fields=True):
    turns: list[list[dict[str, Raw]]]
    info: ScriptInfo = ScriptInfo()


_VALUE_STEPS = {"text": SayStep, "thinking": ThinkStep, "delay": DelayStep, "wait": WaitStep, "stop": StopStep}
"""Steps with a single value."""
_OBJECT_STEPS = {"call": CallStep, "usage": Usage, "error": FailStep, "expect": ExpectStep}
"""Steps with an object as their value."""
_STEP_KEYS = ", ".join((*_VALUE_STEPS, *_OBJECT_STEPS))

T = TypeVar("T")


def load_script(path: Path) -> Script:
    """Read a script file; a ConfigError names the file and the position in it."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read the script {path}: {error.strerror}") from None
    return parse_script(data, str(path))


def make_script(turns: Sequence[Sequence[Mapping[str, object]]], info: ScriptInfo | None = None) -> Script:
    """Return the script for turns written as Python values."""
    steps = parse_script(msgspec.json.encode(turns), "in memory").turns
    return Script(steps, info or ScriptInfo())


def parse_script(data: bytes, source: str) -> Script:
    """Decode a script; `source` is its name in errors."""
    if data.lstrip()[:1] == b"[":
        data = b'{"turns":' + data + b"}"
    file = _decode(data, _ScriptFile, f"the script {source}")
    turns = tuple(
        tuple(
            _parse_step(step, f"the script {source}, turns[{turn}][{position}]") for position, step in enumerate(steps)
        )
        for turn, steps in enumerate(file.turns)
    )
    return Script(turns, file.info)


def _parse_step(step: dict[str, Raw], place: str) -> Step:
    if len(step) != 1:
        raise ConfigError(f"{place}: a step must have exactly one key, one of {_STEP_KEYS}, not {len(step)}")
    [(key, raw)] = step.items()
    if key in _VALUE_STEPS:
        return _decode(msgspec.json.encode(step), _VALUE_STEPS[key], place)
    if key in _OBJECT_STEPS:
        return _decode(raw, _OBJECT_STEPS[key], f"{place}.{key}")
    raise ConfigError(f"{place}: unknown step {key!r}; use one of {_STEP_KEYS}")


def _decode(data: bytes | Raw, kind: type[T], place: str) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{place}: {error}") from None


MAX_KEPT_REQUESTS = 1000
"""Maximum requests kept for inspection; beyond it the oldest is dropped."""
SCRIPT_ENDED = "(script ended)"
"""Text of the answer after the last turn."""


class ScriptedProvider:
    """Provider that plays one turn of its script per request.

    The number of the first turn is the number of assistant messages in the first request, so that a session resumed in
    another process continues where it was. Each later request gets the next turn, whatever it contains.
    """

    def __init__(
        self, name: str, model: str, *, script: Script, gates: Mapping[str, asyncio.Event] | None = None
    ) -> None:
        self.requests: list[CompletionRequest] = []
        """The latest requests, including rejected ones."""
        self.gates = dict(gates or {})
        """Events that the `wait` steps wait for, by name."""
        self._name = name
        self._model = model or "scripted"
        self._script = script
        self._next: int | None = None

    async def info(self) -> ProviderInfo:
        """Return the capabilities that the script claims."""
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
        """Play a turn; raises INVALID_REQUEST, without using up a turn, if the request breaks a rule."""
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
        """Return the only model."""
        return [ModelEntry(self._model, self._script.info.context_window)]

    async def close(self) -> None:
        """Do nothing; there is nothing to release."""

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
            raise self._refuse(f"the last message does not contain {contains!r}: {last[:500]!r}")

    def _refuse(self, why: str) -> ProviderError:
        return ProviderError(Code.INVALID_REQUEST, f"{self._name} rejected the request: {why}")


async def build(config: AdapterConfig) -> Provider:
    """Return the provider for the configured script; raises ConfigError if there is none."""
    if not config.settings.script:
        raise ConfigError(f"providers.{config.name}.script is not set; set it to the path of a script")
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
