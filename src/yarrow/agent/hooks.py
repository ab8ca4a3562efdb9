"""The seam where functions from outside look into a session: each gets JSON, and a bad one costs a notice."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct

from yarrow.errors import YarrowError
from yarrow.event.events import Notice

HOOK_SECONDS = 5.0
"""How long one hook may take; then it is skipped with a notice."""
MAX_FAILURES = 3
"""Failures in a row after which a hook is not called again until the service starts anew."""
MAX_RESULT = 32 << 20
"""Bytes of JSON that a hook may return; what is larger is skipped with a notice."""

P = TypeVar("P", bound=Struct)


class HookName(StrEnum):
    """Every place where a hook can look in; `yarrow.agent.hook_payloads` says what each is given and may change."""

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
    """Where a hook was called, the second thing it is given."""

    session_id: str
    cwd: str
    run_id: str = ""
    """Empty outside of a run."""
    dry_run: bool = False
    """Whether nothing may be changed anywhere: a hook that writes is to leave it."""
    hook: str = ""
    """The name of the place."""


class Hook(Struct, frozen=True):
    """One function. It takes the payload and the `HookContext` as JSON, and returns the changed payload, or `null`."""

    label: str
    """How it is told to people."""
    call: Callable[[bytes, bytes], Awaitable[bytes]]
    required: bool = False
    """Whether what it looks at is refused when it fails; only a BeforeToolCall hook can be."""


class RequiredHookFailed(Exception):
    """A hook that must look at something could not."""

    def __init__(self, label: str, reason: str) -> None:
        super().__init__(f"the hook {label} failed: {reason}")


class HookRegistry:
    """All hooks of a service, in the order in which they were registered."""

    def __init__(self, hooks: Mapping[HookName, Sequence[Hook]] | None = None) -> None:
        self._hooks = {name: tuple(some) for name, some in (hooks or {}).items() if some}
        self._failures: Counter[tuple[HookName, int]] = Counter()

    def __contains__(self, name: HookName) -> bool:
        """Say whether there is one of that name, so that no payload is made for nobody."""
        return name in self._hooks

    async def run(self, name: HookName, payload: P, *, about: HookContext, notify: Callable[[Notice], None]) -> P:
        """Return the payload as the hooks leave it. One that fails, is slow or returns nonsense is skipped.

        Raises `RequiredHookFailed` when that one is required.
        """
        where = msgspec.json.encode(msgspec.structs.replace(about, hook=name.value))
        for index, hook in enumerate(self._hooks.get(name, ())):
            if self._failures[name, index] >= MAX_FAILURES and not hook.required:
                continue
            try:
                result = await asyncio.wait_for(hook.call(msgspec.json.encode(payload), where), HOOK_SECONDS)
                payload = _read(result, payload)
                self._failures[name, index] = 0
            except Exception as error:  # noqa: BLE001
                # A hook is the code of an extension and can raise any error: it is reported, and the run goes on.
                self._failures[name, index] += 1
                if hook.required:
                    raise RequiredHookFailed(hook.label, _reason(error)) from None
                notify(Notice("HOOK_FAILED", f"{name.value} hook {hook.label} was skipped: {_reason(error)}"))
                if self._failures[name, index] == MAX_FAILURES:
                    again = f"it failed {MAX_FAILURES} times in a row and is not called again"
                    notify(Notice("HOOK_OFF", f"{name.value} hook {hook.label} is off: {again}"))
        return payload


def _read(result: bytes, payload: P) -> P:
    """Return what a hook made of the payload. Raises ValueError, TypeError and msgspec's errors."""
    if len(result) > MAX_RESULT:
        raise ValueError(f"it returned {len(result):,} bytes of JSON; at most {MAX_RESULT:,} are taken")
    values: Any = msgspec.json.decode(result)
    if values is None:
        return payload
    if not isinstance(values, dict):
        raise TypeError("it must return the payload as an object, or nothing")
    known = payload.__struct_encode_fields__
    for key in cast("dict[str, Any]", values):
        if key not in known:
            raise ValueError(f"it returned the unknown key {key!r}; the keys are {', '.join(known)}")
    return msgspec.convert(values, type(payload))


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"it took more than {HOOK_SECONDS:g} s"
    told = error.message if isinstance(error, YarrowError) else f"{type(error).__name__}: {error}".rstrip(": ")
    return told[:500]
