"""Starts the terminal UI on the process's own terminal, and says at its end how to go on."""

import errno
import os
import sys
from functools import partial

from yarrow.cli.exit_codes import ExitCode
from yarrow.cli.first_start import with_backend
from yarrow.cli.main import complain
from yarrow.cli.opened import Start, chosen, going_on, opened
from yarrow.cli.strays import Strays
from yarrow.cli.type_ahead import TypeAhead
from yarrow.client.session import make_another
from yarrow.client.tui.app import App, Opening
from yarrow.client.tui.terminal import terminal_of
from yarrow.platform import system
from yarrow.v1 import agent_pb2 as pb


async def terminal(start: Start, request: pb.PromptRequest, ahead: TypeAhead) -> ExitCode:
    """Run the terminal UI until the person leaves it, or their terminal is closed.

    Raises `aio.AioRpcError` when no session can be opened.
    """
    try:
        session_id = await _run(start, request, ahead)
    except OSError as error:
        if error.errno != errno.EIO or not system.is_left(start.out):
            raise
        return ExitCode.INTERRUPTED
    if system.is_left(start.out):
        return ExitCode.INTERRUPTED
    if not request.options.ephemeral:
        complain(f"go on with: {going_on(start.arguments, session_id)}", ExitCode.DONE)
    return ExitCode.DONE


async def _run(start: Start, request: pb.PromptRequest, ahead: TypeAhead) -> str:
    """Run the terminal UI; return the id of the session that was open last."""
    with os.fdopen(os.dup(start.out), "w", encoding=sys.stdout.encoding, errors="replace") as out:
        ends = terminal_of(sys.stdin, out, os.environ, cooked=ahead.before)
        start = await with_backend(start, ends, before=ahead.keep)
        async with opened(start) as stub:
            session = await chosen(stub, start.arguments, request)

            async def another(cwd: str) -> str:
                return (await make_another(stub, request, cwd)).session_id

            opening = Opening(
                session.session_id,
                start.loaded.notices,
                another,
                outlives=bool(start.arguments.attach),
                typed_ahead=ahead.take,
            )
            app = App(stub, opening, ends)
            with Strays(partial(app.note, "notice")):
                return await app.run()
