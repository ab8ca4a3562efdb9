"""Runs a shell command for the person, and prints what it puts out as it comes."""

import msgspec

from yarrow.client import way_out
from yarrow.client.command import WrongWords
from yarrow.client.inert import inert
from yarrow.client.json_event import dumps
from yarrow.client.sink import Sink
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb

SIGN = "!"
"""Begins such a line; with two of them the model is not told, with three the command runs outside the sandbox."""
REASON = "the user typed it"
"""Reason of a command outside the sandbox, which the tool requires."""
KEPT = 1 << 16
"""Characters of what came that are compared with the whole output; a longer one comes back cut anyway."""


class _Arguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: str
    outside: bool = False
    reason: str = ""


def request_of(session_id: str, line: str) -> pb.RunToolRequest:
    """Return what the service is asked by a line such as `!ls`. Raises `WrongWords` when it names no command."""
    command = line.lstrip(SIGN).strip()
    if not command:
        raise WrongWords("usage: !COMMAND, !!COMMAND to tell nobody, or !!!COMMAND to run it outside the sandbox")
    is_outside = line.startswith(way_out.SIGN)
    silent = line.startswith(2 * SIGN) and not is_outside
    arguments = dumps({"command": command, **({"outside": True, "reason": REASON} if is_outside else {})})
    return pb.RunToolRequest(session_id=session_id, arguments_json=arguments, silent=silent)


def line_of(typed: str, text: str) -> str:
    """Return the line that the user typed for a message with a text: `!ls` for the run of a shell command."""
    tool, _, arguments = typed.partition(" ")
    if not text.startswith(f"I ran the tool {tool} with "):
        return typed
    try:
        made = msgspec.json.decode(arguments, type=_Arguments)
    except (msgspec.DecodeError, RecursionError):
        return typed
    return f"{way_out.SIGN if made.outside else SIGN}{made.command}"


async def run_by_hand(stub: Stub, request: pb.RunToolRequest, *, out: Sink) -> None:
    """Run a tool and print its output, whole. Raises `aio.AioRpcError` when the service refuses."""
    shown, last = "", ""
    async for response in stub.RunTool(request):
        event = response.event
        if event.HasField("tool_delta"):
            text = event.tool_delta.text
            out.write(inert(text))
            shown, last = (shown + text)[: KEPT + 1], text or last
        elif event.HasField("tool_output"):
            rest = _rest(event.tool_output, shown)
            if rest and last and not last.endswith("\n"):
                out.write("\n")
            out.write(f"{inert(rest)}\n" if rest else "\n" * (not last.endswith("\n")))
            if way_out.is_offered(event.tool_output.text):
                out.write(f"yarrow: {way_out.OFFER}\n")
        await out.drain()


def _rest(output: pb.ToolOutput, shown: str) -> str:
    """Return what of an output is not printed yet: all, what stands below what came, or how it ended."""
    if len(shown) <= KEPT and output.text.startswith(shown.rstrip("\n")):
        return output.text[len(shown.rstrip("\n")) :].strip("\n")
    return output.text.rstrip("\n").rpartition("\n")[2] if output.is_error else ""
