"""Runs blocking work in a thread that a cancelled call waits for, so that nothing goes on behind its back."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def run_in_thread(work: Callable[[threading.Event], T]) -> T:
    """Return what `work` returns, or raise what it raises.

    On cancellation the event that `work` was given is set; CancelledError leaves when `work` has returned.
    """
    stop = threading.Event()
    running = asyncio.get_running_loop().run_in_executor(None, work, stop)
    cancelled: asyncio.CancelledError | None = None
    while not running.done():
        try:
            await asyncio.wait((running,))
        except asyncio.CancelledError as error:
            cancelled = error
            stop.set()
    if cancelled is not None:
        running.exception()  # it was seen, and gives way to the cancellation
        raise cancelled
    return running.result()
