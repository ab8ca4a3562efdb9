"""Service behind every channel: the handlers of all RPCs, and the life cycle of its sessions."""

import time

from yarrow.service.authentication import RefusalLog
from yarrow.service.event_stream import EventStreams
from yarrow.service.rpc_middleware import wrap_handlers
from yarrow.service.run_rpcs import RunRpcs
from yarrow.service.service_dependencies import Dependencies
from yarrow.service.session_rpcs import SessionRpcs
from yarrow.service.sessions import Sessions
from yarrow.service.tool_rpcs import PermissionRpcs, ToolRpcs


class Servicer:
    """The one implementation of `AgentService`; each RPC is a method of one of its groups."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._sessions = sessions = Sessions(dependencies)
        self.streams = EventStreams()
        self.refusal_log = RefusalLog(time.monotonic)
        """Calls and connections refused before they reached a handler."""
        groups = (
            RunRpcs(dependencies, sessions, self.streams),
            SessionRpcs(dependencies, sessions, epoch=self.streams.epoch, refusals=self.refusal_log),
            ToolRpcs(dependencies, sessions, self.streams),
            PermissionRpcs(dependencies, sessions),
        )
        self.handlers = wrap_handlers(groups, sessions.redactors.for_keys)
        """Handlers by the name of their RPC; responses are redacted."""

    def drain(self) -> None:
        """Stop accepting prompts."""
        self._sessions.drain()

    async def wait_until_idle(self) -> None:
        """Wait until no run is active."""
        await self._sessions.wait_until_idle()

    async def close(self) -> None:
        """End every run, then close every file and provider."""
        await self._sessions.close()
        await self._dependencies.providers.close()
        if self._dependencies.telemetry is not None:
            await self._dependencies.telemetry.close()
