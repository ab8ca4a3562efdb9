"""Host of extension code: its threads, timeouts, failures and errors."""

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

from yarrow.errors import Code, ConfigError, ProviderError, YarrowError

MAX_REASON_CHARACTERS = 500
"""Maximum characters of an exception's text; the rest is dropped."""


class ExtensionError(YarrowError):
    """A function of an extension failed, timed out or returned an invalid value, or its thread does not respond."""

    code = Code.INTERNAL


def convert_error(error: BaseException) -> YarrowError:
    """Return the error to raise for an extension's error; runs no extension code.

    `ProviderError`, `ConfigError` and `ExtensionError` pass unchanged, because they are meant for the caller.
    """
    if type(error) in (ExtensionError, ProviderError, ConfigError) and isinstance(error, YarrowError):
        kinds: tuple[type, type] = (type(error.code), type(error.message))
        if kinds == (Code, str):
            return error
    return ExtensionError(describe_error(error))


def describe_error(error: BaseException) -> str:
    """Return the exception's name and text, shortened; works even if its text cannot be created."""
    try:
        text = str(error)
    except BaseException:  # noqa: BLE001 (`__str__` is code of the extension, which may even raise SystemExit)
        text = "(error text unavailable)"
    return f"{type(error).__name__}: {text}".rstrip(": ")[:MAX_REASON_CHARACTERS]


T = TypeVar("T")

MAX_REACTION_SECONDS = 1.0
"""Seconds for the thread to react to a cancelled call; after that, further calls fail immediately."""
MAX_QUEUE_SECONDS = 10.0
"""Seconds that a call waits for a busy thread before it fails."""
MAX_CLOSE_SECONDS = 0.5
"""Seconds that a caller waits for an extension to clean up: for a closed stream, or for the thread at shutdown."""
MAX_BUFFER_ITEMS = 64
"""Maximum items of a stream in transit to the caller; the extension waits if there are more."""

_logger = logging.getLogger("yarrow.extension")


