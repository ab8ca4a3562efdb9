"""A chain of models that fail as scripted, for runs with fallbacks."""

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from doubles.rig import Rig
from yarrow.agent.run_context import Fallback, ModelSetup, RunResources
from yarrow.errors import Code, ProviderError
from yarrow.message import StopReason, ToolCall, Usage
from yarrow.provider.base import (
    CallPiece,
    CompletionRequest,
    ProviderEvent,
    ProviderInfo,
    StopPiece,
    TextPiece,
    UsagePiece,
)


class Played(Struct, frozen=True):
    """The answer to one request: text and a tool call if it has them, then a failure or the end."""

    text: str = ""
    calls: bool = False
    code: Code | None = None
    retryable: bool = True
    retry_after: float | None = None
    context_window: int = 0
    usage: Usage | None = None
    stop: StopReason = StopReason.END_TURN


OK = Played("ok")
BUSY = Played(code=Code.OVERLOADED)


class PlayedModel:
    """A provider with one model; every request gets the next answer, and `OK` after the last."""

    def __init__(self, name: str, answers: Sequence[Played] = (), *, window: int = 0, **info: bool) -> None:
        self.name = name
        self.answers = list(answers)
        self.requests: list[CompletionRequest] = []
        self.built = 0
        """How often it was set up as a fallback."""
        self.refusal: ProviderError | None = None
        """Raised when it is set up."""
        self._info = ProviderInfo(name, f"m-{name}", context_window=window, **info)

    @property
    def path(self) -> str:
        return f"{self.name}/m-{self.name}"

    async def info(self) -> ProviderInfo:
        return self._info

    async def stream(self, request: CompletionRequest) -> AsyncGenerator[ProviderEvent]:
        self.requests.append(request)
        answer = self.answers.pop(0) if self.answers else OK
        if answer.text:
            yield TextPiece(answer.text)
        if answer.usage:
            yield UsagePiece(answer.usage)
        if answer.code is not None:
            error = ProviderError(answer.code, f"{self.name} failed", retryable=answer.retryable)
            error.retry_after, error.context_window = answer.retry_after, answer.context_window
            raise error
        if answer.calls:
            # Different calls: the same one five times ends a run.
            call_id = f"{self.name}-{len(self.requests)}"
            yield CallPiece(ToolCall(call_id, "echo", f'{{"text": "{call_id}"}}'))
        yield StopPiece(StopReason.TOOL_USE if answer.calls else answer.stop)

    async def close(self) -> None: ...

    async def set_up(self) -> ModelSetup:
        self.built += 1
        if self.refusal is not None:
            raise self.refusal
        return ModelSetup(self, self._info)

    def fallback(self) -> Fallback:
        return Fallback(self.path, self.set_up)


class ChainRig(Rig):
    """A rig whose first model is the session's, and the others are its fallbacks."""

    def __init__(self, *models: PlayedModel, **settings: Any) -> None:
        super().__init__([], **settings)
        self.models = models
        self.settings = replace(self.settings, provider=models[0].name, model=f"m-{models[0].name}")
        self.fallbacks = tuple(model.fallback() for model in models[1:])

    @property
    def resources(self) -> RunResources:
        first = self.models[0]
        return replace(super().resources, provider=first, info=first._info)  # pyright: ignore[reportPrivateUsage] (as the scripted provider reports it)
