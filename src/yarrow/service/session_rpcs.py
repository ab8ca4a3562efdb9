"""RPCs about sessions: creation, state, settings, lists, statistics, derived sessions, export and import."""

from collections.abc import AsyncIterator
from functools import cached_property
from typing import TYPE_CHECKING

from yarrow.errors import YarrowError
from yarrow.service import session_responses
from yarrow.service.authentication import RefusalLog
from yarrow.service.request_fields import parse_name, parse_options
from yarrow.service.rpc_middleware import Context, check_requests, drain_requests
from yarrow.service.service_dependencies import Dependencies
from yarrow.service.session_configuration import configure_session, parse_plan
from yarrow.service.sessions import Sessions
from yarrow.v1 import agent_pb2 as pb

if TYPE_CHECKING:
    from yarrow.service.session_derivation import SessionLineage, SessionTransfer


class SessionRpcs:
    """RPCs that need no run."""

    def __init__(self, dependencies: Dependencies, sessions: Sessions, *, epoch: str, refusals: RefusalLog) -> None:
        self._dependencies = dependencies
        self._sessions = sessions
        self._epoch = epoch
        self._refusals = refusals

    # Rarely used parts are imported on first use.

    @cached_property
    def _lineage(self) -> "SessionLineage":
        from yarrow.service.session_derivation import SessionLineage

        return SessionLineage(self._dependencies, self._sessions)

    @cached_property
    def _transfer(self) -> "SessionTransfer":
        from yarrow.service.session_derivation import SessionTransfer

        return SessionTransfer(self._dependencies, self._sessions, self._lineage)

    async def NewSession(self, request: pb.NewSessionRequest, context: Context) -> pb.NewSessionResponse:
        """Create or load a session."""
        plan = parse_plan(
            self._dependencies, request.cwd, request.settings, name=request.name, ephemeral=request.ephemeral
        )
        entry, origin = await self._sessions.get_or_create(request.session_id, plan)
        return pb.NewSessionResponse(session_id=entry.id, origin=origin, cwd=entry.state.header.cwd, epoch=self._epoch)

    async def GetMessages(self, request: pb.GetMessagesRequest, context: Context) -> pb.GetMessagesResponse:
        """Return messages."""
        entry = await self._sessions.get_or_load(request.session_id)
        response = session_responses.view_messages(entry, request.after, request.limit)
        response.epoch = self._epoch
        return response

    async def GetState(self, request: pb.GetStateRequest, context: Context) -> pb.GetStateResponse:
        """Return the state of the agent."""
        entry = await self._sessions.get_or_load(request.session_id, exact=False)
        response = session_responses.view_state(entry, await self._sessions.provider_info(entry))
        response.epoch = self._epoch
        response.version = self._dependencies.version
        response.refused_calls = self._refusals.calls
        response.full_seconds = self._refusals.full_seconds
        spent = session_responses.compute_session_cost(entry.state, self._dependencies.settings.prices)
        if spent is not None:
            response.cost = spent
        return response

    async def ConfigureSession(
        self, request: pb.ConfigureSessionRequest, context: Context
    ) -> pb.ConfigureSessionResponse:
        """Change settings of a session."""
        entry = await self._sessions.get_or_load(request.session_id)
        options = parse_options(request.settings, self._dependencies.registry, entry.state.header.compaction)
        name = parse_name(request.name) if request.HasField("name") else None
        await configure_session(
            entry,
            options,
            name=name,
            providers=self._dependencies.providers,
            redactor=self._sessions.redactors.for_keys,
        )
        return pb.ConfigureSessionResponse(settings=session_responses.view_settings(entry))

    async def ListSessions(self, request: pb.ListSessionsRequest, context: Context) -> pb.ListSessionsResponse:
        """List saved sessions."""
        return await session_responses.view_sessions(request, self._dependencies.manager, self._sessions)

    async def GetSessionTree(self, request: pb.GetSessionTreeRequest, context: Context) -> pb.GetSessionTreeResponse:
        """Return saved sessions as a tree."""
        return await session_responses.view_tree(request, self._dependencies.manager, self._sessions)

    async def GetStats(self, request: pb.GetStatsRequest, context: Context) -> pb.GetStatsResponse:
        """Return the statistics of a session."""
        entry = await self._sessions.get_or_load(request.session_id)
        loaded = None if entry.is_ephemeral else await self._dependencies.manager.load(request.session_id)
        return session_responses.view_stats(
            entry, loaded, await self._sessions.provider_info(entry), prices=self._dependencies.settings.prices
        )

    async def DeleteSession(self, request: pb.DeleteSessionRequest, context: Context) -> pb.DeleteSessionResponse:
        """Delete a session."""
        await self._sessions.delete(request.session_id)
        return pb.DeleteSessionResponse()

    async def BranchSession(self, request: pb.BranchSessionRequest, context: Context) -> pb.BranchSessionResponse:
        """Create a child with the history up to a message."""
        index = request.index if request.HasField("index") else None
        return pb.BranchSessionResponse(session_id=await self._lineage.branch(request.session_id, index))

    async def ForkSession(self, request: pb.ForkSessionRequest, context: Context) -> pb.ForkSessionResponse:
        """Create a detached copy."""
        return pb.ForkSessionResponse(session_id=await self._lineage.fork(request.session_id))

    async def RebaseSession(self, request: pb.RebaseSessionRequest, context: Context) -> pb.RebaseSessionResponse:
        """Create a session from chosen messages."""
        made, added = await self._lineage.rebase(request.session_id, list(request.indices), squash=request.squash)
        return pb.RebaseSessionResponse(session_id=made, added=added)

    async def MergeSession(self, request: pb.MergeSessionRequest, context: Context) -> pb.MergeSessionResponse:
        """Create a session from two."""
        made = await self._lineage.merge(request.session_id, request.other_session_id, summary=request.summary)
        return pb.MergeSessionResponse(session_id=made)

    async def ExportSession(
        self, request: pb.ExportSessionRequest, context: Context
    ) -> AsyncIterator[pb.ExportSessionResponse]:
        """Stream a session as a file."""
        async for chunk in self._transfer.export_chunks(request.session_id, request.format):
            yield pb.ExportSessionResponse(chunk=chunk)

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
