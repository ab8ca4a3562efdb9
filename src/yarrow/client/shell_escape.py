"""Runs a shell command for the person, and prints what it puts out as it comes."""

import msgspec

from yarrow.client import unsandboxed_rerun
from yarrow.client.event_json import dumps
from yarrow.client.sanitizer import sanitize
from yarrow.client.sink import Sink
from yarrow.client.slash_command import CommandError
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb

BANG = "!"
"""Begins such a line; with two of them the model is not told, with three the command runs outside the sandbox."""
REASON = "the user typed it"
"""Reason of a command outside the sandbox, which the tool requires."""
MAX_COMPARED_CHARACTERS = 1 << 16
"""Characters of what came that are compared with the whole output; a longer one comes back cut anyway."""


class _ShellArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: str
    outside: bool = False
    reason: str = ""


def parse_bang(session_id: str, line: str) -> pb.RunToolRequest:
    """Return what the service is asked by a line such as `!ls`. Raises `CommandError` when it names no command."""
    command = line.lstrip(BANG).strip()
    if not command:
        raise CommandError("usage: !COMMAND, !!COMMAND to tell nobody, or !!!COMMAND to run it outside the sandbox")
    is_outside = line.startswith(unsandboxed_rerun.UNSANDBOXED_BANG)
    silent = line.startswith(2 * BANG) and not is_outside
    arguments = dumps({"command": command, **({"outside": True, "reason": REASON} if is_outside else {})})
    return pb.RunToolRequest(session_id=session_id, arguments_json=arguments, silent=silent)


def format_bang(typed: str, text: str) -> str:
    """Return the line that the user typed for a message with a text: `!ls` for the run of a shell command."""
    tool, _, arguments = typed.partition(" ")
    if not text.startswith(f"I ran the tool {tool} with "):
        return typed
    try:
        made = msgspec.json.decode(arguments, type=_ShellArguments)
    except (msgspec.DecodeError, RecursionError):
        return typed
    return f"{unsandboxed_rerun.UNSANDBOXED_BANG if made.outside else BANG}{made.command}"


async def run_shell_command(stub: Stub, request: pb.RunToolRequest, *, out: Sink) -> None:
    """Run a tool and print its output, whole. Raises `aio.AioRpcError` when the service refuses."""
    shown, last = "", ""
    async for response in stub.RunTool(request):
        event = response.event
        if event.HasField("tool_delta"):
            text = event.tool_delta.text
            out.write(sanitize(text))
            shown, last = (shown + text)[: MAX_COMPARED_CHARACTERS + 1], text or last
        elif event.HasField("tool_output"):
            rest = _find_unprinted(event.tool_output, shown)
            if rest and last and not last.endswith("\n"):
                out.write("\n")
            out.write(f"{sanitize(rest)}\n" if rest else "\n" * (not last.endswith("\n")))
            if unsandboxed_rerun.is_rerun_offered(event.tool_output.text):
                out.write(f"yarrow: {unsandboxed_rerun.RERUN_OFFER}\n")
        await out.drain()


def _find_unprinted(output: pb.ToolOutput, shown: str) -> str:
    """Return what of an output is not printed yet: all, what stands below what came, or how it ended."""
    if len(shown) <= MAX_COMPARED_CHARACTERS and output.text.startswith(shown.rstrip("\n")):
        return output.text[len(shown.rstrip("\n")) :].strip("\n")
    return output.text.rstrip("\n").rpartition("\n")[2] if output.is_error else ""
