"""What the loop is given: what it works with, and the callables by which it reaches the world."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from yarrow.agent.context import ModelContext
from yarrow.agent.hooks import HookRegistry, HookRunner
from yarrow.agent.permission_broker import PermissionBroker, PermissionConfig
from yarrow.agent.retry import Clock
from yarrow.config.permission_mode import PermissionMode
from yarrow.config.settings import RetrySettings
from yarrow.event.events import AgentState, Body, CompactionReason, Notice, QueuedText
from yarrow.message import Message, ThinkingLevel, ToolSpec
from yarrow.provider.base import Provider, ProviderInfo
from yarrow.session.record import Header
from yarrow.session.redaction import NO_REDACTION, Redactor
from yarrow.tool.base import ToolContext
from yarrow.tool.registry import ToolRegistry


class RunSettings(Struct, frozen=True):
    """How a session is set while a run is going on."""

    provider: str
    """The provider's configured id."""
    model: str
    system: str
    thinking: ThinkingLevel = ThinkingLevel.OFF
    tools: tuple[str, ...] | None = None
    """Names of the tools offered; None is all."""
    dry_run: bool = False
    permissions: PermissionMode = PermissionMode.ASK
    retry: RetrySettings = RetrySettings()
    max_turns: int = 200
    """0 is no limit."""
    max_tokens: int = 0
    """The most tokens of one answer; 0 leaves it to the provider."""
    temperature: float | None = None


class RunResources(Struct, frozen=True):
    """What a run works with."""

    settings: RunSettings
    provider: Provider
    info: ProviderInfo
    registry: ToolRegistry
    context: ToolContext
    hooks: HookRegistry
    consent: PermissionConfig = PermissionConfig()
    """What a person said beforehand about calls that would be asked."""
    redactor: Redactor = NO_REDACTION
    """Takes out of tool outputs what must not go further."""
    keys: Redactor = NO_REDACTION
    """Takes the keys of providers out of whatever is recorded or told."""
    contained: bool = False
    """Whether shell commands run in a sandbox."""
    notices: Callable[[], Sequence[Notice]] = tuple
    """Returns what a person should know when a run is over, of the machine that its commands ran on."""
    running: Callable[[str], AbstractContextManager[None]] | None = None
    """Returns what is open while the tool call of an id runs; None when nobody measures."""

    def restricted_by(self, header: Header) -> "RunResources":
        """Return this with what the session may do as `header` has it.

        Whoever else writes to the session may have changed that since this was put together. What was put together for
        a dry run stays one: it was not looked what its commands could run in.
        """
        tools = self.settings.tools if header.tools is None else header.tools
        dry_run = header.dry_run or self.settings.dry_run
        return replace(
            self,
            settings=replace(self.settings, dry_run=dry_run, permissions=header.permissions, tools=tools),
        )

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools that the model is offered."""
        return self.registry.specs(self.settings.tools) if self.info.has_tool_call else ()


class Deliver(Protocol):
    """Records the texts that are due as user messages and returns them."""

    async def __call__(self, *, ending: bool) -> tuple[QueuedText, ...]:
        """Deliver the steers that wait, else, if the run would end, one follow-up. Raises `StorageError`."""
        ...


class LoopPorts(Struct, frozen=True):
    """The callables of a run. `emit` may drop, `record` may not: it returns when the message is on disk."""

    emit: Callable[[Body], None]
    record: Callable[[Message], Awaitable[None]]
    """Raises `StorageError`."""
    deliver: Deliver
    enter: Callable[[AgentState], None]
    points: HookRunner
    pause: Clock
    questions: PermissionBroker
    context: Callable[[], ModelContext]
    """What of the session the model is sent."""
    compact: Callable[[CompactionReason, int], Awaitable[None]]
    """Compacts the context if it is due, or because it overflowed a window of so many tokens; 0 is unknown.

    Raises `RunError`, `ProviderError` and `StorageError`.
    """
    new_id: Callable[[], str]
    timestamp: Callable[[], str]
