"""Export of sessions to files, complete or not at all, and import of files, sent in chunks."""

import os
import stat
import tempfile
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

from grpc import StatusCode, aio

from yarrow.client.stub import Stub
from yarrow.platform import system
from yarrow.v1 import agent_pb2 as pb

CHUNK_BYTES = 256 * 1024
"""Bytes per chunk of an import."""
FORMATS = {".jsonl": pb.EXPORT_FORMAT_JSONL, ".html": pb.EXPORT_FORMAT_HTML, ".htm": pb.EXPORT_FORMAT_HTML}


class FilePathError(Exception):
    """A path cannot be read or written; the message names it and says what to do."""


async def export_file(stub: Stub, session_id: str, path: Path) -> int:
    """Write a session to `path`, as JSONL or HTML depending on its suffix; return its size in bytes.

    An existing file is replaced atomically. Raises `FilePathError`, and `aio.AioRpcError` if the service refuses;
    nothing is written then.
    """
    export_format = FORMATS.get(path.suffix.lower())
    if export_format is None:
        raise FilePathError(f"cannot export to {path}: its name must end in .jsonl or .html")
    try:
        if path.is_dir():
            raise FilePathError(f"{path} is a directory: add a file name")
    except OSError as error:  # name too long
        raise FilePathError(f"cannot write {path}: {error.strerror}") from None
    request = pb.ExportSessionRequest(session_id=session_id, format=export_format)
    size = 0
    try:
        handle, draft = tempfile.mkstemp(prefix=".yarrow-export-", dir=path.parent)
    except OSError as error:
        raise FilePathError(f"cannot write {path}: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            async for response in stub.ExportSession(request):
                size += file.write(response.chunk)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(path)
    except OSError as error:
        raise FilePathError(f"cannot write {path}: {error.strerror}") from None
    finally:
        with suppress(FileNotFoundError):
            Path(draft).unlink()
    return size


async def import_file(stub: Stub, path: Path, cwd: str) -> pb.ImportSessionResponse:
    """Create a session from a JSONL file in the project of `cwd`. Raises `FilePathError` and `aio.AioRpcError`."""
    try:
        # Non-blocking, so that a path that is not a file, such as a pipe without a writer, does not hang.
        with os.fdopen(os.open(path, os.O_RDONLY | system.BASE_FLAGS | system.NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise FilePathError(f"{path} is not a file")
            size = status.st_size

            async def pieces() -> AsyncIterator[pb.ImportSessionRequest]:
                yield pb.ImportSessionRequest(cwd=cwd, size=size, chunk=file.read(CHUNK_BYTES))
                while piece := file.read(CHUNK_BYTES):
                    yield pb.ImportSessionRequest(chunk=piece)

            return await _send_import(stub, path, pieces())
    except OSError as error:
        raise FilePathError(f"cannot read {path}: {error.strerror}") from None


async def _send_import(
    stub: Stub, path: Path, pieces: AsyncIterator[pb.ImportSessionRequest]
) -> pb.ImportSessionResponse:
    try:
        return await stub.ImportSession(pieces)
    except aio.AioRpcError as error:
        what = (error.details() or "").removeprefix("chunk: ")
        if error.code() is not StatusCode.INVALID_ARGUMENT or what == error.details():
            raise
        # A request field means nothing to users; the file does.
        raise FilePathError(f"{path}: {what}") from None
