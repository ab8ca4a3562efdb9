"""The RPC that lists files of a session's working directory, for a person who is typing a path."""

from functools import partial

from yarrow.errors import InvalidArgument
from yarrow.policy.workspace import Refused
from yarrow.service.rpc_handlers import Context, unary_rpc
from yarrow.service.sessions import Sessions
from yarrow.tool.worker_thread import run_in_thread
from yarrow.v1 import agent_pb2 as pb

DEFAULT_MAX_PATHS = 100
"""Paths in one response when the client names no limit."""
MAX_PATHS = 10_000


class FileRpcs:
    """The part of the service that lists files."""

    _sessions: Sessions

    @unary_rpc
    async def ListFiles(self, request: pb.ListFilesRequest, context: Context) -> pb.ListFilesResponse:
        """List files by a beginning of their path."""
        from yarrow.tool.file_completion import complete_files  # for clients that complete paths

        entry = await self._sessions.get_or_load(request.session_id)
        workspace = (await self._sessions.context(entry)).workspace
        directory = workspace.resolve_read(entry.cwd / request.prefix.rpartition("/")[0])
        if isinstance(directory, Refused):
            raise InvalidArgument("prefix", directory.text)
        limit = min(request.limit or DEFAULT_MAX_PATHS, MAX_PATHS)
        looking = partial(complete_files, directory, request.prefix, limit=limit, workspace=workspace)
        listing = await run_in_thread(looking)
        return pb.ListFilesResponse(paths=listing.paths, has_more=listing.has_more)
