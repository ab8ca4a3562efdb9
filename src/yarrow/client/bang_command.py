"""Shell commands of the user (`!`), with or without a sandbox."""

import msgspec

from yarrow.client.json_mode import Sink, dumps
from yarrow.client.slash_command import CommandError
from yarrow.client.stub import Stub
from yarrow.client.terminal_text_sanitizer import sanitize
from yarrow.v1 import agent_pb2 as pb

SANDBOX_MARK = "[sandbox: "
"""Start of the last line of an output whose command failed because of the sandbox."""
OUTSIDE_ARGUMENT = "outside: true"
"""Part of that line if the command may run outside the sandbox."""
RERUN_PROMPT = f"Run it again with {OUTSIDE_ARGUMENT}."
"""Prompt that asks the model to do so."""
UNSANDBOXED_BANG = "!!!"
"""Prefix of a line that runs a command of the user outside the sandbox."""
RERUN_OFFER = f"Type {UNSANDBOXED_BANG}COMMAND to run it outside the sandbox."


MODEL_INSTRUCTION = " To run it outside the sandbox"
"""Start of the part of that line that is meant for the model."""


def is_rerun_offered(output: str) -> bool:
    """Return whether an output says that its command can be run again outside the sandbox."""
    last = output.rstrip("\n").rpartition("\n")[2]
    return last.startswith(SANDBOX_MARK) and last.endswith("]") and OUTSIDE_ARGUMENT in last


def strip_instruction(output: str) -> str:
    """Return an output without the part of its last line that is meant for the model only."""
    above, line_end, last = output.rstrip("\n").rpartition("\n")
    return f"{above}{line_end}{last.partition(MODEL_INSTRUCTION)[0]}]" if is_rerun_offered(output) else output


BANG = "!"
"""Prefix of a shell command; with two the model does not see it, with three it runs outside the sandbox."""
REASON = "the user typed it"
"""Reason for running a command outside the sandbox, which the tool requires."""
MAX_COMPARED_CHARACTERS = 1 << 16
"""Maximum characters of streamed output compared with the whole output; a longer one is returned truncated anyway."""


class _ShellArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    command: str
    outside: bool = False
    reason: str = ""


def parse_bang(session_id: str, line: str) -> pb.RunToolRequest:
    """Return the request for a line such as `!ls`. Raises `CommandError` if it contains no command."""
    command = line.lstrip(BANG).strip()
    if not command:
        raise CommandError(
            "usage: !COMMAND, !!COMMAND to hide it from the model, or !!!COMMAND to run it outside the sandbox"
        )
    is_outside = line.startswith(UNSANDBOXED_BANG)
    silent = line.startswith(2 * BANG) and not is_outside
    arguments = dumps({"command": command, **({"outside": True, "reason": REASON} if is_outside else {})})
    return pb.RunToolRequest(session_id=session_id, arguments_json=arguments, silent=silent)


def format_bang(typed: str, text: str) -> str:
    """Return the line that the user typed for a message with the text `text`: `!ls` for a shell command."""
    tool, _, arguments = typed.partition(" ")
    if not text.startswith(f"I ran the tool {tool} with "):
        return typed
    try:
        made = msgspec.json.decode(arguments, type=_ShellArguments)
    except (msgspec.DecodeError, RecursionError):
        return typed
    return f"{UNSANDBOXED_BANG if made.outside else BANG}{made.command}"


async def run_shell_command(stub: Stub, request: pb.RunToolRequest, *, out: Sink) -> None:
    """Run a tool and print its whole output. Raises `aio.AioRpcError` if the service refuses."""
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
            if is_rerun_offered(event.tool_output.text):
                out.write(f"yarrow: {RERUN_OFFER}\n")
        await out.drain()


def _find_unprinted(output: pb.ToolOutput, shown: str) -> str:
    """Return the unprinted part of an output: what follows the streamed text, or else the last line of an error."""
    if len(shown) <= MAX_COMPARED_CHARACTERS and output.text.startswith(shown.rstrip("\n")):
        return output.text[len(shown.rstrip("\n")) :].strip("\n")
    return output.text.rstrip("\n").rpartition("\n")[2] if output.is_error else ""
