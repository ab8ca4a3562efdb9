"""Host of extension code: its threads, its time limits and its failures."""

import asyncio
import logging
import threading
import time
import traceback
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing, suppress
from contextvars import Context
from threading import BoundedSemaphore, Thread
from typing import Any, ParamSpec, TypeVar

from typing_extensions import override

from yarrow.extension.extension_errors import ExtensionError, convert_error, describe_error

T = TypeVar("T")

MAX_REACTION_SECONDS = 1.0
"""How long the thread may take to notice that a call was given up; after that further calls fail at once."""
MAX_QUEUE_SECONDS = 10.0
"""How long a call waits for a thread that is busy with another; then it fails."""
MAX_CLOSE_SECONDS = 0.5
"""How long the caller waits for an extension to clean up: a stream that is closed, the thread when the service ends."""
MAX_BUFFER_ITEMS = 64
"""Items of a stream that are under way to the caller; the extension waits when there are more."""

_logger = logging.getLogger("yarrow.extension")


class ExtensionHost:
    """One extension's thread with an event loop of its own, started by the first call.

    Whatever an extension raises arrives as a `YarrowError` (`yarrow.extension.extension_errors`). Whoever is cancelled
    while it waits returns at once: the call is cancelled in the thread, which notices when it can.
    """

    def __init__(self, label: str) -> None:
        self.label = label
        """How the extension is told to people."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: Future[None] = Future()
        self._ending = False
        self._cancel_requested_at: float | None = None
        """Since when the thread owes a sign of life, by the monotonic clock; None when it owes none."""
        self._tasks: dict[Future[Any], asyncio.Task[None]] = {}
        """What runs and was not given up; touched in the thread alone."""

    @property
    def is_stuck(self) -> bool:
        """Whether a call was given up and the thread has not noticed in time; it ends when the thread answers."""
        return (
            self._cancel_requested_at is not None
            and time.monotonic() - self._cancel_requested_at >= MAX_REACTION_SECONDS
        )

    async def call(self, work: Callable[[], Awaitable[T]], seconds: float | None = None) -> T:
        """Run `work` in the thread and return its result. Raises `YarrowError`, also after `seconds`."""
        future = self._submit(work)
        answer = asyncio.wrap_future(future)
        begin = asyncio.get_running_loop().call_later(MAX_QUEUE_SECONDS, future.cancel)
        try:
            await asyncio.wait((answer,), timeout=seconds)
            if not answer.done():
                raise ExtensionError(f"it took more than {seconds:g} s")
            return self._get_result(answer)
        finally:
            begin.cancel()
            self._abandon_call(future, answer)

    async def stream(self, start: Callable[[], AsyncGenerator[T]]) -> AsyncGenerator[T]:
        """Pass on what the generator that `start` makes yields in the thread; never None. Raises `YarrowError`.

        Close it (`contextlib.aclosing`): that closes the generator too, and waits at most `MAX_CLOSE_SECONDS` for it.
        """
        here = asyncio.get_running_loop()
        items: asyncio.Queue[T | None] = asyncio.Queue()
        room = asyncio.Semaphore(MAX_BUFFER_ITEMS)

        async def pump() -> None:
            # One task for the whole life of the generator, since what it holds open may belong to its task.
            async with aclosing(start()) as source:
                async for item in source:
                    await room.acquire()
                    _call_soon(here, items.put_nowait, item)

        future = self._submit(pump)
        answer = asyncio.wrap_future(future)
        answer.add_done_callback(lambda _: items.put_nowait(None))
        begin = here.call_later(MAX_QUEUE_SECONDS, future.cancel)
        try:
            while (item := await items.get()) is not None:
                yield item
                self._call_in_thread(room.release)
            self._get_result(answer)
        finally:
            begin.cancel()
            await self._close_stream(future, answer)

    def run_blocking(self, work: Callable[[], Awaitable[T]], seconds: float) -> T:
        """Run `work` in the thread and block until it is done. Raises `YarrowError`, also after `seconds`.

        What took longer goes on until `end`.
        """
        future = self._submit(work)
        try:
            return future.result(seconds)
        except TimeoutError:
            raise ExtensionError(f"it took more than {seconds:g} s") from None

    def stop(self) -> None:
        """Cancel what runs and end the thread when it can; nothing is called after this."""
        self._ending = True
        if self._loop is not None:
            self._call_in_thread(self._loop.stop)

    async def close(self) -> bool:
        """End the thread and say whether it ended within `MAX_CLOSE_SECONDS`; idempotent."""
        self.stop()
        if self._loop is None:
            return True
        ended = asyncio.wrap_future(self._ended)
        await asyncio.wait((ended,), timeout=MAX_CLOSE_SECONDS)
        return ended.done()

    # ---- of the caller ----

    def _submit(self, work: Callable[[], Awaitable[T]]) -> "Future[T]":
        self._check_usable()
        if self._loop is None:
            self._loop = self._start()
        future: Future[T] = Future()
        self._call_in_thread(self._start_call, work, future)
        return future

    def _check_usable(self) -> None:
        if self._ending:
            raise ExtensionError(f"the extension {self.label} was ended")
        if self.is_stuck:
            raise ExtensionError(f"the extension {self.label} is stuck: a call that was given up still blocks it")

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        try:
            threading.Thread(target=self._run_thread, args=(loop,), name=f"extension {self.label}", daemon=True).start()
        except RuntimeError as error:  # the machine gives no more threads
            loop.close()
            raise ExtensionError(f"the extension {self.label} cannot be started: {error}") from None
        return loop

    def _get_result(self, answer: "asyncio.Future[T]") -> T:
        if answer.cancelled():
            self._check_usable()
            busy = f"the extension {self.label} is busy: it did not begin the call within {MAX_QUEUE_SECONDS:g} s"
            raise ExtensionError(busy)
        return answer.result()

    async def _close_stream(self, future: "Future[Any]", answer: "asyncio.Future[Any]") -> None:
        try:
            if not answer.done():
                self._request_cancel(future)
                await asyncio.wait((answer,), timeout=MAX_CLOSE_SECONDS)
        finally:
            self._abandon_call(future, answer)

    def _abandon_call(self, future: "Future[Any]", answer: "asyncio.Future[Any]") -> None:
        """Let go of a call that nobody waits for any more."""
        if not answer.done():
            self._request_cancel(future)
            answer.cancel()
        elif not answer.cancelled():
            answer.exception()  # it was seen, or gives way to what ended the wait

    def _request_cancel(self, future: "Future[Any]") -> None:
        if not future.cancel() and self._cancel_requested_at is None:
            self._cancel_requested_at = time.monotonic()
        self._call_in_thread(self._cancel_call, future)

    def _call_in_thread(self, function: Callable[..., object], *arguments: object) -> None:
        if self._loop is not None:
            _call_soon(self._loop, function, *arguments)

    # ---- in the thread ----

    def _run_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.set_default_executor(DaemonThreads())
        loop.set_exception_handler(_log_stray)
        while not self._ending:
            # A task of the extension's own that raises SystemExit ends the loop's run; it goes on.
            _run_suppressing(loop.run_forever)
        # A task that takes no cancellation keeps the thread: one that is let go unfinished goes on in whatever thread
        # collects it.
        cleaned = False
        while not cleaned:
            _run_suppressing(lambda: loop.run_until_complete(_clean_up()))
            cleaned = not asyncio.all_tasks(loop)
        loop.close()
        self._ended.set_result(None)

    def _start_call(self, work: Callable[[], Awaitable[T]], future: "Future[T]") -> None:
        if self._ending:
            future.cancel()
        elif future.set_running_or_notify_cancel():
            self._tasks[future] = asyncio.get_running_loop().create_task(self._run_call(work, future))

    async def _run_call(self, work: Callable[[], Awaitable[T]], future: "Future[T]") -> None:
        try:
            result = await work()
        except BaseException as error:  # noqa: BLE001
            # SystemExit of an extension too must end nothing but its own call.
            crossed = convert_error(error)
            if future in self._tasks and crossed is not error:
                _log(f"the extension {self.label} failed", error)
            future.set_exception(crossed)
        else:
            future.set_result(result)
        finally:
            self._tasks.pop(future, None)

    def _cancel_call(self, future: "Future[Any]") -> None:
        self._cancel_requested_at = None
        if (task := self._tasks.pop(future, None)) is not None:
            task.cancel()


def _call_soon(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: object) -> None:
    # A loop that is closed belongs to a thread or a service that ended; nobody is left to tell. In a context of its
    # own, since the caller's variables are none of the other's business.
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(function, *arguments, context=Context())


async def _clean_up() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=MAX_CLOSE_SECONDS)
    await asyncio.get_running_loop().shutdown_asyncgens()


def _run_suppressing(run: Callable[[], object]) -> None:
    with suppress(BaseException):
        run()


def _log_stray(_loop: asyncio.AbstractEventLoop, told: dict[str, Any]) -> None:
    """Log what a task that the extension left to itself raised."""
    error = told.get("exception")
    if isinstance(error, BaseException):
        _log("a task of an extension failed", error)


def _log(what: str, error: BaseException) -> None:
    # Made before the log's lock is taken, since the text of an exception is anybody's code, which may block.
    places = traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__)).format()
    _logger.warning("%s\n%s%s", what, "".join(places), describe_error(error))


P = ParamSpec("P")

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
