"""Interface between the agent and a model backend: one request in, one stream of uniform events out."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Literal, Protocol, runtime_checkable

from msgspec import Struct

from yarrow.config.settings import ProviderSettings
from yarrow.message import Message, StopReason, ThinkingLevel, ToolCall, ToolSpec, Usage


class StreamOptions(Struct, frozen=True, rename="camel"):
    """Options for streaming the answer."""

    chunk_size: int = 0
    """Characters at which joined text deltas are emitted; 0 emits whatever one read of the socket returned."""
    idle_timeout: float | None = None
    """Seconds between two bytes, overriding the provider's limit; 0 means no limit, None keeps the provider's."""


RequestPurpose = Literal["turn", "compaction", "turnPrefix", "merge", "squash", "summary"]
"""Why a model is called: for a turn of a run, or for a text about messages that are left out or joined."""


class CompletionRequest(Struct, frozen=True, rename="camel"):
    """One model call, independent of any backend. Its JSON is what `BeforeProviderRequest` receives and may change."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    system: str = ""
    thinking: ThinkingLevel = ThinkingLevel.OFF
    max_tokens: int = 0
    """Maximum tokens of the answer; 0 uses the provider's configuration."""
    temperature: float | None = None
    tool_choice: Literal["auto", "none", "required"] = "auto"
    """`auto` leaves the choice to the model and to the provider's configured body."""
    stream_opts: StreamOptions = StreamOptions()
    unbound: int = 0
    """Number of leading messages whose preceding history has changed since they were written.

    A backend whose signatures cover all preceding messages rejects its signatures in these.
    """
    session_id: str = ""
    """Id of the session, by which a backend may find its cache of the conversation; empty for a request of its own."""
    purpose: RequestPurpose = "turn"
    """Never sent to a backend. Changes are ignored."""


class ProviderInfo(Struct, frozen=True):
    """Capabilities of a provider's model; numbers are in tokens, 0 is unknown."""

    name: str
    model: str
    max_tokens: int = 0
    context_window: int = 0
    has_tool_call: bool = True
    has_images: bool = False
    reads_only: bool = False
    """The model is so weak that it is offered writing tools only if they are requested by name."""


class TextPiece(Struct, frozen=True):
    """A non-empty piece of the answer."""

    text: str


class ThinkingPiece(Struct, frozen=True):
    """A non-empty piece of thinking. `opaque` is JSON text to send back with it, such as the field it arrived in."""

    text: str
    opaque: str = ""


class CallPiece(Struct, frozen=True):
    """A complete tool call, emitted once."""

    call: ToolCall


class OpaquePiece(Struct, frozen=True):
    """A block that only the backend can read, as JSON text."""

    data: str


class UsagePiece(Struct, frozen=True):
    """Tokens of the call; at most once, before the stop."""

    usage: Usage


class StopPiece(Struct, frozen=True):
    """The end of a complete answer; the last event of a stream that did not fail."""

    reason: StopReason


class NoticePiece(Struct, frozen=True):
    """A notice for the user while the answer continues: a code in UPPER_SNAKE and a sentence."""

    code: str
    text: str


ProviderEvent = TextPiece | ThinkingPiece | CallPiece | OpaquePiece | UsagePiece | StopPiece | NoticePiece


class Provider(Protocol):
    """A model backend."""

    async def info(self) -> ProviderInfo:
        """Return the model's capabilities; called once, when the provider is built. Raises `ProviderError`."""
        ...

    def stream(self, request: CompletionRequest) -> AsyncGenerator[ProviderEvent]:
        """Stream one answer.

        All failures are raised as `ProviderError`: those before the first event by the first step of the iterator,
        later ones by later steps. An iterator that ends has yielded a `StopPiece`.
        """
        ...

    async def close(self) -> None:
        """Release connections and processes; idempotent."""
        ...


class ModelEntry(Struct, frozen=True):
    """An available model; `context_window` is in tokens, 0 is unknown."""

    name: str
    context_window: int = 0


@runtime_checkable
class ListsModels(Protocol):
    """A provider that can list its models."""

    async def list_models(self) -> list[ModelEntry]:
        """Return the models in the backend's order. Raises `ProviderError`."""
        ...


class AdapterConfig(Struct, frozen=True):
    """Configuration that an adapter is built from; with an empty model the provider chooses."""

    name: str
    model: str
    settings: ProviderSettings
    environment: Mapping[str, str]


ProviderBuilder = Callable[[AdapterConfig], Awaitable[Provider]]
"""Builds a provider without sending it a request; raises ProviderError and ConfigError."""
