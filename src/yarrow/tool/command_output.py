"""Output of a shell command: bounded capture, and notes about its sandbox and processes."""

import asyncio
import codecs
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from yarrow.policy.command_execution import Command, Exit
from yarrow.policy.sandbox.failure_causes import FinishedCommand, explain_failure
from yarrow.policy.sandbox.files_moved_out import describe_moved
from yarrow.policy.sandbox.git_config_copies import EXECUTES_REASON
from yarrow.policy.sandbox.mounts import DEV_NULL
from yarrow.policy.sandbox.protected_paths import protection_gaps
from yarrow.policy.sandbox.quarantine import QuarantineEntry, describe_entries
from yarrow.policy.sandbox.sandboxed_command import SandboxedCommand
from yarrow.policy.temp_dir import create_output_file
from yarrow.tool.paths import format_path
from yarrow.tool.result_limits import (
    MAX_PROGRESS_BYTES,
    MAX_RESULT_BYTES,
    MAX_RESULT_LINES,
    decode_output,
    take_first_bytes,
    take_last_bytes,
)

HEAD_BYTES = 16_384
HEAD_LINES = 500
TAIL_BYTES = MAX_RESULT_BYTES - HEAD_BYTES - 1_024
TAIL_LINES = MAX_RESULT_LINES - HEAD_LINES - 1
"""Sizes of the start and end shown of output over the limits; the note between them has at most 1 KiB."""
MAX_FILE_BYTES = 67_108_864
"""Maximum bytes of output written to the file, from the start; 64 MiB."""
DELTAS_PER_SECOND = 20
DELTA_NOTE_BYTES = 64
"""Bytes reserved in a delta for the note that some output was not streamed."""


class OutputCapture:
    """Captures the output of a command in bounded memory."""

    def __init__(self) -> None:
        self._head = b""
        self._tail = bytearray()
        self._bytes = 0
        self._lines = 0
        self._file: _OutputFile | None = None

    def add(self, data: bytes) -> None:
        """Add a piece. Beyond the limits of a result, a file gets all output; only head and tail are kept here."""
        self._bytes += len(data)
        self._lines += data.count(b"\n")
        self._tail += data
        if self._file is not None:
            self._file.write(data)
        elif self._bytes > MAX_RESULT_BYTES or self._lines > MAX_RESULT_LINES:
            self._file = _OutputFile()
            self._file.write(self._tail)
            self._head = _take_first_lines(bytes(self._tail[:HEAD_BYTES]), HEAD_LINES)
            del self._tail[: len(self._head)]
        if self._file is not None and len(self._tail) > 2 * TAIL_BYTES:  # rarely, so that little is moved
            del self._tail[:-TAIL_BYTES]

    def text(self) -> str:
        """Return the output without its final line feed; if it exceeds the limits, its head and tail with a note."""
        if self._file is None:
            return decode_output(bytes(self._tail)).removesuffix("\n")
        tail = bytes(self._tail[-TAIL_BYTES:])
        if len(self._tail) >= TAIL_BYTES:  # the first line may be incomplete
            tail = tail[tail.find(b"\n", 0, -1) + 1 :]
        last_end = tail.endswith(b"\n")
        tail = b"\n".join(tail.removesuffix(b"\n").split(b"\n")[-TAIL_LINES:])
        hidden = self._bytes - len(self._head) - len(tail) - last_end
        shown_head = take_first_bytes(decode_output(self._head).removesuffix("\ufffd"), HEAD_BYTES).removesuffix("\n")
        shown_tail = take_last_bytes(decode_output(tail).lstrip("\ufffd"), TAIL_BYTES)
        location = self._file.describe_location()
        note = f"{hidden:,} of {self._bytes:,} bytes not shown ({self._lines:,} lines in total); {location}"
        return f"{shown_head}\n[... {note} ...]\n{shown_tail}"

    def close(self) -> None:
        """Close the file without deleting it."""
        if self._file is not None:
            self._file.close()


class _OutputFile:
    """File with the output, or its first `MAX_FILE_BYTES`. A write error only truncates it."""

    def __init__(self) -> None:
        descriptor, self._path = create_output_file()
        self._file = open(descriptor, "wb", buffering=0)  # noqa: SIM115  (closed by close())
        self._written = 0
        self._given = 0
        self._problem = ""

    def write(self, data: bytes | bytearray) -> None:
        self._given += len(data)
        data = data[: MAX_FILE_BYTES - self._written]
        try:
            while data and not self._problem:
                count = self._file.write(data)
                self._written += count
                data = data[count:]
        except OSError as error:
            self._problem = f" ({error.strerror})"

    def describe_location(self) -> str:
        """Describe where the output is and how much of it."""
        if self._written < self._given:
            return f"the first {self._written:,} bytes are in {self._path}{self._problem}"
        return f"full output: {self._path} (open it with read or grep)"

    def close(self) -> None:
        self._file.close()


