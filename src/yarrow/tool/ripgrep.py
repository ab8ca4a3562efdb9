"""Search with ripgrep if it is installed, configured to match our own walk and search exactly."""

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import aclosing, asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct, field

from yarrow.platform import system
from yarrow.platform.real_path import real_path
from yarrow.platform.search_path import find_program
from yarrow.policy.command_execution import Command, Exit, run
from yarrow.policy.environment import search_environment
from yarrow.policy.process_tree import has_own_proc
from yarrow.policy.symlink_free_open import open_beneath
from yarrow.policy.workspace import Workspace
from yarrow.tool.gitignore_walk import find_unusable_ignore_files, has_unusable_ignore_file
from yarrow.tool.search_hits import (
    MAX_SEARCH_SECONDS,
    MAX_SEARCHED_BYTES,
    FileHits,
    SearchQuery,
    count_characters,
    decode_line,
)
from yarrow.tool.worker_thread import run_in_thread

MAX_MEMORY_KIB = 1_048_576
"""Maximum address space of ripgrep in KiB, 1 GiB: an ignore file may be a symlink to an endless device."""
MAX_CPU_SECONDS = 360
"""Maximum processor time of ripgrep in seconds: 12 threads, its maximum, times `MAX_SEARCH_SECONDS`."""
BOUNDED_EXEC = f'exec 2>/dev/null; ulimit -c 0; ulimit -v {MAX_MEMORY_KIB}; ulimit -t {MAX_CPU_SECONDS}; exec "$@"'
"""The shell sets the limits and then becomes ripgrep, so that they hold even if it outlives us.

Limits that cannot be set are skipped. Messages are discarded, because they would mix with results.
"""

STALL_SECONDS = 0.5
"""Seconds after which ripgrep is checked for being blocked on a FIFO."""
UNBLOCK_SECONDS = 0.05
"""Seconds between two attempts to unblock it."""

COMMON_OPTIONS = (
    *("--no-config", "--no-messages", "--no-mmap", "--color=never", "--hidden", "--glob=!.git"),
    *("--no-require-git", "--no-ignore-global", "--no-ignore-exclude"),
)


class RipgrepError(Exception):
    """Ripgrep failed. If `timed_out` is false, the search must be repeated in this process."""

    def __init__(self, *, timed_out: bool) -> None:
        super().__init__("ripgrep took too long" if timed_out else "ripgrep failed")
        self.timed_out = timed_out


class _RipgrepText(Struct, frozen=True):
    """Path or line: as text, or in base64 if it is not UTF-8."""

    text: str = ""
    encoded: bytes | None = field(default=None, name="bytes")

    def raw(self) -> bytes:
        return self.text.encode() if self.encoded is None else self.encoded


class _RipgrepMatch(Struct, frozen=True):
    start: int = 0
    """Index of the match in the bytes of the line."""


class _RipgrepData(Struct, frozen=True):
    path: _RipgrepText = _RipgrepText()
    lines: _RipgrepText = _RipgrepText()
    line_number: int | None = None
    binary_offset: int | None = None
    submatches: tuple[_RipgrepMatch, ...] = ()


class _RipgrepMessage(Struct, frozen=True):
    type: Literal["begin", "match", "context", "end", "summary"]
    data: _RipgrepData


def find_ripgrep(workspace: Workspace) -> str | None:
    """Return the path of ripgrep; None if it is not found, cannot be limited, or is in the workspace."""
    if not system.ULIMIT_SHELL:
        return None
    found = find_program("rg", os.environ)
    if found is None:
        return None
    real = Path(real_path(found))
    return None if any(real.is_relative_to(root) for root in workspace.writable) else found


async def list_files_with_ripgrep(program: str, directory: Path, *, globs: tuple[str, ...] = ()) -> AsyncGenerator[str]:
    """Yield the relative paths of files below a directory, limited to `globs`, unordered. Raises RipgrepError."""
    options = (*COMMON_OPTIONS, *_make_glob_options(globs), "--files", "--null", "./")
    async with aclosing(_read_records(program, directory, options)) as records:
        async for record in records:
            yield os.fsdecode(record.removeprefix(b"./"))


