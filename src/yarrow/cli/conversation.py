"""A conversation line by line, for screen readers and terminals that cannot move a cursor: nothing is ever redrawn."""

import asyncio
import os

from grpc import aio

from yarrow.cli.exit_codes import ExitCode
from yarrow.cli.opened import Start, chosen, opened
from yarrow.cli.output import Output, Stream
from yarrow.cli.person import person_at
from yarrow.cli.run import abort_on_interrupt
from yarrow.client import plain
from yarrow.client.describe import short
from yarrow.client.failure import SessionNotFound, refusal
from yarrow.client.files import WrongPath
from yarrow.client.inert import inert
from yarrow.client.session import Session, open_session
from yarrow.client.stub import Stub
from yarrow.client.table import COMMANDS, NAME, Failed, Here, WrongWords, is_command, perform_line
from yarrow.platform import system
from yarrow.v1 import agent_pb2 as pb

SIGN = "> "
CONTINUED = "\\"
"""A line that ends so goes on in the next."""
LEAVING = ("/quit", "/exit")
LONGEST_READ = 1 << 16
"""Bytes taken of the terminal at one time."""


async def conversation(start: Start, request: pb.PromptRequest) -> ExitCode:
    """Take one prompt after the other until the end of input. Raises `aio.AioRpcError` when there is no session."""
    async with opened(start) as stub, Output(out=start.out) as output:
        terminal = plain.Terminal(output.out, output.err, person_at(output))
        session = await chosen(stub, start.arguments, request)
        lines = _Lines(output.err)
        while (line := await lines.next()) is not None:
            text = line.strip()
            if text in LEAVING:
                break
            if text == "/help":
                terminal.err.write(await _help(stub, session))
            elif text:
                session = await _do(stub, session, text, terminal=terminal)
        else:
            # The end of input stands behind the last "> ".
            output.err.write("\n")
        if not request.options.ephemeral:
            output.err.write(f"yarrow: go on with: yarrow --plain -r {short(session.session_id)}\n")
    return ExitCode.DONE


async def _help(stub: Stub, session: Session) -> str:
    listed = await stub.ListCommands(pb.ListCommandsRequest(session_id=session.session_id))
    rows = [(f"/{name} {one.usage}".strip(), one.help) for name, one in COMMANDS.items()]
    rows += [(f"/{one.name}", one.description) for one in listed.commands]
    rows += [("/quit", "leave"), ("...\\", "a line that ends so goes on in the next")]
    return "".join(f"{left}: {inert(right)}\n" for left, right in rows)


async def _refuse_unknown(stub: Stub, session: Session, text: str) -> None:
    """Raise `WrongWords` for what looks like a command and is none here: it is not for the model."""
    if text.startswith("!"):
        raise WrongWords("shell commands are run by the terminal UI alone; to send this as a text, put it in quotes")
    found = NAME.match(text)
    if found is None:
        return
    listed = await stub.ListCommands(pb.ListCommandsRequest(session_id=session.session_id))
    names = {one.name for one in listed.commands}
    if not {found[1], f"skill:{found[1]}"} & names:
        raise WrongWords(
            f"there is no command /{found[1]} here; /help lists them. To send it as a text, put it in quotes"
        )


async def _do(stub: Stub, session: Session, text: str, *, terminal: plain.Terminal) -> Session:
    """Do what a line says, and say what goes wrong; return the session that is open then."""
    try:
        if not is_command(text):
            await _refuse_unknown(stub, session, text)
            prompt = pb.PromptRequest(text=text)
            await abort_on_interrupt(plain.run(stub, session, prompt, terminal=terminal), stub, session)
            return session
        answer = await perform_line(Here(stub, session.session_id, session.cwd), text)
        terminal.out.write(f"{inert(answer.text)}\n")
        return await open_session(stub, answer.session_id, pb.SessionSettings()) if answer.session_id else session
    except aio.AioRpcError as error:
        terminal.err.write(f"yarrow: {inert(refusal(error).message)}\n")
    except (WrongWords, WrongPath, Failed, SessionNotFound) as error:
        terminal.err.write(f"yarrow: {inert(str(error))}\n")
    return session


class _Lines:
    """What is typed, line by line."""

    def __init__(self, err: Stream, *, descriptor: int = 0) -> None:
        self._err = err
        self._descriptor = descriptor
        self._rest = ""
        self._is_over = False

    async def next(self) -> str | None:
        """Ask for a line and return it, with those that it goes on in; None at the end of input."""
        self._err.write(SIGN)
        line = await self._line()
        while line is not None and line.endswith(CONTINUED) and (more := await self._line()) is not None:
            line = f"{line.removesuffix(CONTINUED)}\n{more}"
        return line

    async def _line(self) -> str | None:
        while "\n" not in self._rest and not self._is_over:
            data = await self._read()
            self._rest += data.decode("utf-8", "replace")
            self._is_over = not data
        line, end, self._rest = self._rest.partition("\n")
        return line if line or end else None

    async def _read(self) -> bytes:
        loop = asyncio.get_running_loop()
        typed = asyncio.Event()
        system.watch(loop, self._descriptor, typed.set)
        try:
            await typed.wait()
        finally:
            system.unwatch(loop, self._descriptor)
        return os.read(self._descriptor, LONGEST_READ)
