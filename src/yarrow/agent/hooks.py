"""Extension hooks: the registry of contributions, and the points of a run at which hooks are called."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from yarrow.agent import hook_payloads as pl
from yarrow.errors import YarrowError
from yarrow.event.events import AgentEnd, Body, Notice
from yarrow.message import Block, Image, Message, Role, Text, ToolCall
from yarrow.provider.base import CompletionRequest
from yarrow.provider.factory import ProviderBuilder
from yarrow.redaction.redactor import Redactor
from yarrow.session.ids import new_id
from yarrow.tool.base import Done, Result, Tool, ToolFailed

HOOK_SECONDS = 5.0
"""Timeout of one hook call in seconds; a hook that exceeds it is skipped with a notice."""
MAX_FAILURES = 3
"""Consecutive failures after which a hook is disabled until the service restarts."""
READ_ONLY_CHANGED = "HOOK_READ_ONLY"
"""Code of the notice that a hook changed a field that must stay as it is."""
MAX_RESULT = 32 << 20
"""Maximum bytes of JSON returned by a hook; a larger result is ignored with a notice."""

P = TypeVar("P", bound=Struct)


class HookName(StrEnum):
    """Hook points of a run; `yarrow.agent.hook_payloads` defines the payload of each and what may be changed."""

    SESSION_START = "SessionStart"
    SESSION_END = "SessionEnd"
    MODIFY_INPUT = "ModifyInput"
    AGENT_START = "AgentStart"
    AGENT_END = "AgentEnd"
    TURN_START = "TurnStart"
    TURN_END = "TurnEnd"
    MODIFY_SYSTEM_PROMPT = "ModifySystemPrompt"
    BEFORE_PROMPT = "BeforePrompt"
    MODIFY_CONTEXT = "ModifyContext"
    BEFORE_PROVIDER_REQUEST = "BeforeProviderRequest"
    AFTER_PROVIDER_RESPONSE = "AfterProviderResponse"
    BEFORE_TOOL_CALL = "BeforeToolCall"
    AFTER_TOOL_CALL = "AfterToolCall"
    BEFORE_COMPACT = "BeforeCompact"
    AFTER_COMPACT = "AfterCompact"


class HookContext(Struct, frozen=True, rename="camel"):
    """Context of a hook call, passed as the second argument."""

    session_id: str
    cwd: str
    run_id: str = ""
    """Empty outside a run."""
    dry_run: bool = False
    """True in a dry run: hooks must not change anything."""
    hook: str = ""
    """Name of the hook point."""


class Hook(Struct, frozen=True):
    """A hook function. It receives the payload and `HookContext` as JSON and returns the new payload or `null`."""

    label: str
    """Name shown to users."""
    call: Callable[[bytes, bytes], Awaitable[bytes]]
    required: bool = False
    """True if a failure of the hook denies the tool call; only for BeforeToolCall hooks."""


class RequiredHookFailed(Exception):
    """A required hook failed."""

    def __init__(self, label: str, reason: str) -> None:
        super().__init__(f"the hook {label} failed: {reason}")


class HookRegistry:
    """All hooks of a service, in order of registration."""

    def __init__(self, hooks: Mapping[HookName, Sequence[Hook]] | None = None) -> None:
        self._hooks = {name: tuple(some) for name, some in (hooks or {}).items() if some}
        self._failures: Counter[tuple[HookName, int]] = Counter()

    def __contains__(self, name: HookName) -> bool:
        """Return True if a hook with that name exists; callers then skip building unused payloads."""
        return name in self._hooks

    async def run(self, name: HookName, payload: P, *, about: HookContext, notify: Callable[[Notice], None]) -> P:
        """Return the payload as changed by the hooks. A hook that fails, times out or returns invalid data is skipped.

        Raises `RequiredHookFailed` if that hook is required.
        """
        where = msgspec.json.encode(msgspec.structs.replace(about, hook=name.value))
        for index, hook in enumerate(self._hooks.get(name, ())):
            if self._failures[name, index] >= MAX_FAILURES and not hook.required:
                continue
            try:
                result = await asyncio.wait_for(hook.call(msgspec.json.encode(payload), where), HOOK_SECONDS)
                payload, ignored = _read(result, payload)
                self._failures[name, index] = 0
                if ignored:
                    text = f"{name.value} hook {hook.label} changed {ignored}, which is read-only: ignored"
                    notify(Notice(READ_ONLY_CHANGED, text))
            except Exception as error:  # noqa: BLE001 (code of others raises anything; only a required hook ends the run)
                self._failures[name, index] += 1
                if hook.required:
                    raise RequiredHookFailed(hook.label, _reason(error)) from None
                notify(Notice("HOOK_FAILED", f"{name.value} hook {hook.label} was skipped: {_reason(error)}"))
                if self._failures[name, index] == MAX_FAILURES:
                    again = f"it failed {MAX_FAILURES} times in a row and is no longer called"
                    notify(Notice("HOOK_OFF", f"{name.value} hook {hook.label} is off: {again}"))
        return payload


def _read(result: bytes, payload: P) -> tuple[P, str]:
    """Return the payload that a hook returned, and the name of a read-only field whose change was ignored.

    Raises ValueError, TypeError and msgspec's errors.
    """
    if len(result) > MAX_RESULT:
        raise ValueError(f"it returned {len(result):,} bytes of JSON; the limit is {MAX_RESULT:,}")
    values: Any = msgspec.json.decode(result)
    if values is None:
        return payload, ""
    if not isinstance(values, dict):
        raise TypeError("it must return the payload as a JSON object, or nothing")
    known, values = payload.__struct_encode_fields__, cast("dict[str, Any]", values)
    for key in values:
        if key not in known:
            raise ValueError(f"it returned the unknown key {key!r}; the keys are {', '.join(known)}")
    ignored = ""
    if isinstance(payload, CompletionRequest):
        ignored = "purpose" if values.get("purpose", payload.purpose) != payload.purpose else ""
        values["purpose"] = payload.purpose
    return msgspec.convert(values, type(payload)), ignored


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"it took more than {HOOK_SECONDS:g} s"
    told = error.message if isinstance(error, YarrowError) else f"{type(error).__name__}: {error}".rstrip(": ")
    return told[:500]


class HookRunner:
    """Calls the hooks at each point of a run. A point without hooks costs nothing."""

    def __init__(self, hooks: HookRegistry, about: HookContext, emit: Callable[[Body], None]) -> None:
        self._hooks = hooks
        self._about = about
        self._emit = emit
        self._told: set[Notice] = set()
        self.at_tools = HookName.BEFORE_TOOL_CALL in hooks or HookName.AFTER_TOOL_CALL in hooks
        """True if any hook is registered for tool calls."""

    async def input(self, content: tuple[Block, ...], how: pl.How) -> tuple[Block, ...]:
        """Let hooks change the user's message; an empty result leaves it unchanged."""
        if HookName.MODIFY_INPUT not in self._hooks:
            return content
        text = "".join(block.text for block in content if isinstance(block, Text))
        images = tuple(block for block in content if isinstance(block, Image))
        changed = await self._run(HookName.MODIFY_INPUT, pl.InputPayload(text, images, how))
        if not changed.text.strip() and not changed.images:
            return content
        return (*((Text(changed.text),) if changed.text else ()), *changed.images)

    async def agent_start(self, text: str) -> None:
        """Report the start of a run."""
        if HookName.AGENT_START in self._hooks:
            await self._run(HookName.AGENT_START, pl.AgentStartPayload(text))

    async def agent_end(self, end: AgentEnd) -> None:
        """Report the end of a run."""
        if HookName.AGENT_END in self._hooks:
            code, message = (end.error.code.value, end.error.message) if end.error else ("", "")
            await self._run(HookName.AGENT_END, pl.AgentEndPayload(end.reason.name, end.usage, code, message))

    async def turn(self, name: HookName, turn: int) -> None:
        """Report the start or end of a turn."""
        if name in self._hooks:
            await self._run(name, pl.TurnPayload(turn))

    async def request(self, request: CompletionRequest, timestamp: str) -> CompletionRequest:
        """Let hooks change this request: first its system prompt, then its messages, then any other field."""
        if HookName.MODIFY_SYSTEM_PROMPT in self._hooks:
            system = await self._run(HookName.MODIFY_SYSTEM_PROMPT, pl.SystemPromptPayload(request.system))
            request = replace(request, system=system.system)
        if HookName.BEFORE_PROMPT in self._hooks:
            said = pl.BeforePromptPayload(_newest(request.messages))
            if note := (await self._run(HookName.BEFORE_PROMPT, said)).note:
                aside = Message(id=new_id(), role=Role.USER, content=(Text(note),), timestamp=timestamp)
                request = replace(request, messages=(*request.messages, aside))
        if HookName.MODIFY_CONTEXT in self._hooks:
            context = await self._run(HookName.MODIFY_CONTEXT, pl.ContextPayload(request.messages))
            request = replace(request, messages=context.messages)
        return await self.before_request(request)

    async def before_request(self, request: CompletionRequest) -> CompletionRequest:
        """Let hooks change a request of any purpose."""
        if HookName.BEFORE_PROVIDER_REQUEST in self._hooks:
            request = await self._run(HookName.BEFORE_PROVIDER_REQUEST, request)
        return request

    async def response(self, message: Message, keys: Redactor) -> None:
        """Report the model's answer as recorded, with keys redacted."""
        if HookName.AFTER_PROVIDER_RESPONSE in self._hooks:
            await self._run(HookName.AFTER_PROVIDER_RESPONSE, pl.ResponsePayload(keys.redact_struct(message)))

    async def before_call(self, call: ToolCall, *, read_only: bool, contained: bool) -> Result | None:
        """Return the result that a hook supplies instead of running the call; None to run it."""
        if HookName.BEFORE_TOOL_CALL not in self._hooks:
            return None
        try:
            asked = await self._run(
                HookName.BEFORE_TOOL_CALL, pl.BeforeToolCallPayload(_call(call), read_only, contained)
            )
        except RequiredHookFailed as failed:
            return ToolFailed(f"Not run: {failed}. This hook must check every call; ask the user to fix it.")
        if asked.answer is None:
            return None
        return ToolFailed(asked.answer.text) if asked.answer.is_error else Done(asked.answer.text)

    async def after_call(self, call: ToolCall, result: Result) -> Result:
        """Let hooks change a result before it is recorded; images are kept."""
        if HookName.AFTER_TOOL_CALL not in self._hooks:
            return result
        diff, images = (result.diff, result.images) if isinstance(result, Done) else ("", ())
        given = pl.AfterToolCallPayload(_call(call), result.text, isinstance(result, ToolFailed), diff)
        changed = await self._run(HookName.AFTER_TOOL_CALL, given)
        return ToolFailed(changed.text) if changed.is_error else Done(changed.text, changed.diff, images)

    async def before_compact(self, tokens: int, instructions: str) -> str:
        """Let hooks change the summary instructions for a context of `tokens` tokens."""
        if HookName.BEFORE_COMPACT not in self._hooks:
            return instructions
        asked = await self._run(HookName.BEFORE_COMPACT, pl.BeforeCompactPayload(tokens, instructions))
        return asked.instructions

    async def after_compact(self, before: int, after: int, summary: str) -> None:
        """Report a compaction; sizes are in tokens."""
        if HookName.AFTER_COMPACT in self._hooks:
            await self._run(HookName.AFTER_COMPACT, pl.AfterCompactPayload(before, after, summary))

    async def _run(self, name: HookName, payload: Any) -> Any:
        return await self._hooks.run(name, payload, about=self._about, notify=self._notify)

    def _notify(self, notice: Notice) -> None:
        """Emit a notice; one about a read-only field only once, because it would repeat with every request."""
        if notice.code != READ_ONLY_CHANGED or notice not in self._told:
            self._told.add(notice)
            self._emit(notice)


def _newest(messages: Sequence[Message]) -> str:
    return next((message.text for message in reversed(messages) if message.role is Role.USER), "")


def _call(call: ToolCall) -> pl.ToolCallPayload:
    return pl.ToolCallPayload(call.id, call.name, msgspec.json.decode(call.arguments, type=dict[str, Any]))


class ContributedCommand(Struct, frozen=True):
    """A slash command that an extension provides."""

    name: str
    description: str
    expand: Callable[[str, str], Awaitable[str]]
    """Returns the prompt to send, given the text after the command name and the working directory."""


class Contributions(Struct, frozen=True):
    """Everything that extensions registered, in order."""

    hooks: HookRegistry
    tools: tuple[Tool, ...] = ()
    commands: tuple[ContributedCommand, ...] = ()
    providers: Mapping[str, ProviderBuilder] = {}
    """Provider builders by configured provider id."""
    files: tuple[Path, ...] = ()
    """Files and directories from which extensions were loaded."""
    warnings: tuple[str, ...] = ()
    """Warnings for the user, such as an extension that failed to load or a name already in use."""


def no_contributions() -> Contributions:
    """Return the contributions of a service without extensions."""
    return Contributions(HookRegistry())
