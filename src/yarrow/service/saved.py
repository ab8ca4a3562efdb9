"""The RPCs about saved sessions as a whole: listing and deleting them."""

from yarrow.service import views
from yarrow.service.answers import Context, answers
from yarrow.service.parts import Parts
from yarrow.service.sessions import Sessions
from yarrow.v1 import agent_pb2 as pb


class SavedSessions:
    """The part of the service that needs no run."""

    def __init__(self, parts: Parts, sessions: Sessions) -> None:
        self._parts = parts
        self._sessions = sessions

    @answers
    async def ListSessions(self, request: pb.ListSessionsRequest, context: Context) -> pb.ListSessionsResponse:
        """List saved sessions."""
        return await views.sessions(request, self._parts.manager, self._sessions)

    @answers
    async def DeleteSession(self, request: pb.DeleteSessionRequest, context: Context) -> pb.DeleteSessionResponse:
        """Delete a session."""
        await self._sessions.delete(request.session_id)
        return pb.DeleteSessionResponse()
