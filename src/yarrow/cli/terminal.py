"""Starts the terminal UI on the process's own terminal, and says at its end how to go on."""

import os
import sys

from yarrow.cli.exit_codes import ExitCode
from yarrow.cli.main import complain
from yarrow.cli.opened import Start, chosen, opened
from yarrow.client.describe import short
from yarrow.client.session import make_session
from yarrow.client.tui.app import Opening
from yarrow.client.tui.start import start as start_ui
from yarrow.v1 import agent_pb2 as pb


async def terminal(start: Start, request: pb.PromptRequest) -> ExitCode:
    """Run the terminal UI until the person leaves it. Raises `aio.AioRpcError` when no session can be opened."""
    async with opened(start) as stub:
        session = await chosen(stub, start.arguments, request)

        async def another() -> str:
            return (await make_session(stub, request)).session_id

        opening = Opening(session.session_id, start.loaded.notices, another)
        with os.fdopen(os.dup(start.out), "w", encoding=sys.stdout.encoding, errors="replace") as out:
            session_id = await start_ui(stub, opening, ends=(sys.stdin, out), environment=os.environ)
    if not request.options.ephemeral:
        complain(f"go on with: yarrow -r {short(session_id)}", ExitCode.DONE)
    return ExitCode.DONE
