"""Stops the program as Ctrl+Z does everywhere, and comes back when the shell says so."""

import asyncio
import os
import signal
from collections.abc import Callable

from prompt_toolkit.application import in_terminal
from prompt_toolkit.key_binding import KeyPressEvent

from yarrow.client.tui.keyboard import Keyboard

MAX_STOP_SECONDS = 0.3
"""How long the program may take to be stopped; the system stops none that nobody could continue."""
NO_SHELL_NOTICE = "nothing was stopped: no shell is there that could go on with it (fg)"


def has_shell() -> bool:
    """Return whether there may be a shell that goes on with what was stopped: whoever leads a session has none."""
    return os.getsid(0) != os.getpid()


async def stop_process() -> bool:
    """Stop this process, and all of its group, until a shell continues it; return False when that did not happen.

    The terminal must have been given back before.
    """
    loop = asyncio.get_running_loop()
    woken, continued = asyncio.Event(), False

    def wake(*_: object) -> None:
        nonlocal continued
        continued = True
        loop.call_soon_threadsafe(woken.set)

    before = signal.signal(signal.SIGCONT, wake)
    late = loop.call_later(MAX_STOP_SECONDS, woken.set)
    try:
        os.kill(0, signal.SIGTSTP)
        # One thread may be here still while another one takes the signal for all.
        await woken.wait()
    finally:
        late.cancel()
        signal.signal(signal.SIGCONT, before)
    return continued


def make_suspend_handler(after: Callable[[], None]) -> Callable[[KeyPressEvent], None]:
    """Return what Ctrl+Z does in a view; `after` is called when it is back."""

    async def suspend() -> None:
        async with in_terminal():
            await stop_process()
        after()

    def handle(event: KeyPressEvent) -> None:
        if has_shell():
            if isinstance(event.app.input, Keyboard):
                event.app.input.stays_raw = False
            event.app.create_background_task(suspend())

    return handle
