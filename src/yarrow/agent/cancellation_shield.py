"""Runs a step to completion even if the caller is cancelled; the cancellation is delivered afterwards."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def run_shielded(step: Coroutine[Any, Any, T]) -> T:
    """Run `step` to completion and return its result, even if the caller is cancelled.

    A cancellation during the step is delivered at the caller's next await.
    """
    task = asyncio.ensure_future(step)
    put_off = 0
    while not task.done():
        try:
            # This neither cancels the step nor raises its error.
            await asyncio.wait((task,))
        except asyncio.CancelledError:
            put_off += 1
    current = asyncio.current_task()
    if put_off and current is not None:
        for _ in range(put_off):
            current.uncancel()
        current.cancel()
    return task.result()
