"""Signals as a program takes them: those that tell it to end cancel its task, and no others do."""

import asyncio
import os
import signal

from yarrow.cli.interrupt_handler import InterruptHandler
from yarrow.platform import system


async def _waiting(interrupts: InterruptHandler, *numbers: int) -> bool:
    """Send signals to this process while a task waits; whether the task is cancelled."""
    task = asyncio.create_task(asyncio.Event().wait())
    with interrupts.cancel_on_signal(task):
        for number in numbers:
            os.kill(os.getpid(), number)
            for _ in range(10):  # as often as the loop has to look until it has seen the signal
                await asyncio.sleep(0)
        cancelled = task.cancelling() > 0
        task.cancel()
        await asyncio.wait([task])
    return cancelled


def test_a_signal_with_another_handler_is_left_to_it() -> None:
    seen: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR1, *system.TERMINATION_SIGNALS)}
    signal.signal(signal.SIGUSR1, lambda number, _: seen.append(number))
    try:
        with InterruptHandler() as interrupts:
            assert not asyncio.run(_waiting(interrupts, signal.SIGUSR1))
            assert seen == [signal.SIGUSR1]
            assert asyncio.run(_waiting(interrupts, signal.SIGUSR1, signal.SIGTERM))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
