"""Lets a step that must not be cut in half, such as recording and telling, finish before a cancellation strikes."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def run_shielded(step: Coroutine[Any, Any, T]) -> T:
    """Run `step` to its end whatever happens to the caller, and return its result.

    A cancellation that comes meanwhile is put off: it strikes the caller at its next wait.
    """
    task = asyncio.ensure_future(step)
    put_off = 0
    while not task.done():
        try:
            # This neither cancels the step nor raises what the step raises.
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            put_off += 1
    current = asyncio.current_task()
    if put_off and current is not None:
        for _ in range(put_off):
            current.uncancel()
        current.cancel()
    return task.result()
