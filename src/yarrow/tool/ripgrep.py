"""Searches with ripgrep where it is installed, set to see exactly what our own walk and search see."""

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
from yarrow.platform.search_path import find_program
from yarrow.policy.environment import search_environment
from yarrow.policy.openat import open_beneath
from yarrow.policy.process import Command, Exit, run
from yarrow.policy.process_tree import has_own_proc
from yarrow.policy.workspace import Workspace
from yarrow.tool.directory_walk import find_unusable_ignore_files, has_unusable_ignore_file
from yarrow.tool.hits import MAX_SEARCH_SECONDS, MAX_SEARCHED_BYTES, FileHits, SearchQuery, decode_line
from yarrow.tool.worker_thread import run_in_thread

MAX_MEMORY_KIB = 1_048_576
"""The most address space ripgrep is given, 1 GiB: an ignore file may be a link to a device that never ends."""
MAX_CPU_SECONDS = 360
"""The most processor time it is given: what its 12 threads, the most it starts, can use in `MAX_SEARCH_SECONDS`."""
BOUNDED_EXEC = f'exec 2>/dev/null; ulimit -c 0; ulimit -v {MAX_MEMORY_KIB}; ulimit -t {MAX_CPU_SECONDS}; exec "$@"'
"""The shell sets the bounds, so that they hold for a ripgrep that outlives us too, and becomes ripgrep. Where
one of them cannot be set it is done without. Messages go nowhere, for they would mix with results."""

STALL_SECONDS = 0.5
"""After that time it is looked whether ripgrep waits for a FIFO, ..."""
UNBLOCK_SECONDS = 0.05
"""... and how far apart it is let go on then."""

COMMON_OPTIONS = (
    *("--no-config", "--no-messages", "--no-mmap", "--color=never", "--hidden", "--glob=!.git"),
    *("--no-require-git", "--no-ignore-global", "--no-ignore-exclude"),
)


class RipgrepError(Exception):
    """Ripgrep did not do it; `timed_out` says that it took too long, else our own search has to."""

    def __init__(self, *, timed_out: bool) -> None:
        super().__init__("ripgrep took too long" if timed_out else "ripgrep refused")
        self.timed_out = timed_out


class _RipgrepText(Struct, frozen=True):
    """A path or a line: as text, or in base64 when it is not UTF-8."""

    text: str = ""
    encoded: bytes | None = field(default=None, name="bytes")

    def raw(self) -> bytes:
        return self.text.encode() if self.encoded is None else self.encoded


class _RipgrepData(Struct, frozen=True):
    path: _RipgrepText = _RipgrepText()
    lines: _RipgrepText = _RipgrepText()
    line_number: int | None = None
    binary_offset: int | None = None


class _RipgrepMessage(Struct, frozen=True):
    type: Literal["begin", "match", "context", "end", "summary"]
    data: _RipgrepData


def find_ripgrep(workspace: Workspace) -> str | None:
    """Return the path of ripgrep, None when it is not on PATH or nothing can bound it.

    One inside the workspace is not run.
    """
    if not system.ULIMIT_SHELL:
        return None
    found = find_program("rg", os.environ)
    if found is None:
        return None
    real = Path(os.path.realpath(found))
    return None if any(real.is_relative_to(root) for root in workspace.writable) else found


async def list_files_with_ripgrep(program: str, directory: Path, *, globs: tuple[str, ...] = ()) -> AsyncGenerator[str]:
    """Yield the files below a directory, of these names if any, by relative path, in no order. Raises RipgrepError."""
    options = (*COMMON_OPTIONS, *_make_glob_options(globs), "--files", "--null", "./")
    async with aclosing(_read_records(program, directory, options)) as records:
        async for record in records:
            yield os.fsdecode(record.removeprefix(b"./"))


async def find_hits_with_ripgrep(
    program: str, target: Path, query: SearchQuery, *, globs: tuple[str, ...]
) -> AsyncGenerator[FileHits]:
    """Yield what is found in a file or below a directory, in order, among files of these names. Raises RipgrepError."""
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
                    is_match = message.type == "match"
                    hits.add(data.line_number or 0, decode_line(data.lines.raw()), is_match=is_match)
                case "end":
                    hits.is_binary = data.binary_offset is not None
                    yield hits
                case "summary":
                    return


def _make_glob_options(globs: tuple[str, ...]) -> list[str]:
    return [f"--type-add=wanted:{glob}" for glob in globs] + ["--type=wanted"] * bool(globs)


async def _read_records(program: str, directory: Path, options: Sequence[str]) -> AsyncGenerator[bytes]:
    """Yield what it prints, cut at line feeds or, for paths, at NULs. Raises RipgrepError when it failed."""
    if has_unusable_ignore_file(directory):
        raise RipgrepError(timed_out=False)  # it would read a FIFO or a device for ever
    separator = b"\0" if "--null" in options else b"\n"
    bounded = (system.ULIMIT_SHELL, "-c", BOUNDED_EXEC, "sh", program, *options)
    unfinished: list[bytes] = []
    has_any = False
    with _hold_directory(directory) as held:
        command = Command(bounded, held, search_environment(os.environ), MAX_SEARCH_SECONDS)
        async with _unblock_fifos(directory), aclosing(run(command)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Exit):
                    # 2 also tells of files it could not read; whatever else it is, it died on the way.
                    if piece.timed_out or piece.code not in ({0, 1, 2} if has_any else {0, 1}):
                        raise RipgrepError(timed_out=piece.timed_out)
                    return
                first, *others = piece.split(separator)
                unfinished.append(first)
                for other in others:
                    record = b"".join(unfinished)
                    unfinished = [other]
                    if separator == b"\n" and not record.startswith(b"{"):
                        raise RipgrepError(timed_out=False)  # nothing that ripgrep says
                    has_any = True
                    yield record


@contextmanager
def _hold_directory(directory: Path) -> Generator[Path]:
    """Hold a real directory open, and give the path by which a child starts in it, whatever its own becomes."""
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
    """Let a ripgrep go on that waits for somebody to write to a FIFO, which an ignore file may be."""
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
    """Find the ignore files that are FIFOs; open each to write, again and again, and write nothing."""
    paths = [path for path in find_unusable_ignore_files(directory, stop) if Path(path).is_fifo()]
    while paths and not stop.is_set():
        for path in paths:
            with suppress(OSError):  # nobody waits there
                os.close(os.open(path, os.O_WRONLY | system.NONBLOCK | system.BASE_FLAGS))
        stop.wait(UNBLOCK_SECONDS)
