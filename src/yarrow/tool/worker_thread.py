"""Blocking work in a thread; a cancelled call waits for it, so that no work continues unnoticed."""

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def run_in_thread(work: Callable[[threading.Event], T]) -> T:
    """Return what `work` returns, or raise what it raises.

    On cancellation the event passed to `work` is set; CancelledError is raised once `work` has returned.
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
        running.exception()  # mark its exception as retrieved: the cancellation has precedence
        raise cancelled
    return running.result()
