"""The tool `read`: a page of a text file, an image, or the names in a directory."""

import io
import os
import stat
import threading
from collections.abc import AsyncIterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from yarrow.imaging.header import image_type
from yarrow.message import Image
from yarrow.policy.workspace import Refused
from yarrow.tool.access import Access
from yarrow.tool.base import Done, Progress, Result, Sieve, ToolContext, ToolFailed
from yarrow.tool.content import BOM, FALLBACK, SNIFF_BYTES, binary_kind, decode, is_utf16
from yarrow.tool.limits import RESULT_BYTES, RESULT_LINES, shown_size, without_half
from yarrow.tool.ls import LS_LIMIT, left_out_of, listing
from yarrow.tool.paths import locate, missing, os_problem
from yarrow.tool.threads import in_thread

CHUNK_BYTES = 1_048_576
"""How much is read at once to count lines."""
CONVERTED_BYTES = 67_108_864
"""The largest file of UTF-16 that is shown; 64 MiB."""
NOTEBOOK_SUFFIX = ".ipynb"
NOTEBOOK_BYTES = 67_108_864
"""Larger notebooks are shown as the text they are; 64 MiB."""


class ReadArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `read`; `offset` is the first line, counted from 1, `limit` how many."""

    path: str
    offset: int = 1
    limit: int = RESULT_LINES


class Read:
    """Reads a file."""

    name = "read"
    read_only = True
    arguments = ReadArguments
    access = Access.file()

    async def run(self, arguments: ReadArguments, context: ToolContext) -> AsyncIterator[Progress | Result]:
        """Yield the page, the image or the listing."""
        yield await in_thread(partial(_read, arguments, context))

    async def preview(self, arguments: ReadArguments, context: ToolContext) -> Result:
        """Say what would be read."""
        return Done(f"Would read {arguments.path} in {context.cwd}.")


class _Page(Struct):
    """Whole lines of a file, as bytes; `cut` is the length of the first line when even that did not fit."""

    data: bytes
    lines: int
    cut: int = 0


def _read(arguments: ReadArguments, context: ToolContext, stop: threading.Event) -> Result:
    path = locate(arguments.path, context.cwd)
    try:
        descriptor = context.workspace.open_read(path)
        if isinstance(descriptor, Refused):
            return ToolFailed(descriptor.text)
        return _opened(descriptor, arguments, stop, path=path, context=context)
    except FileNotFoundError:
        return ToolFailed(missing(path, arguments.path))
    except OSError as error:
        return ToolFailed(os_problem(error, arguments.path))


def _opened(
    descriptor: int, arguments: ReadArguments, stop: threading.Event, *, path: Path, context: ToolContext
) -> Result:
    with ExitStack() as closing:
        closing.callback(os.close, descriptor)
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            return Done(listing(descriptor, LS_LIMIT, left_out_of(path, context)))
        if not stat.S_ISREG(mode):
            return ToolFailed(f"{arguments.path} is not a regular file.")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return _contents(file, arguments, stop, sieve=context.sieve())


def _contents(file: BinaryIO, arguments: ReadArguments, stop: threading.Event, *, sieve: Sieve) -> Result:
    size = os.fstat(file.fileno()).st_size
    start = file.read(SNIFF_BYTES)
    file.seek(0)
    if image_type(start):
        return _image(file, size)
    if kind := binary_kind(start):
        return ToolFailed(f"{arguments.path} is {kind} of {shown_size(size)}, and is not shown.")
    if not start:
        return Done("[the file is empty]")
    if arguments.offset < 1 or arguments.limit < 1:
        return ToolFailed("offset and limit count from 1.")
    if start.startswith(BOM):
        file.seek(len(BOM))
    note = ""
    if (shown := _as_text(file, start, arguments.path)) is not None:
        if isinstance(shown, ToolFailed):
            return shown
        file, note = shown
    skipped = _skip(file, arguments.offset - 1, stop)
    page = _page(file, min(arguments.limit, RESULT_LINES), stop, sieve=sieve)
    total = skipped + page.lines + _count(file, stop)
    if not page.lines:
        return ToolFailed(f"{arguments.path} has {total:,} lines; offset {arguments.offset:,} is past its end.")
    text = _shown(page, arguments, total)
    return Done(f"{text}\n[{note}]" if note else text)


def _as_text(file: BinaryIO, start: bytes, path: str) -> tuple[BinaryIO, str] | ToolFailed | None:
    """Return what is shown in a file's stead, and a note; None for a file that is shown as it is."""
    size = os.fstat(file.fileno()).st_size
    if is_utf16(start):
        if size > CONVERTED_BYTES:
            return ToolFailed(f"{path} is UTF-16 of {shown_size(size)}; the most is {CONVERTED_BYTES:,}. Use iconv.")
        return io.BytesIO(file.read(CONVERTED_BYTES).decode("utf-16", "replace").encode("utf-8", "replace")), "UTF-16"
    if path.lower().endswith(NOTEBOOK_SUFFIX) and size <= NOTEBOOK_BYTES:
        from yarrow.tool.notebook import cells_of

        text = cells_of(file.read(NOTEBOOK_BYTES))
        if text is not None:
            return io.BytesIO(text.encode("utf-8", "replace")), ""
        file.seek(len(BOM) if start.startswith(BOM) else 0)
    return None


