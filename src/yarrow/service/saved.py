"""The RPCs about saved sessions as a whole: lists, the tree, figures, what is made of them, export and import."""

from collections.abc import AsyncIterator
from functools import cached_property
from typing import TYPE_CHECKING

from yarrow.errors import YarrowError
from yarrow.service import views
from yarrow.service.answers import Context, answers, let_finish, readable, streams
from yarrow.service.parts import Parts
from yarrow.service.sessions import Sessions
from yarrow.v1 import agent_pb2 as pb

if TYPE_CHECKING:
    from yarrow.service.exporting import Exporting
    from yarrow.service.lineage import Lineage


class SavedSessions:
    """The part of the service that needs no run."""

    def __init__(self, parts: Parts, sessions: Sessions) -> None:
        self._parts = parts
        self._sessions = sessions

    # What only few clients ask for is imported when they do.

    @cached_property
    def _lineage(self) -> "Lineage":
        from yarrow.service.lineage import Lineage

        return Lineage(self._parts, self._sessions)

    @cached_property
    def _exporting(self) -> "Exporting":
        from yarrow.service.exporting import Exporting

        return Exporting(self._parts, self._sessions, self._lineage)

    @answers
    async def ListSessions(self, request: pb.ListSessionsRequest, context: Context) -> pb.ListSessionsResponse:
        """List saved sessions."""
        return await views.sessions(request, self._parts.manager, self._sessions)

    @answers
    async def GetSessionTree(self, request: pb.GetSessionTreeRequest, context: Context) -> pb.GetSessionTreeResponse:
        """Return saved sessions as a tree."""
        from yarrow.service.figures import tree

        return await tree(request, self._parts.manager, self._sessions)

    @answers
    async def GetStats(self, request: pb.GetStatsRequest, context: Context) -> pb.GetStatsResponse:
        """Return the figures of a session."""
        from yarrow.service.figures import stats

        entry = await self._sessions.get_or_load(request.session_id)
        loaded = None if entry.ephemeral else await self._parts.manager.load(request.session_id)
        return stats(entry, loaded, await self._sessions.info(entry), prices=self._parts.settings.prices)

    @answers
    async def DeleteSession(self, request: pb.DeleteSessionRequest, context: Context) -> pb.DeleteSessionResponse:
        """Delete a session."""
        await self._sessions.delete(request.session_id)
        return pb.DeleteSessionResponse()

    @answers
    async def BranchSession(self, request: pb.BranchSessionRequest, context: Context) -> pb.BranchSessionResponse:
        """Make a child with the history up to a message."""
        index = request.index if request.HasField("index") else None
        return pb.BranchSessionResponse(session_id=await self._lineage.branch(request.session_id, index))

    @answers
    async def ForkSession(self, request: pb.ForkSessionRequest, context: Context) -> pb.ForkSessionResponse:
        """Make a detached copy."""
        return pb.ForkSessionResponse(session_id=await self._lineage.fork(request.session_id))

    @answers
    async def RebaseSession(self, request: pb.RebaseSessionRequest, context: Context) -> pb.RebaseSessionResponse:
        """Make a session of chosen messages."""
        made, added = await self._lineage.rebase(request.session_id, list(request.indices), squash=request.squash)
        return pb.RebaseSessionResponse(session_id=made, added=added)

    @answers
    async def MergeSession(self, request: pb.MergeSessionRequest, context: Context) -> pb.MergeSessionResponse:
        """Make a session of two."""
        made = await self._lineage.merge(request.session_id, request.other_session_id, summary=request.summary)
        return pb.MergeSessionResponse(session_id=made)

    @streams
    async def ExportSession(
        self, request: pb.ExportSessionRequest, context: Context
    ) -> AsyncIterator[pb.ExportSessionResponse]:
        """Stream a session as a file."""
        async for chunk in self._exporting.chunks(request.session_id, request.format):
            yield pb.ExportSessionResponse(chunk=chunk)

    @answers
    async def ImportSession(
        self, request_iterator: AsyncIterator[pb.ImportSessionRequest], context: Context
    ) -> pb.ImportSessionResponse:
        """Make a session of a file that is streamed."""
        try:
            made = await self._exporting.take_in(readable(request_iterator))
        except YarrowError:
            await let_finish(request_iterator)
            raise
        return made