class ExtensionHost:
    """One extension's thread with its own event loop, started by the first call.

    Everything that an extension raises arrives as a `YarrowError` (`yarrow.extension.extension_host`). A cancelled
    caller returns at once; the call is cancelled in the thread as soon as it responds.
    """

    def __init__(self, label: str) -> None:
        self.label = label
        """Display name of the extension."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: Future[None] = Future()
        self._ending = False
        self._cancel_requested_at: float | None = None
        """Monotonic time since which the thread has not responded to a cancellation; None if it has."""
        self._tasks: dict[Future[Any], asyncio.Task[None]] = {}
        """Running calls that are not cancelled; accessed only in the thread."""

    @property
    def is_stuck(self) -> bool:
        """True if the thread has not responded to a cancellation in time; False again once it responds."""
        return (
            self._cancel_requested_at is not None
            and time.monotonic() - self._cancel_requested_at >= MAX_REACTION_SECONDS
        )

    async def call(self, work: Callable[[], Awaitable[T]], seconds: float | None = None) -> T:
        """Run `work` in the thread and return its result. Raises `YarrowError`, also on a timeout of `seconds`."""
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
        """Yield what the generator returned by `start` yields in the thread, except None. Raises `YarrowError`.

        Close it (`contextlib.aclosing`): this also closes the generator, and waits for it at most `MAX_CLOSE_SECONDS`.
        """
        here = asyncio.get_running_loop()
        items: asyncio.Queue[T | None] = asyncio.Queue()
        room = asyncio.Semaphore(MAX_BUFFER_ITEMS)

        async def pump() -> None:
            # One task for the generator's whole life, since its open contexts may be bound to that task.
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
        """Run `work` in the thread and block until it is done. Raises `YarrowError`, also on a timeout of `seconds`.

        Work that timed out continues until the thread ends.
        """
        future = self._submit(work)
        try:
            return future.result(seconds)
        except TimeoutError:
            raise ExtensionError(f"it took more than {seconds:g} s") from None

    def stop(self) -> None:
        """Cancel running calls and end the thread when possible; later calls are rejected."""
        self._ending = True
        if self._loop is not None:
            self._call_in_thread(self._loop.stop)

    async def close(self) -> bool:
        """End the thread; return whether it ended within `MAX_CLOSE_SECONDS`. Idempotent."""
        self.stop()
        if self._loop is None:
            return True
        ended = asyncio.wrap_future(self._ended)
        await asyncio.wait((ended,), timeout=MAX_CLOSE_SECONDS)
        return ended.done()

    # ---- caller's side ----

    def _submit(self, work: Callable[[], Awaitable[T]]) -> "Future[T]":
        self._check_usable()
        if self._loop is None:
            self._loop = self._start()
        future: Future[T] = Future()
        self._call_in_thread(self._start_call, work, future)
        return future

    def _check_usable(self) -> None:
        if self._ending:
            raise ExtensionError(f"the extension {self.label} was stopped")
        if self.is_stuck:
            raise ExtensionError(f"the extension {self.label} is stuck: a timed-out call still blocks it")

    def _start(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        try:
            threading.Thread(target=self._run_thread, args=(loop,), name=f"extension {self.label}", daemon=True).start()
        except RuntimeError as error:  # the system cannot start another thread
            loop.close()
            raise ExtensionError(f"the extension {self.label} cannot be started: {error}") from None
        return loop

    def _get_result(self, answer: "asyncio.Future[T]") -> T:
        if answer.cancelled():
            self._check_usable()
            busy = f"the extension {self.label} is busy: it did not start the call within {MAX_QUEUE_SECONDS:g} s"
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
        """Abandon a call whose caller no longer waits."""
        if not answer.done():
            self._request_cancel(future)
            answer.cancel()
        elif not answer.cancelled():
            answer.exception()  # the caller saw it, or the error that ended the wait takes precedence

    def _request_cancel(self, future: "Future[Any]") -> None:
        if not future.cancel() and self._cancel_requested_at is None:
            self._cancel_requested_at = time.monotonic()
        self._call_in_thread(self._cancel_call, future)

    def _call_in_thread(self, function: Callable[..., object], *arguments: object) -> None:
        if self._loop is not None:
            _call_soon(self._loop, function, *arguments)

    # ---- extension thread ----

    def _run_thread(self, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.set_event_loop(loop)
        loop.set_default_executor(DaemonThreads())
        loop.set_exception_handler(_log_stray)
        while not self._ending:
            # A task of the extension that raises SystemExit stops the loop; run it again.
            _run_suppressing(loop.run_forever)
        # A task that ignores cancellation keeps the thread alive: an unfinished task would otherwise resume in the
        # thread that happens to garbage-collect it.
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
        except BaseException as error:  # noqa: BLE001 (even SystemExit must reach the caller, not end the thread)
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
    # A closed loop belongs to a thread or service that has ended, so nothing needs to be notified. Runs in an empty
    # context so that the other thread does not see the caller's context variables.
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
    """Log an exception from a background task of the extension."""
    error = told.get("exception")
    if isinstance(error, BaseException):
        _log("a task of an extension failed", error)


def _log(what: str, error: BaseException) -> None:
    # Formatted before the logging lock is acquired: the exception's text may run extension code, which may block.
    places = traceback.StackSummary.extract(traceback.walk_tb(error.__traceback__)).format()
    _logger.warning("%s\n%s%s", what, "".join(places), describe_error(error))


P = ParamSpec("P")

MAX_THREADS = 32
"""Maximum concurrent worker threads of one extension; further work waits."""


class DaemonThreads(ThreadPoolExecutor):
    """Runs each piece of work in a daemon thread; the process does not wait for these threads at exit.

    It is a `ThreadPoolExecutor` only because a loop accepts no other class as its default executor.
    """

    def __init__(self) -> None:
        super().__init__()
        self._room = BoundedSemaphore(MAX_THREADS)

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Start the work and return the future for its result."""
        future: Future[T] = Future()

        def work() -> None:
            with self._room:
                if not future.set_running_or_notify_cancel():
                    return
                try:
                    result = fn(*args, **kwargs)
                except BaseException as error:  # noqa: BLE001 (it is raised where the future is awaited)
                    future.set_exception(error)
                else:
                    future.set_result(result)

        Thread(target=work, name="extension work", daemon=True).start()
        return future

    @override
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the threads running."""