def _image(file: BinaryIO, size: int) -> Result:
    import base64

    from yarrow.imaging.fit import SOURCE_BYTES, Unfit, fit

    if size > SOURCE_BYTES:
        return ToolFailed(f"The image is {shown_size(size)}; the most is {SOURCE_BYTES:,}. Make a smaller copy of it.")
    result = fit(file.read(SOURCE_BYTES))
    if isinstance(result, Unfit):
        return ToolFailed(result.text)
    image = Image(result.media_type, base64.b64encode(result.data).decode())
    note = f", {result.note}" if result.note else ""
    return Done(f"[{result.media_type}, {shown_size(len(result.data))}{note}]", images=(image,))


def _skip(file: BinaryIO, lines: int, stop: threading.Event) -> int:
    """Go `lines` lines ahead, or to the end; return how many there were."""
    skipped, last = 0, b"\n"
    while skipped < lines and not stop.is_set() and (piece := file.readline(CHUNK_BYTES)):
        skipped += piece.endswith(b"\n")
        last = piece[-1:]
    return skipped + (last != b"\n")


def _page(file: BinaryIO, limit: int, stop: threading.Event, *, sieve: Sieve) -> _Page:
    """Take whole lines within the limits of a result; of a first line that is longer, what fits."""
    pieces: list[bytes] = []
    size = 0
    while len(pieces) < limit and (line := file.readline(RESULT_BYTES + 1)):
        if size + len(line) > RESULT_BYTES:
            if not pieces:
                start = _whole_characters(without_half(line[:RESULT_BYTES], sieve))
                return _Page(start, 1, cut=len(line) + _rest_of_line(file, line, stop))
            file.seek(-len(line), os.SEEK_CUR)
            break
        pieces.append(line)
        size += len(line)
    return _Page(b"".join(pieces), len(pieces))


def _whole_characters(data: bytes) -> bytes:
    """Return the start of a line without the half of a character at its end, if it is UTF-8 at all."""
    for size in range(len(data), len(data) - 4, -1):
        if decode(data[:size]).encoding != FALLBACK:
            return data[:size]
    return data


def _rest_of_line(file: BinaryIO, line: bytes, stop: threading.Event) -> int:
    """Go to the end of a line; return how long the rest was."""
    length = 0
    while line and not line.endswith(b"\n") and not stop.is_set():
        line = file.readline(CHUNK_BYTES)
        length += len(line)
    return length


def _count(file: BinaryIO, stop: threading.Event) -> int:
    """Return how many lines follow."""
    lines, last = 0, b"\n"
    while not stop.is_set() and (chunk := file.read(CHUNK_BYTES)):
        lines += chunk.count(b"\n")
        last = chunk[-1:]
    return lines + (last != b"\n")


def _shown(page: _Page, arguments: ReadArguments, total: int) -> str:
    first, last = arguments.offset, arguments.offset + page.lines - 1
    text = decode(page.data)
    notes: list[str] = []
    if page.cut:
        shown = len(page.data)
        rest = f"the rest: sed -n {first}p {arguments.path} | tail -c +{shown + 1}"
        notes.append(f"line {first} is cut after {shown:,} of {page.cut:,} bytes; {rest}")
    if text.encoding == FALLBACK:
        notes.append("not UTF-8: shown as Latin-1")
    if last < total:
        notes.append(f"lines {first:,}-{last:,} of {total:,}; go on with offset {last + 1}")
    return text.text.replace("\r\n", "\n") + "".join(f"\n[{note}]" for note in notes)
