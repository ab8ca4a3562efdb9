"""A conversation line by line, for screen readers and terminals that cannot move a cursor: nothing is ever redrawn."""

import os
from collections.abc import Awaitable, Callable, Iterable

from grpc import aio
from msgspec.structs import replace

from yarrow.cli.exit_codes import ExitCode
from yarrow.cli.lines import CONTINUED, Lines
from yarrow.cli.opened import Start, chosen, going_on, opened
from yarrow.cli.output import Output
from yarrow.cli.person import person_at
from yarrow.cli.run import abort_on_interrupt
from yarrow.client import plain
from yarrow.client.by_hand import SIGN, request_of, run_by_hand
from yarrow.client.command import Failed, Here, WrongWords
from yarrow.client.failure import Refusal, SessionNotFound, refusal
from yarrow.client.files import WrongPath
from yarrow.client.inert import inert
from yarrow.client.missed import messages_after
from yarrow.client.session import (
    DELETED,
    NEEDS_SESSION,
    Session,
    is_there,
    make_another,
    open_session,
    renewed,
)
from yarrow.client.stub import Stub
from yarrow.client.table import CONVERSING, NAME, perform_line
from yarrow.client.tui.clipboard import write_text
from yarrow.v1 import agent_pb2 as pb

LEAVING = ("/quit", "/exit")
INSTEAD = {
    "resume": "/tree lists the sessions, and /resume SESSION goes on with one",
    "merge": "/tree lists the sessions, and /merge SESSION [--summary] brings one in",
    "rebase": "/show lists the messages, and /rebase INDEX... [--squash] chooses some",
}
"""Commands that, alone, let one choose on the whole screen, and what does the same line by line."""


async def conversation(start: Start, request: pb.PromptRequest) -> ExitCode:
    """Take one prompt after the other until the end of input. Raises `aio.AioRpcError` when there is no session."""
    async with opened(start) as stub, Output(out=start.out) as output:
        for notice in start.loaded.notices:
            output.err.write(f"yarrow: {inert(notice)}\n")
        lines = Lines(output.err)
        person = person_at(output, keep=lines.keep)
        terminal = plain.Terminal(output.out, output.err, person)
        talk = Conversation(stub, request, await chosen(stub, start.arguments, request), terminal=terminal)
        talk.greet()
        while (line := await lines.next()) is not None:
            # A space before the slash says that it is no command.
            text = line.rstrip()
            if text and text.split(None, 1)[0] in LEAVING and not text[0].isspace():
                break
            if text:
                await talk.do(text)
        else:
            # The end of input stands behind the last "> ".
            output.err.write("\n")
        if not request.options.ephemeral:
            output.err.write(
                f"yarrow: go on with: {going_on(start.arguments._replace(plain=True), talk.session.session_id)}\n"
            )
    return ExitCode.DONE


