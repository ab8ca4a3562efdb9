"""JSON mode: standard output contains a header and then every event, one JSON object per line, and nothing else."""

from yarrow.client.event_json import EventEncoder, dumps
from yarrow.client.run_stream import RunResult, follow_run
from yarrow.client.session_setup import SessionInfo
from yarrow.client.sink import Sink
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb

SCHEMA_VERSION = 1
"""Version of the line format; incremented when a reader of the old lines could misread the new ones."""
PROTOCOL = "yarrow.v1"
"""Protobuf package that defines the events."""


async def run_json(stub: Stub, session: SessionInfo, prompt: pb.PromptRequest, *, out: Sink) -> RunResult:
    """Send a prompt to a session and write its events to `out`. Raises what `follow_run` and `out` raise."""
    out.write(format_header(session))
    return await follow_run(stub, session, prompt, viewer=_JsonLinesViewer(out))


def format_header(session: SessionInfo) -> str:
    """Return the header line, which describes the session of the events that follow."""
    fields = {
        "type": "header",
        "sessionId": session.session_id,
        "cwd": session.cwd,
        "provider": session.provider,
        "model": session.model,
        "versions": {"service": session.version, "protocol": PROTOCOL},
        "schemaVersion": SCHEMA_VERSION,
    }
    return dumps(fields) + "\n"


def format_command(name: str, text: str, session_id: str) -> str:
    """Return the line with the answer of a command such as `/stats`; `session_id` is the session to continue in."""
    return dumps({"type": "command", "name": name, "text": text, "sessionId": session_id}) + "\n"


class _JsonLinesViewer:
    def __init__(self, out: Sink) -> None:
        self._out = out
        self._encoder = EventEncoder()

    async def show(self, event: pb.AgentEvent, kind: str) -> None:
        self._out.write(self._encoder.encode(event, kind) + "\n")

    async def drain(self) -> None:
        await self._out.drain()
