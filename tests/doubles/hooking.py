"""Hooks made of plain functions that run in the service's own loop."""

import inspect
from collections.abc import Callable
from typing import Any

import msgspec

from yarrow.agent.hooks import Hook, HookName, HookRegistry


def hook(function: Callable[..., Any]) -> Hook:
    """A hook of a function that takes the payload and returns it, or None."""

    async def call(payload: bytes, about: bytes) -> bytes:
        values, where = msgspec.json.decode(payload), msgspec.json.decode(about)
        result = function(values, where) if len(inspect.signature(function).parameters) == 2 else function(values)
        return msgspec.json.encode(await result if inspect.isawaitable(result) else result)

    return Hook(getattr(function, "__name__", "hook"), call)


def hooks(**functions: Callable[..., Any] | list[Callable[..., Any]]) -> HookRegistry:
    """Hooks by the name of their place: one function or several."""
    listed = {name: some if isinstance(some, list) else [some] for name, some in functions.items()}
    return HookRegistry({HookName(name): [hook(one) for one in some] for name, some in listed.items()})
