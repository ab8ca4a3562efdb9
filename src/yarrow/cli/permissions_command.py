"""`yarrow permissions`: lists and revokes always allowed calls."""

import json
from typing import Any

from yarrow.cli.cli_context import CliContext, open_service
from yarrow.cli.exit_codes import ExitCode
from yarrow.cli.output_writer import OutputWriter
from yarrow.cli.standard_streams import print_error
from yarrow.client.setting_slash_commands import format_call, format_calls, parse_words, revoke
from yarrow.client.slash_command import CommandError
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb

_RESTART_NOTICE = (
    "yarrow: if another Yarrow is running, it still allows the call until it restarts; to revoke it there now, type "
    "/permissions revoke N\n"
)


async def run_permissions(context: CliContext) -> ExitCode:
    """List the always allowed calls, or revoke one. Raises `aio.AioRpcError`."""
    arguments = context.arguments
    try:
        number = parse_words(arguments.words)
        async with open_service(context) as stub, OutputWriter(out=context.out) as output:
            if number is None:
                output.out.write(await _list_calls(stub, as_json=arguments.json))
                return ExitCode.DONE
            call = await revoke(stub, number)
            text = json.dumps({"revoked": _fields(call)}) if arguments.json else f"Revoked {format_call(call)}"
            output.out.write(f"{text}\n")
            # Other processes read the settings only at startup.
            output.err.write("" if arguments.attach else _RESTART_NOTICE)
    except CommandError as error:
        return print_error(str(error), ExitCode.USAGE)
    return ExitCode.DONE


async def _list_calls(stub: Stub, *, as_json: bool) -> str:
    """Return the calls as text, or as one JSON object per line."""
    listed = await stub.ListPermissions(pb.ListPermissionsRequest())
    if not as_json:
        return f"{format_calls(listed)}\n"
    calls = enumerate(listed.calls, 1)
    return "".join(
        json.dumps({"number": number, **_fields(call), "file": listed.file}) + "\n" for number, call in calls
    )


def _fields(call: pb.AllowedCall) -> dict[str, Any]:
    return {"tool": call.tool, "subject": call.subject, "cwd": call.cwd, "uncontained": call.uncontained}
