"""Start of the terminal UI on the process's terminal."""

import asyncio
import errno
import os
import select
import sys
from collections.abc import Callable
from functools import partial
from threading import Thread
from types import TracebackType
from typing import Self

from yarrow.cli.cli_context import CliContext, choose_session, format_resume_command, open_service
from yarrow.cli.exit_codes import ExitCode
from yarrow.cli.first_start import ensure_backend
from yarrow.cli.standard_streams import print_error
from yarrow.cli.type_ahead import TypeAhead
from yarrow.client.session_lookup import make_similar_session
from yarrow.client.tui.app import App, AppOptions
from yarrow.client.tui.terminal import make_terminal
from yarrow.platform import system
from yarrow.v1 import agent_pb2 as pb


async def run_terminal_ui(context: CliContext, request: pb.PromptRequest, ahead: TypeAhead) -> ExitCode:
    """Run the terminal UI until the user quits or the terminal is closed.

    Raises `aio.AioRpcError` if no session can be opened.
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
        print_error(f"Resume with: {format_resume_command(context.arguments, session_id)}", ExitCode.DONE, prefix="")
    return ExitCode.DONE


async def _run(context: CliContext, request: pb.PromptRequest, ahead: TypeAhead) -> str:
    """Run the terminal UI; return the id of the last open session."""
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


MAX_LINES = 200
"""Maximum captured lines shown; a notice follows, and later lines are dropped."""
MAX_LINE_CHARACTERS = 2_000
"""Maximum characters shown of a line."""
_CHUNK = 1 << 16


class StdoutCapture:
    """Context manager that captures standard output and error if they are the terminal.

    A thread reads them: code that prints in the event loop's own thread must never wait for that loop.
    """

    def __init__(self, on_line: Callable[[str], None]) -> None:
        """`on_line` is called in the event loop with each line."""
        self._on_line = on_line
        self._loop = asyncio.get_running_loop()
        self._saved: dict[int, int] = {}
        self._rest = b""
        self._left = MAX_LINES

    def __enter__(self) -> Self:
        """Start the capture."""
        self._saved = {descriptor: os.dup(descriptor) for descriptor in (1, 2) if os.isatty(descriptor)}
        self._source, sink = os.pipe()
        self._over, self._end = os.pipe()
        for descriptor in self._saved:
            os.dup2(sink, descriptor)
        os.close(sink)
        self._thread = Thread(target=self._read, name="yarrow-strays", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Restore both; a program that still writes to the capture gets an error from the system."""
        for descriptor, saved in self._saved.items():
            os.dup2(saved, descriptor)
            os.close(saved)
        os.close(self._end)
        self._thread.join()
        os.close(self._source)
        os.close(self._over)

    def _read(self) -> None:
        while self._source in select.select([self._source, self._over], [], [])[0]:
            data = os.read(self._source, _CHUNK)
            *lines, self._rest = (self._rest + data).split(b"\n")
            # An unterminated line is shown once it is long, or when nothing more can come.
            if len(self._rest) > MAX_LINE_CHARACTERS or (not data and self._rest):
                lines, self._rest = [*lines, self._rest], b""
            for line in filter(None, lines[: self._left + 1]):
                self._emit(line.decode("utf-8", "replace")[:MAX_LINE_CHARACTERS])
            if not data:
                return

    def _emit(self, line: str) -> None:
        self._left -= 1
        if self._left >= 0:
            self._loop.call_soon_threadsafe(self._on_line, line)
        elif self._left == -1:
            self._loop.call_soon_threadsafe(self._on_line, "More output was dropped. Use 2>FILE to keep it.")
