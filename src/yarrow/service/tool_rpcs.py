"""RPCs for running a tool and completing file names."""

from collections.abc import AsyncIterator
from functools import partial

import msgspec

from yarrow.errors import Code, InvalidArgument, LimitExceeded
from yarrow.event.events import ToolOutput
from yarrow.message import ToolCall
from yarrow.policy.workspace import Refused
from yarrow.service.dependencies import Dependencies
from yarrow.service.event_stream import EventStreams
from yarrow.service.request_fields import MAX_TEXT_BYTES
from yarrow.service.rpc_handlers import Context
from yarrow.service.sessions import Sessions
from yarrow.session.ids import new_id
from yarrow.tool.worker_thread import run_in_thread
from yarrow.v1 import agent_pb2 as pb

DEFAULT_MAX_PATHS = 100
"""Paths in one response if the client sets no limit."""
MAX_PATHS = 10_000


class ToolRpcs:
    """RPCs that run tools and look at files for users."""

    def __init__(self, dependencies: Dependencies, sessions: Sessions, streams: EventStreams) -> None:
        self._dependencies = dependencies
        self._sessions = sessions
        self._streams = streams

    async def RunTool(self, request: pb.RunToolRequest, context: Context) -> AsyncIterator[pb.RunToolResponse]:
        """Run a tool and stream its output."""
        call = self._parse_call(request)
        entry = await self._sessions.get_or_load(request.session_id)
        resources = await self._sessions.prepare_resources(entry)
        subscription = entry.subscribe()
        try:
            self._sessions.check_capacity(entry)
            await entry.agent.run_tool(call, resources, silent=request.silent)
            while events := await self._streams.next_events(entry, subscription):
                for event in events:
                    yield pb.RunToolResponse(event=entry.translate(event))
                    if isinstance(event.body, ToolOutput) and event.body.tool_call_id == call.id:
                        return
        finally:
            entry.release(subscription)

    async def ListFiles(self, request: pb.ListFilesRequest, context: Context) -> pb.ListFilesResponse:
        """List files by a prefix of their path."""
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

    def _parse_call(self, request: pb.RunToolRequest) -> ToolCall:
        names = self._dependencies.registry.names()
        name = request.tool or self._dependencies.registry.find_shell_tool()
        if name not in names:
            raise InvalidArgument("tool", f"{request.tool!r} is not one of {', '.join(names)}")
        if len(request.arguments_json.encode()) > MAX_TEXT_BYTES:
            raise LimitExceeded(f"arguments_json has more than {MAX_TEXT_BYTES} bytes", code=Code.TOO_LARGE)
        arguments = request.arguments_json or "{}"
        try:
            msgspec.json.decode(arguments, type=dict[str, object])
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidArgument("arguments_json", f"is not a JSON object: {error}") from None
        return ToolCall(new_id(), name, arguments)