class DeltaThrottle:
    """Joins pieces of output into at most `DELTAS_PER_SECOND` readable deltas of at most `MAX_PROGRESS_BYTES` each."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._due = 0.0
        self._pending = bytearray()
        self._dropped = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, data: bytes) -> str:
        """Add a piece and return the text to show now; empty if the previous delta is too recent.

        If more is pending than fits, only the end is kept, with a note.
        """
        self._pending += data
        excess = len(self._pending) - MAX_PROGRESS_BYTES
        if excess > 0:
            del self._pending[:excess]
            self._dropped += excess
        if not self._pending or self._clock() < self._due:
            return ""
        self._due = self._clock() + 1 / DELTAS_PER_SECOND
        return self._take(final=False)

    def flush(self) -> str:
        """Return the text not shown yet."""
        return self._take(final=True)

    def _take(self, *, final: bool) -> str:
        data = bytes(self._pending)
        self._pending.clear()
        if not self._dropped:
            return self._decoder.decode(data, final).replace("\0", "\u2400")
        note = f"[... {self._dropped:,} bytes ...]\n"
        self._dropped = 0
        self._decoder.reset()
        text = self._decoder.decode(data, final).lstrip("\ufffd").replace("\0", "\u2400")
        return note + take_last_bytes(text, MAX_PROGRESS_BYTES - DELTA_NOTE_BYTES)


def _take_first_lines(data: bytes, count: int) -> bytes:
    """Return at most `count` lines from the start; complete lines if there are any."""
    lines = data.split(b"\n", count)[:count]
    if len(lines) == count:
        return b"\n".join(lines) + b"\n"
    return data[: data.rfind(b"\n") + 1] or data


PROCESSES_ENDED = "background processes were killed when this command ended; start a server and use it in one call"
OUTSIDE_HINT = "To run it outside the sandbox, repeat the call with outside: true and a reason; the user is asked."
LOCAL_CHANGES = r"\b(?:local|unstaged|uncommitted) changes\b"
"""Words in git's message when an unnamed file differs from the index."""
STRICT_HINT = "Commands cannot leave the strict sandbox: ask the user to run it."


async def make_notes(boxed: SandboxedCommand | None, command: Command, output: str, *, end: Exit) -> str:
    """Return the notes on a finished command, one per line; the hint about running outside the sandbox comes last."""
    told: list[str] = []
    if boxed is not None:
        told = await asyncio.to_thread(_make_sandbox_notes, boxed, command, output, end=end)
    if end.left_processes or (boxed is not None and boxed.left_processes()):
        told.insert(0, PROCESSES_ENDED)
    return "".join(f"\n[{note}]" for note in told)


def _make_sandbox_notes(boxed: SandboxedCommand, command: Command, output: str, *, end: Exit) -> list[str]:
    """Return notes on sandbox effects that would otherwise surprise a model."""
    named = partial(format_path, cwd=command.cwd)
    notes: list[str] = []
    if taken := boxed.quarantine_leftovers():
        notes.append(describe_entries(taken, named))
    is_git = "git" in command.argv[-1]
    closed = _closed(boxed.masked, output, named, is_git=is_git)
    if closed and is_git:
        left_out = " ".join(f"':(exclude){name}'" for name in closed)
        notes.append(
            f"{', '.join(closed)}: not accessible to commands, so git may show it as changed and cannot diff or add "
            f"it; commits leave it unchanged. Exclude it: git add -A -- . {left_out}"
        )
    if moved := describe_moved(boxed.moved, named):
        notes.append(moved)
    if stray := boxed.home_changes.notice():
        notes.append(stray)
    notes += protection_gaps(boxed.restrictions.spec.writable)
    if boxed.was_emptied:
        notes.append("the home directory, /tmp and /dev/shm were too large and were emptied before this command")
    ran = FinishedCommand(command.argv[-1], output, command.cwd, failed=end.code != 0)
    why = explain_failure(ran, boxed.restrictions)
    if closed and is_git:
        why = f"{', '.join(closed)} is not accessible to commands" if ran.failed else ""
    if why := why or _describe_refused_settings(taken, named):
        way = STRICT_HINT if boxed.restrictions.spec.level == "strict" else OUTSIDE_HINT
        notes.append(f"sandbox: {why}. {way}")
    return notes


def _closed(covered: Mapping[Path, Path], output: str, named: Callable[[Path], str], *, is_git: bool) -> list[str]:
    """Return the masked files that an output names, or those that git means when it rejects local changes."""
    closed = [name for path in covered if (name := named(path)) in output]
    if closed or not is_git or re.search(LOCAL_CHANGES, output) is None:
        return closed
    return [named(path) for path, cover in covered.items() if cover != DEV_NULL]


def _describe_refused_settings(taken: Sequence[QuarantineEntry], named: Callable[[Path], str]) -> str:
    """Return which git configuration a command could not change, as the end of a sentence; empty if none."""
    return next((f"{named(entry.path)} was not changed" for entry in taken if entry.reason == EXECUTES_REASON), "")
