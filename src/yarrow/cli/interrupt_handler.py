"""Takes the signals that tell a program to end, from before its event loop until after it."""

import asyncio
import os
import signal
import time
from collections.abc import Coroutine, Generator
from contextlib import contextmanager, suppress
from functools import partial
from types import FrameType, TracebackType
from typing import Any, Self, TypeVar

import grpc

from yarrow.client.session_setup import SessionInfo
from yarrow.client.stub import Stub
from yarrow.platform import system
from yarrow.v1 import agent_pb2 as pb

T = TypeVar("T")

DEBOUNCE_SECONDS = 0.5
"""Signals that follow one which was obeyed within this time belong to it: a key that was pressed in impatience."""
_CHUNK = 64
_END_SIGNALS = frozenset({0, *system.TERMINATION_SIGNALS})
"""What stands in the pipe for a signal of these: what the handler writes, and what the interpreter does."""


class InterruptHandler:
    """Turns signals into the cancellation of a task, for one `with`.

    Once one was obeyed the process is on its way out: further ones stay ignored after the `with`, since its threads
    and the interpreter take a while to end and must not be killed meanwhile. Else the former handlers come back.
    """

    def __init__(self) -> None:
        self._obeyed_at: float | None = None
        self._number = signal.SIGINT.value
        self._before: dict[signal.Signals, Any] = {}
        # What the interpreter writes to wakes a loop that is just about to wait, for which a handler alone is too late.
        self._woken, self._wake = system.open_pipe()
        system.set_nonblocking(self._wake)

    def __enter__(self) -> Self:
        """Take the signals."""
        self._before = {number: signal.signal(number, self._on_signal) for number in system.TERMINATION_SIGNALS}
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the signals back, or ignore them from now on."""
        for number, before in self._before.items():
            signal.signal(number, before if self._obeyed_at is None else signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        os.close(self._woken)
        os.close(self._wake)

    @contextmanager
    def cancel_on_signal(self, task: "asyncio.Task[Any]") -> Generator[None]:
        """Cancel `task` at each signal that is obeyed while this is open, and at one that came before.

        The number of the signal goes with the `CancelledError`.
        """
        loop = asyncio.get_running_loop()
        system.watch_readable(loop, self._woken, partial(self._on_wakeup, task))
        try:
            yield
        finally:
            system.unwatch_readable(loop, self._woken)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Stand in the place of a handler that would end the process, and wake the loop.

        The interpreter does that too, until a library takes its wake-up for signals of its own.
        """
        self._number = number
        with suppress(OSError):
            os.write(self._wake, b"\0")

    def _on_wakeup(self, task: "asyncio.Task[Any]") -> None:
        told = b""
        with suppress(BlockingIOError):
            told = system.read_nonblocking(self._woken, _CHUNK)
        # A signal that somebody else takes, such as an extension, wakes the loop as well.
        if _END_SIGNALS.isdisjoint(told):
            return
        now = time.monotonic()
        if self._obeyed_at is None or now - self._obeyed_at > DEBOUNCE_SECONDS:
            self._obeyed_at = now
            task.cancel(self._number)


async def abort_on_interrupt(client: Coroutine[Any, Any, T], stub: Stub, session: SessionInfo) -> T:
    """Run a client; when this is cancelled, abort the run and let the client show its end. Again, and it stops.

    What interrupts ends the run alone; what asks the program to end is passed on then.
    """
    showing = asyncio.ensure_future(client)
    try:
        return await asyncio.shield(showing)
    except asyncio.CancelledError as interrupt:
        if showing.done():
            raise
        running = False
        with suppress(grpc.aio.AioRpcError):
            running = (await stub.Abort(pb.AbortRequest(session_id=session.session_id))).was_running
        if not running:
            # The prompt was not accepted yet, so that no end of a run will be told.
            raise
        outcome = await showing
        if interrupt.args and interrupt.args[0] != signal.SIGINT:
            raise
        return outcome
    finally:
        # Not over yet when it was told a second time.
        showing.cancel()
        await asyncio.wait([showing])
