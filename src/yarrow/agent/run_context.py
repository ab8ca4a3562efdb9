"""Inputs of the agent loop: the resources of a run, and the callables through which it has side effects."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from msgspec import Struct
from msgspec.structs import replace

from yarrow.agent.hooks import HookRegistry, HookRunner
from yarrow.agent.model_context import ModelContext
from yarrow.agent.permission_broker import PermissionBroker, PermissionConfig
from yarrow.agent.retry import Clock
from yarrow.config.settings import PermissionMode, RetrySettings
from yarrow.event.events import AgentState, Body, CompactionReason, Notice, QueuedText
from yarrow.message import Message, ThinkingLevel, ToolSpec
from yarrow.provider.base import Provider, ProviderInfo
from yarrow.redaction.redactor import NO_REDACTION, Redactor
from yarrow.session.record import Header
from yarrow.tool.base import ToolContext
from yarrow.tool.registry import ToolRegistry


class RunSettings(Struct, frozen=True):
    """Settings of a session during a run."""

    provider: str
    """The provider's configured id."""
    model: str
    system: str
    thinking: ThinkingLevel = ThinkingLevel.OFF
    tools: tuple[str, ...] | None = None
    """Names of the tools offered; None for all."""
    dry_run: bool = False
    permissions: PermissionMode = PermissionMode.ASK
    retry: RetrySettings = RetrySettings()
    max_turns: int = 200
    """0 for no limit."""
    max_tokens: int = 0
    """Maximum tokens of one answer; 0 for the provider's default."""
    temperature: float | None = None


class ToolSetup(Struct, frozen=True):
    """Resources of a run for its tools."""

    context: ToolContext
    redactor: Redactor
    """Redacts secrets from tool output."""


class ModelSetup(Struct, frozen=True):
    """A model that is ready to answer, and the settings that depend on it."""

    provider: Provider
    info: ProviderInfo
    keys: Redactor = NO_REDACTION
    """Redacts provider keys, including the one of this provider."""
    tools: tuple[str, ...] | None = None
    """Names of the tools offered; None for all."""
    max_tokens: int = 0
    """Maximum tokens of one answer; 0 for the provider's default."""
    temperature: float | None = None


class Fallback(Struct, frozen=True):
    """A model that replaces another one which failed."""

    name: str
    """`provider/model`."""
    set_up: Callable[[], Awaitable[ModelSetup]]
    """Sets up the model; raises `YarrowError` if it is unavailable, such as for lack of a key."""


class RunResources(Struct, frozen=True):
    """Resources of a run."""

    settings: RunSettings
    provider: Provider
    info: ProviderInfo
    registry: ToolRegistry
    hooks: HookRegistry
    context: ToolContext | None = None
    """Context of the tools; None until `tool_setup` has been called."""
    consent: PermissionConfig = PermissionConfig()
    """Permissions granted or denied in advance."""
    redactor: Redactor = NO_REDACTION
    """Redacts secrets from tool output."""
    keys: Redactor = NO_REDACTION
    """Redacts provider keys from everything that is recorded or published."""
    contained: bool = False
    """True if shell commands run in a sandbox."""
    tool_setup: Callable[[], Awaitable[ToolSetup]] | None = None
    """Sets up the tools before the first call; raises `ConfigError`. None once it has been called."""
    fallbacks: tuple[Fallback, ...] = ()
    """Models to try in order after this one failed."""
    notices: Callable[[], Sequence[Notice]] = tuple
    """Returns notices for the user about the machine that ran the commands; called at the end of a run."""
    running: Callable[[str], AbstractContextManager[None]] | None = None
    """Context manager that times a tool call; None when telemetry is off."""

    async def with_tools(self) -> "RunResources":
        """Return a copy whose tools are set up. Raises `ConfigError`."""
        if self.tool_setup is None:
            return self
        setup = await self.tool_setup()
        contained = setup.context.sandbox is not None
        return replace(self, context=setup.context, redactor=setup.redactor, contained=contained, tool_setup=None)

    def require_context(self) -> ToolContext:
        """Return the context of the tools, which are set up."""
        if self.context is None:
            raise RuntimeError("a tool was used before the tools were set up")
        return self.context

    def restricted_by(self, header: Header) -> "RunResources":
        """Return a copy with the permissions, tools and dry-run setting of `header`.

        Another writer may have changed them since these resources were created. Resources created for a dry run stay
        one: the sandbox of their commands was never set up.
        """
        tools = self.settings.tools if header.tools is None else header.tools
        dry_run = header.dry_run or self.settings.dry_run
        return replace(
            self,
            settings=replace(self.settings, dry_run=dry_run, permissions=header.permissions, tools=tools),
        )

    def with_model(self, setup: ModelSetup) -> "RunResources":
        """Return a copy that uses another model."""
        settings = replace(
            self.settings,
            provider=setup.info.name,
            model=setup.info.model,
            tools=setup.tools,
            max_tokens=setup.max_tokens,
            temperature=setup.temperature,
        )
        return replace(self, settings=settings, provider=setup.provider, info=setup.info, keys=setup.keys)

    def tools(self) -> tuple[ToolSpec, ...]:
        """Return the tools offered to the model."""
        return self.registry.specs(self.settings.tools) if self.info.has_tool_call else ()


class Deliver(Protocol):
    """Records the due messages as user messages and returns them."""

    async def __call__(self, *, ending: bool) -> tuple[QueuedText, ...]:
        """Deliver the queued steers, or one follow-up if the run would end. Raises `StorageError`."""
        ...


class LoopPorts(Struct, frozen=True):
    """The callables of a run. `emit` may drop events; `record` returns when the message is on disk."""

    session_id: str
    emit: Callable[[Body], None]
    record: Callable[[Message], Awaitable[None]]
    """Raises `StorageError`."""
    deliver: Deliver
    enter: Callable[[AgentState], None]
    hook_runner: HookRunner
    pause: Clock
    questions: PermissionBroker
    context: Callable[[], ModelContext]
    """Returns the part of the session that is sent to the model."""
    use_keys: Callable[[Redactor], None]
    """Redacts these keys from everything that is emitted or recorded from now on."""
    compact: Callable[[RunResources, CompactionReason, int], Awaitable[None]]
    """Compacts the context if it is due, or after an overflow of a window of that many tokens (0 if unknown).

    Raises `RunError`, `ProviderError` and `StorageError`.
    """
    new_id: Callable[[], str]
    timestamp: Callable[[], str]