class Conversation:
    """What is said in one session after the other."""

    def __init__(self, stub: Stub, request: pb.PromptRequest, session: Session, *, terminal: plain.Terminal) -> None:
        self.session = session
        self._stub = stub
        self._request = request
        self._terminal = terminal

    async def do(self, text: str) -> None:
        """Do what a line says, and say what goes wrong."""
        try:
            await self._do(text)
        except aio.AioRpcError as error:
            self._complain(await self._why(refusal(error)))
        except (WrongWords, WrongPath, Failed, SessionNotFound) as error:
            self._complain(str(error))

    async def _why(self, refused: Refusal) -> str:
        """Return why the service refused, with what is to be done about a session that is not there."""
        if refused.reason != "SESSION_UNKNOWN":
            return refused.message
        is_open = await is_there(self._stub, self.session.session_id)
        return f"{refused.message}; /tree lists them" if is_open else NEEDS_SESSION

    async def _do(self, text: str) -> None:
        found = NAME.match(text)
        name = found[1] if found else ""
        if text.startswith(SIGN):
            await self._renew()
            command = run_by_hand(self._stub, request_of(self.session.session_id, text), out=self._terminal.out)
            await abort_on_interrupt(command, self._stub, self.session)
        elif found and name in OWN:
            await OWN[name][1](self)
        elif found and name in CONVERSING:
            if name in INSTEAD and found.end() == len(text):
                raise WrongWords(f"the terminal UI alone draws a list to choose from; {INSTEAD[name]}")
            await self._by_table(text)
        else:
            if found:
                await self._refuse_unknown(name)
            await self._renew()
            prompt = pb.PromptRequest(text=text)
            run = plain.run(self._stub, self.session, prompt, terminal=self._terminal)
            await abort_on_interrupt(run, self._stub, self.session)

    async def _renew(self) -> None:
        """Go on in another session, set as the present one was, where that was deleted elsewhere."""
        present = self.session
        if await is_there(self._stub, present.session_id):
            return
        made = await renewed(self._stub, self._make, present.cwd, settings=present.settings or pb.SessionSettings())
        self._complain(DELETED)
        self.session = await open_session(self._stub, made, pb.SessionSettings())
        self.greet()

    async def _by_table(self, text: str) -> None:
        here = Here(self._stub, self.session.session_id, self.session.cwd, self._make)
        answer = await perform_line(here, text, table=CONVERSING)
        self._terminal.out.write(f"{inert(answer.whole)}\n")
        if answer.session_id or answer.sets:
            going_on = answer.session_id or self.session.session_id
            self.session = await open_session(self._stub, going_on, pb.SessionSettings())
            self.greet()

    async def _make(self, cwd: str) -> str:
        return (await make_another(self._stub, self._request, cwd)).session_id

    async def _refuse_unknown(self, name: str) -> None:
        """Raise `WrongWords` for what looks like a command and is none here: it is not for the model."""
        if not {name, f"skill:{name}"} & {one.name for one in await self._listed()}:
            raise WrongWords(
                f"there is no command /{name} here; /help lists them. A space before the slash sends it as it is"
            )

    async def _listed(self) -> Iterable[pb.Command]:
        request = pb.ListCommandsRequest(session_id=self.session.session_id)
        return (await self._stub.ListCommands(request)).commands

    async def help(self) -> None:
        """Say what can be typed."""
        rows = [(f"/{name} {one.usage}".strip(), one.help) for name, one in CONVERSING.items()]
        rows += [(f"/{name}", text) for name, (text, _) in OWN.items()]
        rows += [(f"/{one.name}", one.description) for one in await self._listed()]
        self._terminal.err.write("".join(f"{left}: {inert(right)}\n" for left, right in (*rows, *OTHERS)))

    async def copy(self) -> None:
        """Put the last answer into the clipboard, by a program: a terminal that cannot redraw is asked for nothing."""
        answer = ""
        async for message in messages_after(self._stub, self.session.session_id, ""):
            said = "".join(block.text.text for block in message.content)
            answer = said if message.role == pb.ROLE_ASSISTANT and said else answer
        if not answer:
            raise WrongWords("there is no answer to copy yet")
        program = await write_text(answer, os.environ)
        if not program:
            raise WrongWords(
                "no program that copies is there: wl-copy, xclip, pbcopy or tmux; /export PATH writes a file"
            )
        self._terminal.out.write(f"copied the last answer, {len(answer):,} characters, by {program}\n")

    async def reload(self) -> None:
        """Print the session anew."""
        await self._by_table("/show")

    def greet(self) -> None:
        """Say once what is to be known of the session."""
        session = self.session
        if session.provider_reason:
            self._complain(f"answering with {session.provider}/{session.model}: {session.provider_reason}")
        for sentence in session.warnings:
            self._complain(sentence)
        self.session = replace(session, provider_reason="", warnings=())

    def _complain(self, sentence: str) -> None:
        self._terminal.err.write(f"yarrow: {inert(sentence)}\n")


OWN: dict[str, tuple[str, Callable[[Conversation], Awaitable[None]]]] = {
    "copy": ("copy the last answer", Conversation.copy),
    "reload": ("print the session anew", Conversation.reload),
    "help": ("this help", Conversation.help),
}
"""Commands besides those of the table: what each does, in words and in deed."""
OTHERS = (
    ("/quit", "leave"),
    (f"{SIGN}COMMAND", "run a shell command and tell the model"),
    (f"{2 * SIGN}COMMAND", "run it and tell nobody"),
    (f"...{CONTINUED}", "a line that ends so goes on in the next"),
)
"""What else can be typed, and what it does."""
