"""Threads for the blocking work of an extension (`asyncio.to_thread`) that do not keep the process from ending."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import BoundedSemaphore, Thread
from typing import ParamSpec, TypeVar

from typing_extensions import override

P = ParamSpec("P")
T = TypeVar("T")

MAX_THREADS = 32
"""That work at one time for one extension; the work of others waits until one is done."""


class DaemonThreads(ThreadPoolExecutor):
    """A daemon thread for each piece of work: the usual executor's are waited for when the process ends.

    It is a `ThreadPoolExecutor` in name only, since a loop takes no other class for its default.
    """

    def __init__(self) -> None:
        super().__init__()
        self._room = BoundedSemaphore(MAX_THREADS)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Begin the work and return what will hold its result."""
        future: Future[T] = Future()

        def work() -> None:
            with self._room:
                if not future.set_running_or_notify_cancel():
                    return
                try:
                    result = fn(*args, **kwargs)
                except BaseException as error:  # noqa: BLE001
                    # As in the standard executors: the error belongs to the caller that waits for the result.
                    future.set_exception(error)
                else:
                    future.set_result(result)

        Thread(target=work, name="extension work", daemon=True).start()
        return future

    @override
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the threads to themselves."""
