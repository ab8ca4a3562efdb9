"""`yarrow permissions`: lists and revokes the calls that are always allowed."""

import json
from typing import Any

from yarrow.cli.exit_codes import ExitCode
from yarrow.cli.main import complain
from yarrow.cli.opened import Start, opened
from yarrow.cli.output import Output
from yarrow.client.allowed import described, listing, revoke, revoked_number
from yarrow.client.command import WrongWords
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb

_RUNNING = "yarrow: a running Yarrow allows it until it restarts; type /permissions there to revoke it at once\n"


async def permissions(start: Start) -> ExitCode:
    """List the calls that are always allowed, or revoke one. Raises `aio.AioRpcError`."""
    arguments = start.arguments
    try:
        number = revoked_number(arguments.words)
        async with opened(start) as stub, Output(out=start.out) as output:
            if number is None:
                output.out.write(await _listed(stub, as_json=arguments.json))
                return ExitCode.DONE
            call = await revoke(stub, number)
            text = json.dumps({"revoked": _fields(call)}) if arguments.json else f"Revoked {described(call)}"
            output.out.write(f"{text}\n")
            # Another process read the settings when it started.
            output.err.write("" if arguments.attach else _RUNNING)
    except WrongWords as error:
        return complain(str(error), ExitCode.USAGE)
    return ExitCode.DONE


async def _listed(stub: Stub, *, as_json: bool) -> str:
    """Return the calls in words, or as one JSON object a line."""
    listed = await stub.ListPermissions(pb.ListPermissionsRequest())
    if not as_json:
        return f"{listing(listed)}\n"
    calls = enumerate(listed.calls, 1)
    return "".join(
        json.dumps({"number": number, **_fields(call), "file": listed.file}) + "\n" for number, call in calls
    )


def _fields(call: pb.AllowedCall) -> dict[str, Any]:
    return {"tool": call.tool, "subject": call.subject, "cwd": call.cwd, "uncontained": call.uncontained}
