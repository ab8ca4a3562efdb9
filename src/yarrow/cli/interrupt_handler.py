"""Handling of termination signals, from before the event loop starts until after it ends."""

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

from yarrow.client.session_lookup import SessionInfo
from yarrow.client.stub import Stub
from yarrow.platform import system
from yarrow.v1 import agent_pb2 as pb

T = TypeVar("T")

DEBOUNCE_SECONDS = 0.5
"""Seconds after a handled signal during which further ones are ignored, as a key pressed again in impatience."""
_CHUNK = 64
_END_SIGNALS = frozenset({0, *system.TERMINATION_SIGNALS})
"""Bytes in the pipe that mean termination: 0 from the handler, and signal numbers from the interpreter."""


class InterruptHandler:
    """Context manager that turns termination signals into the cancellation of a task.

    After a handled signal the process is exiting: further ones stay ignored after the `with`, since threads and the
    interpreter take a while to end and must not be killed meanwhile. Otherwise the previous handlers are restored.
    """

    def __init__(self) -> None:
        self._obeyed_at: float | None = None
        self._number = signal.SIGINT.value
        self._before: dict[signal.Signals, Any] = {}
        # The interpreter itself writes to the pipe to wake a loop about to wait; a handler alone would be too late.
        self._woken, self._wake = system.open_pipe()
        system.set_nonblocking(self._wake)

    def __enter__(self) -> Self:
        """Install the handlers."""
        self._before = {number: signal.signal(number, self._on_signal) for number in system.TERMINATION_SIGNALS}
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore the previous handlers, or ignore the signals from now on."""
        for number, before in self._before.items():
            signal.signal(number, before if self._obeyed_at is None else signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        os.close(self._woken)
        os.close(self._wake)

    @contextmanager
    def cancel_on_signal(self, task: "asyncio.Task[Any]") -> Generator[None]:
        """Cancel `task` on each signal that is not debounced, including one received before the `with`.

        The signal number is the argument of the `CancelledError`.
        """
        loop = asyncio.get_running_loop()
        system.watch_readable(loop, self._woken, partial(self._on_wakeup, task))
        try:
            yield
        finally:
            system.unwatch_readable(loop, self._woken)

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        """Replace the default handler, which would end the process, and wake the loop.

        The interpreter wakes it too, unless a library takes over the wakeup descriptor for its own signals.
        """
        self._number = number
        with suppress(OSError):
            os.write(self._wake, b"\0")

    def _on_wakeup(self, task: "asyncio.Task[Any]") -> None:
        told = b""
        with suppress(BlockingIOError):
            told = system.read_nonblocking(self._woken, _CHUNK)
        # A signal handled by other code, such as an extension, wakes the loop as well.
        if _END_SIGNALS.isdisjoint(told):
            return
        now = time.monotonic()
        if self._obeyed_at is None or now - self._obeyed_at > DEBOUNCE_SECONDS:
            self._obeyed_at = now
            task.cancel(self._number)


async def abort_on_interrupt(client: Coroutine[Any, Any, T], stub: Stub, session: SessionInfo) -> T:
    """Run a client; if cancelled, abort the run and let the client show its end; if cancelled again, stop the client.

    An interrupt ends only the run; after any other signal, which asks the program to end, this raises.
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
            # The prompt was not accepted yet, so no AgentEnd will follow.
            raise
        outcome = await showing
        if interrupt.args and interrupt.args[0] != signal.SIGINT:
            raise
        return outcome
    finally:
        # Still running only after a second cancellation.
        showing.cancel()
        await asyncio.wait([showing])
