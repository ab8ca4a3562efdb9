"""Notes below a command's output: what its sandbox did, and what became of the processes it left."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from yarrow.policy.process import Command, Exit
from yarrow.policy.sandbox.failure_causes import FinishedCommand, explain_failure
from yarrow.policy.sandbox.git_config_copies import EXECUTES_REASON
from yarrow.policy.sandbox.masks import DEV_NULL
from yarrow.policy.sandbox.protected_paths import protection_gaps
from yarrow.policy.sandbox.quarantine import QuarantineEntry, describe_entries
from yarrow.policy.sandbox.sandboxed_command import SandboxedCommand
from yarrow.tool.paths import format_path

PROCESSES_ENDED = "background processes were ended with this command; start a server and use it in one call"
OUTSIDE_HINT = "To run it outside the sandbox, repeat the call with outside: true and a reason; the user is asked."
LOCAL_CHANGES = r"\b(?:local|unstaged|uncommitted) changes\b"
"""Words of git when a file differs from its index and it names none."""
STRICT_HINT = "The strict sandbox cannot be left: ask the user to run the command."


async def make_notes(boxed: SandboxedCommand | None, command: Command, output: str, *, end: Exit) -> str:
    """Return the notes on a command that ended, each on a line of its own; those of a way out come last."""
    told: list[str] = []
    if boxed is not None:
        told = await asyncio.to_thread(_make_sandbox_notes, boxed, command, output, end=end)
    if end.left_processes or (boxed is not None and boxed.left_processes()):
        told.insert(0, PROCESSES_ENDED)
    return "".join(f"\n[{note}]" for note in told)


def _make_sandbox_notes(boxed: SandboxedCommand, command: Command, output: str, *, end: Exit) -> list[str]:
    """Return notes of what the sandbox did that a model would wonder at."""
    named = partial(format_path, cwd=command.cwd)
    notes: list[str] = []
    if taken := boxed.take_away():
        notes.append(describe_entries(taken, named))
    is_git = "git" in command.argv[-1]
    closed = _closed(boxed.covered, output, named, is_git=is_git)
    if closed and is_git:
        left_out = " ".join(f"':(exclude){name}'" for name in closed)
        notes.append(
            f"{', '.join(closed)}: closed to commands, so to git it may look changed here, and cannot be compared or "
            f"added; commits keep it as it is. Leave it out, as in: git add -A -- . {left_out}"
        )
    if stray := boxed.strays.note():
        notes.append(stray)
    notes += protection_gaps(boxed.limits.box.writable)
    if boxed.was_emptied:
        notes.append("before this command /tmp and the home held too much, and were emptied")
    ran = FinishedCommand(command.argv[-1], output, command.cwd, failed=end.code != 0)
    why = explain_failure(ran, boxed.limits)
    if closed and is_git:
        why = f"{', '.join(closed)} is closed to commands" if ran.failed else ""
    if why := why or _describe_refused_settings(taken, named):
        way = STRICT_HINT if boxed.limits.box.level == "strict" else OUTSIDE_HINT
        notes.append(f"sandbox: {why}. {way}")
    return notes


def _closed(covered: Mapping[Path, Path], output: str, named: Callable[[Path], str], *, is_git: bool) -> list[str]:
    """Return the hidden files that an output names, or that git means when it refuses because of local changes."""
    closed = [name for path in covered if (name := named(path)) in output]
    if closed or not is_git or re.search(LOCAL_CHANGES, output) is None:
        return closed
    return [named(path) for path, cover in covered.items() if cover != DEV_NULL]


def _describe_refused_settings(taken: Sequence[QuarantineEntry], named: Callable[[Path], str]) -> str:
    """Return which configuration of git a command could not change, as the end of a sentence; empty when none."""
    return next((f"{named(entry.path)} was not changed" for entry in taken if entry.reason == EXECUTES_REASON), "")
