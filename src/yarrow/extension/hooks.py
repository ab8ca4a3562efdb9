"""Makes a function of an extension into a hook: it is given values of its own and returns JSON, in its own thread."""

import json
from collections.abc import Awaitable, Callable
from inspect import isawaitable
from typing import Any

import msgspec

from yarrow.agent.hooks import Hook
from yarrow.extension.host import ExtensionHost

HookFunction = Callable[..., "dict[str, Any] | None | Awaitable[dict[str, Any] | None]"]
"""Takes the payload, and what it is about if it takes two; returns the payload to go on with, or None."""


def host_hook(host: ExtensionHost, label: str, function: HookFunction, *, takes_context: bool) -> Hook:
    """Return the hook that calls `function` in the extension's thread with values of its own."""

    async def call(payload: bytes, about: bytes) -> bytes:
        async def work() -> bytes:
            given = (payload, about) if takes_context else (payload,)
            result: object = function(*(msgspec.json.decode(each) for each in given))
            if isawaitable(result):
                result = await result
            # Of the standard library, since it refuses what is not JSON: NaN, bytes, sets, objects, circles.
            return json.dumps(result, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()

        return await host.call(work)

    return Hook(label, call)
