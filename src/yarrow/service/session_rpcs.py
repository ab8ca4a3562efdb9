"""RPCs about saved sessions: lists, the tree, statistics, derived sessions, export and import."""

from collections.abc import AsyncIterator
from functools import cached_property
from typing import TYPE_CHECKING

from yarrow.errors import YarrowError
from yarrow.service import views
from yarrow.service.dependencies import Dependencies
from yarrow.service.rpc_handlers import Context, check_requests, drain_requests, streaming_rpc, unary_rpc
from yarrow.service.sessions import Sessions
from yarrow.v1 import agent_pb2 as pb

if TYPE_CHECKING:
    from yarrow.service.lineage import SessionLineage
    from yarrow.service.session_transfer import SessionTransfer


class SavedSessionRpcs:
    """RPCs that need no run."""

    def __init__(self, dependencies: Dependencies, sessions: Sessions) -> None:
        self._dependencies = dependencies
        self._sessions = sessions

    # Rarely used parts are imported on first use.

    @cached_property
    def _lineage(self) -> "SessionLineage":
        from yarrow.service.lineage import SessionLineage

        return SessionLineage(self._dependencies, self._sessions)

    @cached_property
    def _transfer(self) -> "SessionTransfer":
        from yarrow.service.session_transfer import SessionTransfer

        return SessionTransfer(self._dependencies, self._sessions, self._lineage)

    @unary_rpc
    async def ListSessions(self, request: pb.ListSessionsRequest, context: Context) -> pb.ListSessionsResponse:
        """List saved sessions."""
        return await views.view_sessions(request, self._dependencies.manager, self._sessions)

    @unary_rpc
    async def GetSessionTree(self, request: pb.GetSessionTreeRequest, context: Context) -> pb.GetSessionTreeResponse:
        """Return saved sessions as a tree."""
        from yarrow.service.stats_views import view_tree

        return await view_tree(request, self._dependencies.manager, self._sessions)

    @unary_rpc
    async def GetStats(self, request: pb.GetStatsRequest, context: Context) -> pb.GetStatsResponse:
        """Return the statistics of a session."""
        from yarrow.service.stats_views import view_stats

        entry = await self._sessions.get_or_load(request.session_id)
        loaded = None if entry.is_ephemeral else await self._dependencies.manager.load(request.session_id)
        return view_stats(
            entry, loaded, await self._sessions.provider_info(entry), prices=self._dependencies.settings.prices
        )

    @unary_rpc
    async def DeleteSession(self, request: pb.DeleteSessionRequest, context: Context) -> pb.DeleteSessionResponse:
        """Delete a session."""
        await self._sessions.delete(request.session_id)
        return pb.DeleteSessionResponse()

    @unary_rpc
    async def BranchSession(self, request: pb.BranchSessionRequest, context: Context) -> pb.BranchSessionResponse:
        """Create a child with the history up to a message."""
        index = request.index if request.HasField("index") else None
        return pb.BranchSessionResponse(session_id=await self._lineage.branch(request.session_id, index))

    @unary_rpc
    async def ForkSession(self, request: pb.ForkSessionRequest, context: Context) -> pb.ForkSessionResponse:
        """Create a detached copy."""
        return pb.ForkSessionResponse(session_id=await self._lineage.fork(request.session_id))

    @unary_rpc
    async def RebaseSession(self, request: pb.RebaseSessionRequest, context: Context) -> pb.RebaseSessionResponse:
        """Create a session from chosen messages."""
        made, added = await self._lineage.rebase(request.session_id, list(request.indices), squash=request.squash)
        return pb.RebaseSessionResponse(session_id=made, added=added)

    @unary_rpc
    async def MergeSession(self, request: pb.MergeSessionRequest, context: Context) -> pb.MergeSessionResponse:
        """Create a session from two."""
        made = await self._lineage.merge(request.session_id, request.other_session_id, summary=request.summary)
        return pb.MergeSessionResponse(session_id=made)

    @streaming_rpc
    async def ExportSession(
        self, request: pb.ExportSessionRequest, context: Context
    ) -> AsyncIterator[pb.ExportSessionResponse]:
        """Stream a session as a file."""
        async for chunk in self._transfer.export_chunks(request.session_id, request.format):
            yield pb.ExportSessionResponse(chunk=chunk)

    @unary_rpc
    async def ImportSession(
        self, request_iterator: AsyncIterator[pb.ImportSessionRequest], context: Context
    ) -> pb.ImportSessionResponse:
        """Create a session from a streamed file."""
        try:
            made = await self._transfer.import_session(check_requests(request_iterator))
        except YarrowError:
            await drain_requests(request_iterator)
            raise
        return made
