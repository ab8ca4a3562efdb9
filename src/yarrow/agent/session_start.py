"""Takes up a session for one piece of work, and leaves it free again when that is not accepted."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from yarrow.agent.exclusive_task import ExclusiveTask
from yarrow.agent.session_writer import SessionWriter
from yarrow.session.redaction import Redactor


@asynccontextmanager
async def acquire_session(seat: ExclusiveTask, desk: SessionWriter, keys: Redactor) -> AsyncGenerator[None]:
    """Become the session's only writer, for a seat that is taken; `keys` are kept out of all that is written.

    Unless what is inside is done, file and seat are given back: what was not accepted, for a failure or for a service
    that ends, keeps no session busy. Raises `Precondition` (LOCKED) and `StorageError`.
    """
    async with AsyncExitStack() as undo:
        undo.push_async_callback(desk.unlock)
        undo.callback(seat.release)
        await seat.settled()
        desk.redactor = keys
        await desk.lock()
        yield
        undo.pop_all()
