"""Export and import of sessions as files, in pieces of bounded size."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator

from yarrow.errors import Code, InvalidArgument, LimitExceeded, Precondition
from yarrow.service.dependencies import Dependencies
from yarrow.service.lineage import SessionLineage
from yarrow.service.request_fields import parse_cwd
from yarrow.service.sessions import Sessions
from yarrow.session.reader import StoredSession
from yarrow.session.transfer import MAX_IMPORT_BYTES, ImportSpool, export_lines
from yarrow.v1 import agent_pb2 as pb

CHUNK_BYTES = 256 * 1024
"""Bytes of one item of an export, or slightly more; a longer line is split into several."""


class SessionTransfer:
    """Exporter and importer of sessions."""

    def __init__(self, dependencies: Dependencies, sessions: Sessions, lineage: SessionLineage) -> None:
        self._dependencies = dependencies
        self._sessions = sessions
        self._lineage = lineage

    async def export_chunks(self, session_id: str, export_format: int) -> AsyncGenerator[bytes]:
        """Yield the bytes of an export. Raises `NotFound`, `InvalidArgument` and `StorageError`."""
        entry = await self._sessions.get_or_load(session_id)
        if entry.is_ephemeral:
            raise Precondition(f"session {session_id} is not saved, so it cannot be exported")
        loaded = await self._dependencies.manager.load(session_id)
        match export_format:
            case pb.EXPORT_FORMAT_UNSPECIFIED | pb.EXPORT_FORMAT_JSONL:
                pieces = export_lines(
                    loaded,
                    self._dependencies.manager.blob_reader(session_id),
                    secrets=self._dependencies.secret_values(),
                )
            case pb.EXPORT_FORMAT_HTML:
                pieces = await self._render_page(loaded)
            case _:
                raise InvalidArgument("format", f"{export_format} is not an export format")
        while chunk := await asyncio.to_thread(_read_chunk, pieces):
            for start in range(0, len(chunk), CHUNK_BYTES):
                yield chunk[start : start + CHUNK_BYTES]

    async def _render_page(self, loaded: StoredSession) -> Iterator[bytes]:
        # Imported lazily: a page needs libraries that nothing else does.
        from yarrow.session.html.page import find_related_sessions, render_page

        rows = find_related_sessions(loaded, await self._dependencies.manager.list_heads(loaded.header.cwd))
        return (
            piece.encode() for piece in render_page(loaded, relatives=rows, secrets=self._dependencies.secret_values())
        )

    async def import_session(self, requests: AsyncIterator[pb.ImportSessionRequest]) -> pb.ImportSessionResponse:
        """Create a session from a stream of pieces, and return facts about it for the user.

        Raises `InvalidArgument` for an invalid session, and for a stream of another length than announced: a client
        that disconnects ends it like one that is done. Raises `LimitExceeded` and `StorageError`.
        """
        first = await anext(requests, None)
        if first is None:
            raise InvalidArgument("chunk", "no data was sent")
        cwd = parse_cwd(first.cwd)
        if first.size > MAX_IMPORT_BYTES:
            raise LimitExceeded(f"size: {first.size} bytes exceed the limit of {MAX_IMPORT_BYTES}", code=Code.TOO_LARGE)
        root = await self._dependencies.manager.make_root()
        with ImportSpool(root) as incoming:
            received = 0
            request: pb.ImportSessionRequest | None = first
            while request is not None:
                received += len(request.chunk)
                await asyncio.to_thread(incoming.feed, request.chunk)
                request = await anext(requests, None)
            if first.size and received != first.size:
                raise InvalidArgument(
                    "chunk", f"the stream ended after {received} of {first.size} bytes: send it again"
                )
            return await self._lineage.import_session(incoming, cwd)


def _read_chunk(pieces: Iterator[bytes]) -> bytes:
    """Return the next pieces, together at least `CHUNK_BYTES` bytes except at the end; empty when there are no more."""
    taken: list[bytes] = []
    size = 0
    for piece in pieces:
        taken.append(piece)
        size += len(piece)
        if size >= CHUNK_BYTES:
            break
    return b"".join(taken)
