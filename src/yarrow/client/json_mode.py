"""JSON mode: a header and every event as protobuf JSON, one object per line."""

import re
import time
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from yarrow.client.run_stream import RunResult, follow_run
from yarrow.client.session_lookup import SessionInfo
from yarrow.client.stub import Stub
from yarrow.client.terminal_text_sanitizer import UNSAFE_CHARACTER
from yarrow.v1 import agent_pb2 as pb

if TYPE_CHECKING:
    from yarrow.client.slash_command import CommandResult


class Sink(Protocol):
    """Standard output, standard error, or a replacement for one of them."""

    @property
    def is_terminal(self) -> bool:
        """True if the output is a terminal."""
        ...

    def write(self, text: str) -> None:
        """Write text and return at once; an exception ends the client."""
        ...

    async def drain(self) -> None:
        """Wait until there is room for more."""
        ...


_encode = msgspec.json.Encoder().encode
_KEYS = {field.name: field.json_name for field in pb.AgentEvent.DESCRIPTOR.fields}
_LONG = (FieldDescriptor.TYPE_INT64, FieldDescriptor.TYPE_UINT64)


class EventEncoder:
    """Encodes the events of one run; caches the encoded ids and seconds, which repeat."""

    def __init__(self) -> None:
        self._ids = ("", "")
        self._id_text = ""
        self._seconds: int | None = None
        self._second_text = ""

    def encode(self, event: pb.AgentEvent, kind: str) -> str:
        """Return the event as one line without a newline; `kind` is the name of the field that is set, if any."""
        if (ids := (event.session_id, event.run_id)) != self._ids:
            self._ids = ids
            self._id_text = "".join(
                f'"{key}":{dumps(value)},' for key, value in zip(("sessionId", "runId"), ids, strict=True) if value
            )
        text = self._id_text
        if event.sequence:
            text += f'"sequence":"{event.sequence}",'
        if event.HasField("time"):
            moment = event.time
            text += f'"time":"{self._time(moment.seconds, moment.nanos)}",'
        match kind:
            case "text_delta" if piece := event.text_delta.text:
                text += f'"textDelta":{{"text":{dumps(piece)}}},'
            case "":
                pass
            case _:
                text += f'"{_KEYS[kind]}":{dumps(_to_json(getattr(event, kind)))},'
        return f"{{{text[:-1]}}}"

    def _time(self, seconds: int, nanos: int) -> str:
        if seconds != self._seconds:
            self._seconds = seconds
            year, month, day, hour, minute, second, *_ = time.gmtime(seconds)
            self._second_text = f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
        if not nanos:
            return f"{self._second_text}Z"
        digits = f"{nanos:09}"
        # Three, six or nine digits, like protobuf.
        while digits.endswith("000"):
            digits = digits[:-3]
        return f"{self._second_text}.{digits}Z"


def dumps(value: Any) -> str:
    """Return a value as compact JSON, with characters escaped that could control a terminal."""
    text = _encode(value).decode()
    return text if text.isascii() else UNSAFE_CHARACTER.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    """Return the JSON escape of a character that could control a terminal."""
    units = found.group().encode("utf-16-be")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def _to_json(message: Message) -> dict[str, Any]:
    return {
        field.json_name: [_value(field, item) for item in value] if field.is_repeated else _value(field, value)
        for field, value in message.ListFields()
    }


def _value(field: FieldDescriptor, value: Any) -> Any:
    if field.message_type:
        return _to_json(value)
    if field.enum_type:
        name = field.enum_type.values_by_number.get(value)
        return name.name if name else value
    return str(value) if field.type in _LONG else value


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


def format_command(name: str, answer: "CommandResult", session_id: str) -> str:
    """Return the line with the answer of a command such as `/stats`; `session_id` is the session to continue in."""
    fields: dict[str, Any] = {"type": "command", "name": name, "text": answer.full_text, "sessionId": session_id}
    if answer.response is not None:
        fields["result"] = _to_json(answer.response)
    return dumps(fields) + "\n"


class _JsonLinesViewer:
    def __init__(self, out: Sink) -> None:
        self._out = out
        self._encoder = EventEncoder()

    async def show(self, event: pb.AgentEvent, kind: str) -> None:
        self._out.write(self._encoder.encode(event, kind) + "\n")

    async def drain(self) -> None:
        await self._out.drain()
