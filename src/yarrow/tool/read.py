"""The tool `read`: returns a page of a text file, an image, or the names in a directory."""

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
from yarrow.policy.refusal import Refused
from yarrow.tool.base import Access, Done, OutputFilter, Progress, Result, ToolContext, ToolFailed
from yarrow.tool.file_content import FALLBACK_ENCODING, SNIFF_BYTES, UTF8_BOM, decode_text, find_binary_kind, is_utf16
from yarrow.tool.ls import DEFAULT_LS_LIMIT, format_listing, make_closed_filter
from yarrow.tool.paths import describe_missing, describe_os_error, locate
from yarrow.tool.result_limits import MAX_RESULT_BYTES, MAX_RESULT_LINES, drop_partial_secret, format_size
from yarrow.tool.worker_thread import run_in_thread

CHUNK_BYTES = 1_048_576
"""Bytes read at once to count lines."""
MAX_UTF16_BYTES = 67_108_864
"""Maximum bytes of a UTF-16 file; 64 MiB."""
NOTEBOOK_SUFFIX = ".ipynb"
MAX_NOTEBOOK_BYTES = 67_108_864
"""Maximum bytes of a notebook to render, 64 MiB; larger ones are shown as plain JSON."""


class ReadArguments(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of `read`. `offset` is the first line, counted from 1; `limit` is the number of lines."""

    path: str
    offset: int = 1
    limit: int = MAX_RESULT_LINES


class Read:
    """Reads a file."""

    name = "read"
    read_only = True
    arguments = ReadArguments
    access = Access.file()

    async def run(self, arguments: ReadArguments, context: ToolContext) -> AsyncIterator[Progress | Result]:
        """Yield the page, the image or the listing."""
        yield await run_in_thread(partial(_read_path, arguments, context))

    async def preview(self, arguments: ReadArguments, context: ToolContext) -> Result:
        """Describe what would be read."""
        return Done(f"Would read {arguments.path} in {context.cwd}.")


class _TextPage(Struct):
    """Complete lines of a file as bytes; `cut` is the length of the first line if even that exceeds the limit."""

    data: bytes
    lines: int
    cut: int = 0


def _read_path(arguments: ReadArguments, context: ToolContext, stop: threading.Event) -> Result:
    path = locate(arguments.path, context.cwd)
    try:
        descriptor = context.workspace.open_read(path)
        if isinstance(descriptor, Refused):
            return ToolFailed(descriptor.text)
        return _read_descriptor(descriptor, arguments, stop, path=path, context=context)
    except FileNotFoundError:
        return ToolFailed(describe_missing(path, arguments.path))
    except OSError as error:
        return ToolFailed(describe_os_error(error, arguments.path))


def _read_descriptor(
    descriptor: int, arguments: ReadArguments, stop: threading.Event, *, path: Path, context: ToolContext
) -> Result:
    with ExitStack() as closing:
        closing.callback(os.close, descriptor)
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            return Done(format_listing(descriptor, DEFAULT_LS_LIMIT, make_closed_filter(path, context)))
        if not stat.S_ISREG(mode):
            return ToolFailed(f"{arguments.path} is not a regular file.")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return _read_file(file, arguments, stop, output_filter=context.output_filter())


def _read_file(
    file: BinaryIO, arguments: ReadArguments, stop: threading.Event, *, output_filter: OutputFilter
) -> Result:
    size = os.fstat(file.fileno()).st_size
    start = file.read(SNIFF_BYTES)
    file.seek(0)
    if image_type(start):
        return _read_image(file, size)
    if kind := find_binary_kind(start):
        return ToolFailed(f"{arguments.path} is {kind} of {format_size(size)} and cannot be shown.")
    if not start:
        return Done("[the file is empty]")
    if arguments.offset < 1 or arguments.limit < 1:
        return ToolFailed("offset and limit must be at least 1.")
    if start.startswith(UTF8_BOM):
        file.seek(len(UTF8_BOM))
    note = ""
    if (shown := _convert_to_text(file, start, arguments.path)) is not None:
        if isinstance(shown, ToolFailed):
            return shown
        file, note = shown
    skipped = _skip_lines(file, arguments.offset - 1, stop)
    page = _read_page(file, min(arguments.limit, MAX_RESULT_LINES), stop, output_filter=output_filter)
    total = skipped + page.lines + _count_lines(file, stop)
    if not page.lines:
        return ToolFailed(f"{arguments.path} has {total:,} lines; offset {arguments.offset:,} is past its end.")
    text = _format_page(page, arguments, total)
    return Done(f"{text}\n[{note}]" if note else text)


def _convert_to_text(file: BinaryIO, start: bytes, path: str) -> tuple[BinaryIO, str] | ToolFailed | None:
    """Return the text to show instead of a file, with a note; None if the file is shown as it is."""
    size = os.fstat(file.fileno()).st_size
    if is_utf16(start):
        if size > MAX_UTF16_BYTES:
            return ToolFailed(f"{path} is UTF-16 of {format_size(size)}; the limit is {MAX_UTF16_BYTES:,}. Use iconv.")
        return io.BytesIO(file.read(MAX_UTF16_BYTES).decode("utf-16", "replace").encode("utf-8", "replace")), "UTF-16"
    if path.lower().endswith(NOTEBOOK_SUFFIX) and size <= MAX_NOTEBOOK_BYTES:
        from yarrow.tool.notebook import render_notebook

        text = render_notebook(file.read(MAX_NOTEBOOK_BYTES))
        if text is not None:
            return io.BytesIO(text.encode("utf-8", "replace")), ""
        file.seek(len(UTF8_BOM) if start.startswith(UTF8_BOM) else 0)
    return None


def _read_image(file: BinaryIO, size: int) -> Result:
    import base64

    from yarrow.imaging.fit import SOURCE_BYTES, Unfit, fit

    if size > SOURCE_BYTES:
        return ToolFailed(f"The image is {format_size(size)}; the limit is {SOURCE_BYTES:,}. Make a smaller copy.")
    result = fit(file.read(SOURCE_BYTES))
    if isinstance(result, Unfit):
        return ToolFailed(result.text)
    image = Image(result.media_type, base64.b64encode(result.data).decode())
    note = f", {result.note}" if result.note else ""
    return Done(f"[{result.media_type}, {format_size(len(result.data))}{note}]", images=(image,))


def _skip_lines(file: BinaryIO, lines: int, stop: threading.Event) -> int:
    """Skip `lines` lines, or all if there are fewer; return the number of lines skipped."""
    skipped, last = 0, b"\n"
    while skipped < lines and not stop.is_set() and (piece := file.readline(CHUNK_BYTES)):
        skipped += piece.endswith(b"\n")
        last = piece[-1:]
    return skipped + (last != b"\n")


def _read_page(file: BinaryIO, limit: int, stop: threading.Event, *, output_filter: OutputFilter) -> _TextPage:
    """Read complete lines within the limits of a result; if the first line is too long, its start."""
    pieces: list[bytes] = []
    size = 0
    while len(pieces) < limit and (line := file.readline(MAX_RESULT_BYTES + 1)):
        if size + len(line) > MAX_RESULT_BYTES:
            if not pieces:
                start = _drop_partial_character(drop_partial_secret(line[:MAX_RESULT_BYTES], output_filter))
                return _TextPage(start, 1, cut=len(line) + _skip_rest_of_line(file, line, stop))
            file.seek(-len(line), os.SEEK_CUR)
            break
        pieces.append(line)
        size += len(line)
    return _TextPage(b"".join(pieces), len(pieces))


def _drop_partial_character(data: bytes) -> bytes:
    """Return the start of a line without a truncated character at its end, if it is UTF-8."""
    for size in range(len(data), len(data) - 4, -1):
        if decode_text(data[:size]).encoding != FALLBACK_ENCODING:
            return data[:size]
    return data


def _skip_rest_of_line(file: BinaryIO, line: bytes, stop: threading.Event) -> int:
    """Skip to the end of a line; return the number of bytes skipped."""
    length = 0
    while line and not line.endswith(b"\n") and not stop.is_set():
        line = file.readline(CHUNK_BYTES)
        length += len(line)
    return length


def _count_lines(file: BinaryIO, stop: threading.Event) -> int:
    """Return the number of lines that follow."""
    lines, last = 0, b"\n"
    while not stop.is_set() and (chunk := file.read(CHUNK_BYTES)):
        lines += chunk.count(b"\n")
        last = chunk[-1:]
    return lines + (last != b"\n")


def _format_page(page: _TextPage, arguments: ReadArguments, total: int) -> str:
    first, last = arguments.offset, arguments.offset + page.lines - 1
    text = decode_text(page.data)
    notes: list[str] = []
    if page.cut:
        shown = len(page.data)
        rest = f"the rest: sed -n {first}p {arguments.path} | tail -c +{shown + 1}"
        notes.append(f"line {first} is truncated after {shown:,} of {page.cut:,} bytes; {rest}")
    if text.encoding == FALLBACK_ENCODING:
        notes.append("not UTF-8: shown as Latin-1")
    if last < total:
        notes.append(f"lines {first:,}-{last:,} of {total:,}; continue with offset {last + 1}")
    return text.text.replace("\r\n", "\n") + "".join(f"\n[{note}]" for note in notes)
