"""The seam between the agent and a model backend: one request in, one stream of uniform events out."""

from collections.abc import AsyncGenerator
from typing import Literal, Protocol, runtime_checkable

from msgspec import Struct

from yarrow.message import Message, StopReason, ThinkingLevel, ToolCall, ToolSpec, Usage


class StreamOptions(Struct, frozen=True, rename="camel"):
    """How the answer is streamed."""

    chunk_size: int = 0
    """Join text deltas until they hold this many characters; 0 passes on what one read of the socket brought."""
    idle_timeout: float | None = None
    """Seconds between two bytes, in place of the provider's; 0 is no limit, None leaves it."""


class CompletionRequest(Struct, frozen=True, rename="camel"):
    """One model call, in no backend's terms. As JSON it is what `BeforeProviderRequest` receives and may change."""

    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSpec, ...] = ()
    system: str = ""
    thinking: ThinkingLevel = ThinkingLevel.OFF
    max_tokens: int = 0
    """The most tokens of the answer; 0 leaves it to the provider's configuration."""
    temperature: float | None = None
    tool_choice: Literal["auto", "none", "required"] = "auto"
    """`auto` leaves it to the model and to the provider's configured body."""
    stream_opts: StreamOptions = StreamOptions()
    unbound: int = 0
    """How many of the first messages stand behind another beginning than the one they were said behind.

    A backend that binds what it signs to all before it does not take it back in these.
    """


class ProviderInfo(Struct, frozen=True):
    """What a provider's model can do; numbers are tokens, 0 is unknown."""

    name: str
    model: str
    max_tokens: int = 0
    context_window: int = 0
    has_tool_call: bool = True
    has_images: bool = False
    reads_only: bool = False
    """So weak a model that tools that write are offered to it only when somebody names them."""


class TextPiece(Struct, frozen=True):
    """A piece of the answer; never empty."""

    text: str


class ThinkingPiece(Struct, frozen=True):
    """A piece of thinking; never empty. `opaque` is JSON text that goes back with it, such as the field it came in."""

    text: str
    opaque: str = ""


class CallPiece(Struct, frozen=True):
    """A tool call, once and whole."""

    call: ToolCall


class OpaquePiece(Struct, frozen=True):
    """A block that only the backend can read, as JSON text."""

    data: str


class UsagePiece(Struct, frozen=True):
    """Tokens of the call; at most once, before the stop."""

    usage: Usage


class StopPiece(Struct, frozen=True):
    """The answer is whole; the last event of a stream that did not fail."""

    reason: StopReason


class NoticePiece(Struct, frozen=True):
    """What a person should see although the answer goes on: a code in UPPER_SNAKE and a sentence."""

    code: str
    text: str


ProviderEvent = TextPiece | ThinkingPiece | CallPiece | OpaquePiece | UsagePiece | StopPiece | NoticePiece


class Provider(Protocol):
    """A model backend."""

    async def info(self) -> ProviderInfo:
        """Return what the model can do; called once, when the provider is built. Raises `ProviderError`."""
        ...

    def stream(self, request: CompletionRequest) -> AsyncGenerator[ProviderEvent]:
        """Stream one answer.

        What fails before the first event is raised by the first step of the iterator, later failures by later
        steps, all as `ProviderError`. An iterator that ends has yielded a `StopPiece`.
        """
        ...

    async def close(self) -> None:
        """Give back connections and processes; idempotent."""
        ...


class ModelEntry(Struct, frozen=True):
    """A model on offer; `context_window` is in tokens, 0 is unknown."""

    name: str
    context_window: int = 0


@runtime_checkable
class ListsModels(Protocol):
    """A provider that can say which models it has."""

    async def list_models(self) -> list[ModelEntry]:
        """Return the models in the backend's order. Raises `ProviderError`."""
        ...
