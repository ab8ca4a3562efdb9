"""Job control: suspends the program on Ctrl+Z and returns when the shell resumes it."""

import asyncio
import os
import signal
from collections.abc import Callable

from prompt_toolkit.application import in_terminal
from prompt_toolkit.key_binding import KeyPressEvent

from yarrow.client.tui.keyboard import Keyboard

MAX_STOP_SECONDS = 0.3
"""Maximum seconds until the stop takes effect; the system never stops a group that no shell could resume."""
NO_SHELL_NOTICE = "Can't suspend: no parent shell to return to"


def has_shell() -> bool:
    """Return whether there may be a shell that can resume the program: a session leader has none."""
    return os.getsid(0) != os.getpid()


async def stop_process() -> bool:
    """Stop this process and its group until a shell resumes it; return False if it was not stopped.

    The terminal must have been restored before.
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
        # Another thread may receive the signal, so that this one gets here before the process stops.
        await woken.wait()
    finally:
        late.cancel()
        signal.signal(signal.SIGCONT, before)
    return continued


def make_suspend_handler(after: Callable[[], None]) -> Callable[[KeyPressEvent], None]:
    """Return the handler of Ctrl+Z in a view; `after` is called once the program is resumed."""

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
