"""The seam where functions from outside look into a run; each gets JSON, and a bad one costs a notice."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from msgspec import Struct

from yarrow.event.events import Notice
from yarrow.provider.base import CompletionRequest

HOOK_SECONDS = 5.0
"""How long one hook may take; then it is skipped with a notice."""

BeforeProviderRequest = Callable[[dict[str, Any]], "dict[str, Any] | None | Awaitable[dict[str, Any] | None]"]
"""Takes the `CompletionRequest` as JSON (camel-case keys) and returns the one to send, or None to leave it."""


class Hooks(Struct, frozen=True):
    """Functions in the order in which they run."""

    before_provider_request: tuple[BeforeProviderRequest, ...] = ()


async def before_provider_request(
    hooks: Hooks, request: CompletionRequest, notify: Callable[[Notice], None]
) -> CompletionRequest:
    """Let each hook change the request; one that fails, is slow or returns nonsense is skipped with a notice."""
    for hook in hooks.before_provider_request:
        try:
            changed = hook(msgspec.to_builtins(request))
            if inspect.isawaitable(changed):
                changed = await asyncio.wait_for(changed, HOOK_SECONDS)
            if changed is not None:
                request = msgspec.convert(changed, CompletionRequest)
        except Exception as error:  # noqa: BLE001 - whatever a hook raises must not end a run
            name = getattr(hook, "__qualname__", repr(hook))
            notify(Notice("HOOK_FAILED", f"hook {name} was skipped: {type(error).__name__}: {error}"))
    return request