async def find_hits_with_ripgrep(
    program: str, target: Path, query: SearchQuery, *, globs: tuple[str, ...]
) -> AsyncGenerator[FileHits]:
    """Yield the hits in a file or below a directory, in order, limited to `globs`. Raises RipgrepError."""
    directory, name = (target, "./") if target.is_dir() else (target.parent, f"./{target.name}")
    options = [
        *COMMON_OPTIONS,
        f"--max-filesize={MAX_SEARCHED_BYTES}",
        "--json",
        "--binary",
        "--crlf",
        "--line-buffered",
        "--sort=path",
        f"--context={query.context}",
    ]
    options += ["--fixed-strings"] * query.literal + ["--ignore-case"] * query.ignore_case
    options += _make_glob_options(globs)
    hits = FileHits("", query.limit)
    decoder = msgspec.json.Decoder(_RipgrepMessage)
    async with aclosing(_read_records(program, directory, (*options, "-e", query.pattern, "--", name))) as records:
        async for record in records:
            message = decoder.decode(record)
            data = message.data
            match message.type:
                case "begin":
                    hits = FileHits(os.fsdecode(data.path.raw().removeprefix(b"./")), query.limit)
                case "match" | "context":
                    is_match, raw = message.type == "match", data.lines.raw()
                    at = count_characters(raw, data.submatches[0].start) if data.submatches else 0
                    hits.add(data.line_number or 0, decode_line(raw), is_match=is_match, at=at)
                case "end":
                    hits.is_binary = data.binary_offset is not None
                    yield hits
                case "summary":
                    return


def _make_glob_options(globs: tuple[str, ...]) -> list[str]:
    return [f"--type-add=wanted:{glob}" for glob in globs] + ["--type=wanted"] * bool(globs)


async def _read_records(program: str, directory: Path, options: Sequence[str]) -> AsyncGenerator[bytes]:
    """Yield the output of ripgrep, split at line feeds or, for paths, at NULs. Raises RipgrepError."""
    if has_unusable_ignore_file(directory):
        raise RipgrepError(timed_out=False)  # it would read a FIFO or a device forever
    separator = b"\0" if "--null" in options else b"\n"
    bounded = (system.ULIMIT_SHELL, "-c", BOUNDED_EXEC, "sh", program, *options)
    unfinished: list[bytes] = []
    has_any = False
    with _hold_directory(directory) as held:
        command = Command(bounded, held, search_environment(os.environ), MAX_SEARCH_SECONDS)
        async with _unblock_fifos(directory), aclosing(run(command)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Exit):
                    # 2 also means that some files were unreadable; any other code means that it crashed.
                    if piece.timed_out or piece.code not in ({0, 1, 2} if has_any else {0, 1}):
                        raise RipgrepError(timed_out=piece.timed_out)
                    return
                first, *others = piece.split(separator)
                unfinished.append(first)
                for other in others:
                    record = b"".join(unfinished)
                    unfinished = [other]
                    if separator == b"\n" and not record.startswith(b"{"):
                        raise RipgrepError(timed_out=False)  # not the output of ripgrep
                    has_any = True
                    yield record


@contextmanager
def _hold_directory(directory: Path) -> Generator[Path]:
    """Hold a real directory open; yield a path by which a child starts in it even if the directory is replaced."""
    try:
        descriptor = open_beneath(Path(directory.anchor), directory, os.O_RDONLY | system.DIRECTORY)
    except OSError as error:
        raise RipgrepError(timed_out=False) from error
    try:
        yield Path(f"/proc/self/fd/{descriptor}") if has_own_proc() else directory
    finally:
        os.close(descriptor)


@asynccontextmanager
async def _unblock_fifos(directory: Path) -> AsyncGenerator[None]:
    """Unblock a ripgrep that waits for a writer on a FIFO, which an ignore file may be."""
    releasing = asyncio.create_task(_unblock_after_stall(directory))
    try:
        yield
    finally:
        releasing.cancel()
        await asyncio.wait((releasing,))


async def _unblock_after_stall(directory: Path) -> None:
    await asyncio.sleep(STALL_SECONDS)
    await run_in_thread(partial(_open_fifos, directory))


def _open_fifos(directory: Path, stop: threading.Event) -> None:
    """Find ignore files that are FIFOs; repeatedly open each for writing, and write nothing."""
    paths = [path for path in find_unusable_ignore_files(directory, stop) if Path(path).is_fifo()]
    while paths and not stop.is_set():
        for path in paths:
            with suppress(OSError):  # no reader
                os.close(os.open(path, os.O_WRONLY | system.NONBLOCK | system.BASE_FLAGS))
        stop.wait(UNBLOCK_SECONDS)
