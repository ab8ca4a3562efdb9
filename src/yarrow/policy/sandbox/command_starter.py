"""Thread that starts all sandboxed commands: what binds it binds them from their first instruction."""

import os
import stat
import threading
from concurrent.futures import BrokenExecutor, Executor, ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path

from msgspec import Struct

from yarrow.platform import system


class CommandStarter(Struct, frozen=True):
    """Where commands are started."""

    thread: Executor | None
    """None where no thread needs to be bound."""
    has_entered: bool
    """Whether the thread is in the control group."""
    is_scoped: bool
    """Whether abstract sockets of others are out of reach."""


@lru_cache(maxsize=4)
def get_starter(tasks: Path | None, launcher: str) -> CommandStarter:
    """Return the thread for a file that takes threads into a control group, None for no group.

    A thread lives as long as the process, since the kernel ends a command with the thread that started it.
    """
    bound: list[bool] = []
    thread = ThreadPoolExecutor(1, "yarrow-start", initializer=_bind, initargs=(tasks, launcher, bound))
    try:
        thread.submit(int).result()
    except BrokenExecutor:  # it could not enter the group
        return (
            get_starter(None, launcher)
            if tasks is not None
            else CommandStarter(None, has_entered=False, is_scoped=False)
        )
    if tasks is None and not bound[0]:
        thread.shutdown(wait=False)
        return CommandStarter(None, has_entered=False, is_scoped=False)
    return CommandStarter(thread, has_entered=tasks is not None, is_scoped=bound[0])


def _bind(tasks: Path | None, launcher: str, bound: list[bool]) -> None:
    if tasks is not None:
        tasks.write_text(str(threading.get_native_id()))
    bound.append(not _gains_rights(launcher) and system.scope_abstract_sockets())


def _gains_rights(program: str) -> bool:
    """Whether a program runs with the rights of its owner, which a thread bound by Landlock cannot give it."""
    try:
        return bool(os.stat(program).st_mode & (stat.S_ISUID | stat.S_ISGID))  # noqa: PTH116 (its mode alone)
    except OSError:
        return True
