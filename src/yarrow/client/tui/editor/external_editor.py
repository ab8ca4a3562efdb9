"""External editor: opens a text in the user's own editor, which uses the terminal meanwhile."""

import asyncio
import os
import shlex
import signal
from asyncio.subprocess import Process
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp

from yarrow.platform import system
from yarrow.platform.search_path import find_program

MAX_END_SECONDS = 1.0
"""Grace period in seconds for a terminated editor to restore the terminal, before it is killed."""


class EditorError(Exception):
    """The editor could not be run, or failed; the message says why and what to set."""


async def edit_text(text: str, environment: Mapping[str, str], terminal: int | None = None) -> str:
    """Return the text as edited by the user. Raises `EditorError`; the text is unchanged then.

    `terminal` is the descriptor that the editor draws on; None for that of this process.
    """
    named = environment.get("VISUAL") or environment.get("EDITOR") or system.DEFAULT_EDITOR
    descriptor, name = mkstemp(prefix="yarrow-", suffix=".md")
    path = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        # Split without a shell, so that nothing in a name is executed.
        program, *options = shlex.split(named)
        found = find_program(program, environment)
        if found is None:
            # Imported here because only an error needs it.
            import shutil

            is_planted = shutil.which(program, path=environment.get("PATH"))
            place = "is inside the workspace and is not run" if is_planted else "was not found"
            raise EditorError(f"the editor {program!r} {place}: set VISUAL or EDITOR")
        process = await asyncio.create_subprocess_exec(found, *options, name, stdout=terminal, stderr=terminal)
        try:
            code = await process.wait()
        finally:
            if process.returncode is None:
                await _terminate(process)
        if code:
            raise EditorError(f"{named} exited with code {code}; the text is unchanged")
        return path.read_text("utf-8", "replace").removesuffix("\n")
    except (OSError, ValueError) as error:
        raise EditorError(f"{named!r} cannot be run ({error}): set VISUAL or EDITOR") from None
    finally:
        with suppress(OSError):
            path.unlink()


async def _terminate(process: Process) -> None:
    """Terminate an editor and its descendants with the program; otherwise they keep reading from the terminal."""
    pids = [process.pid, *_find_descendants(process.pid)]
    _signal(pids, signal.SIGTERM)
    ended = asyncio.ensure_future(process.wait())
    late = asyncio.get_running_loop().call_later(MAX_END_SECONDS, _signal, pids, system.KILL_SIGNAL)
    while not ended.done():
        # Another cancellation does not speed this up: it takes at most a second.
        with suppress(asyncio.CancelledError):
            await asyncio.shield(ended)
    late.cancel()
    _signal(pids[1:], system.KILL_SIGNAL)


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for one in pids:
        with suppress(OSError):
            os.kill(one, number)


def _find_descendants(pid: int) -> list[int]:
    """Return the descendants of a process, where the system lists them."""
    try:
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [*children, *(one for child in children for one in _find_descendants(child))]
