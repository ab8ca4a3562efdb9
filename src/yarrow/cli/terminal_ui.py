"""Starts the terminal UI on the process's own terminal, and says at its end how to go on."""

import errno
import os
import sys
from functools import partial

from yarrow.cli.cli_context import CliContext, choose_session, format_resume_command, open_service
from yarrow.cli.exit_codes import ExitCode
from yarrow.cli.first_start import ensure_backend
from yarrow.cli.main import print_error
from yarrow.cli.stdout_capture import StdoutCapture
from yarrow.cli.type_ahead import TypeAhead
from yarrow.client.session_setup import make_similar_session
from yarrow.client.tui.app import App, AppOptions
from yarrow.client.tui.terminal import make_terminal
from yarrow.platform import system
from yarrow.v1 import agent_pb2 as pb


async def run_terminal_ui(context: CliContext, request: pb.PromptRequest, ahead: TypeAhead) -> ExitCode:
    """Run the terminal UI until the person leaves it, or their terminal is closed.

    Raises `aio.AioRpcError` when no session can be opened.
    """
    try:
        session_id = await _run(context, request, ahead)
    except OSError as error:
        if error.errno != errno.EIO or not system.is_peer_closed(context.out):
            raise
        return ExitCode.INTERRUPTED
    if system.is_peer_closed(context.out):
        return ExitCode.INTERRUPTED
    if not request.options.ephemeral:
        print_error(f"go on with: {format_resume_command(context.arguments, session_id)}", ExitCode.DONE)
    return ExitCode.DONE


async def _run(context: CliContext, request: pb.PromptRequest, ahead: TypeAhead) -> str:
    """Run the terminal UI; return the id of the session that was open last."""
    with os.fdopen(os.dup(context.out), "w", encoding=sys.stdout.encoding, errors="replace") as out:
        ends = make_terminal(sys.stdin, out, os.environ, original_modes=ahead.original_modes)
        context = await ensure_backend(context, ends, before=ahead.read_pending)
        async with open_service(context) as stub:
            session = await choose_session(stub, context.arguments, request)

            async def another(cwd: str) -> str:
                return (await make_similar_session(stub, request, cwd)).session_id

            opening = AppOptions(
                session.session_id,
                context.loaded.notices,
                another,
                run_continues=bool(context.arguments.attach),
                take_type_ahead=ahead.take_text,
            )
            app = App(stub, opening, ends)
            with StdoutCapture(partial(app.add_note, "notice")):
                return await app.run()
