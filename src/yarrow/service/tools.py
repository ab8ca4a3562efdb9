"""The RPC by which a person runs a tool."""

from collections.abc import AsyncIterator

import msgspec

from yarrow.errors import Code, InvalidArgument, LimitExceeded
from yarrow.event.events import ToolOutput
from yarrow.message import ToolCall
from yarrow.service.answers import Context, streams
from yarrow.service.choices import MAX_TEXT_BYTES
from yarrow.service.following import take
from yarrow.service.parts import Parts
from yarrow.service.sessions import Sessions
from yarrow.session.ids import new_id
from yarrow.v1 import agent_pb2 as pb


class Tools:
    """The part of the service that runs tools for people."""

    _parts: Parts
    _sessions: Sessions
    heartbeat: float

    @streams
    async def RunTool(self, request: pb.RunToolRequest, context: Context) -> AsyncIterator[pb.RunToolResponse]:
        """Run a tool and stream what it puts out."""
        call = self._call(request)
        entry = await self._sessions.get_or_load(request.session_id)
        equipment = await self._sessions.equip(entry)
        subscription = entry.subscribe()
        try:
            self._sessions.admit(entry)
            await entry.agent.run_tool(call, equipment, silent=request.silent)
            while events := await take(entry, subscription, self.heartbeat):
                for event in events:
                    yield pb.RunToolResponse(event=entry.translated(event))
                    if isinstance(event.body, ToolOutput) and event.body.tool_call_id == call.id:
                        return
        finally:
            entry.release(subscription)

    def _call(self, request: pb.RunToolRequest) -> ToolCall:
        names = self._parts.registry.names()
        name = request.tool or self._parts.registry.shell()
        if name not in names:
            raise InvalidArgument("tool", f"{request.tool!r} is none of {', '.join(names)}")
        if len(request.arguments_json.encode()) > MAX_TEXT_BYTES:
            raise LimitExceeded(f"arguments_json has more than {MAX_TEXT_BYTES} bytes", code=Code.TOO_LARGE)
        arguments = request.arguments_json or "{}"
        try:
            msgspec.json.decode(arguments, type=dict[str, object])
        except (msgspec.DecodeError, RecursionError) as error:
            raise InvalidArgument("arguments_json", f"is not a JSON object: {error}") from None
        return ToolCall(new_id(), name, arguments)
