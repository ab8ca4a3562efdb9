"""Line-by-line conversation for screen readers and simple terminals; nothing is redrawn."""

import os
from collections.abc import Awaitable, Callable, Iterable

from grpc import aio
from msgspec.structs import replace

from yarrow.cli.cli_context import CliContext, choose_session, format_resume_command, open_service
from yarrow.cli.exit_codes import ExitCode
from yarrow.cli.interrupt_handler import abort_on_interrupt
from yarrow.cli.output_writer import OutputStream, OutputWriter
from yarrow.cli.terminal_permissions import open_permission_ui, read_terminal
from yarrow.client import plain_mode
from yarrow.client.message_history import read_messages_after
from yarrow.client.rpc_errors import RpcFailure, SessionNotFound, parse_rpc_error
from yarrow.client.sanitizer import sanitize
from yarrow.client.session_files import FilePathError
from yarrow.client.session_setup import (
    SESSION_DELETED,
    SESSION_NEEDED,
    SessionInfo,
    make_similar_session,
    open_session,
    recreate_session,
    session_exists,
)
from yarrow.client.shell_escape import BANG, parse_bang, run_shell_command
from yarrow.client.slash_command import CommandContext, CommandError, CommandFailedError
from yarrow.client.slash_commands import CHAT_COMMANDS, COMMAND_NAME, run_line
from yarrow.client.stub import Stub
from yarrow.client.tui.clipboard import write_text
from yarrow.v1 import agent_pb2 as pb

PROMPT = "> "
CONTINUATION = "\\"
"""Suffix of a line that continues on the next."""
MAX_READ_BYTES = 1 << 16
"""Maximum bytes per read from the terminal."""


class LineReader:
    """Reads lines typed at the terminal."""

    def __init__(self, err: OutputStream, *, descriptor: int = 0) -> None:
        self._err = err
        self._descriptor = descriptor
        self._rest = b""
        self._has_kept_lines = False
        """True once text typed during a permission question was pushed back; its pending whole lines must be echoed."""
        self._is_at_end = False

    async def read_line(self) -> str | None:
        """Prompt for a line and return it with its continuation lines; None at the end of input."""
        # The start of a line typed during a question is shown again.
        begun = b"" if b"\n" in self._rest else self._rest
        self._err.write(PROMPT + sanitize(begun.decode("utf-8", "replace")))
        line = await self._read_physical_line()
        while (
            line is not None and line.endswith(CONTINUATION) and (more := await self._read_physical_line()) is not None
        ):
            line = f"{line.removesuffix(CONTINUATION)}\n{more}"
        return line

    def push_back(self, text: str) -> None:
        """Queue text that was typed already; it is read, and echoed, as the next lines."""
        self._has_kept_lines = True
        self._rest += text.encode("utf-8", "replace")

    async def _read_physical_line(self) -> str | None:
        is_kept = self._has_kept_lines and b"\n" in self._rest
        while b"\n" not in self._rest and not self._is_at_end:
            data = await read_terminal(self._descriptor, MAX_READ_BYTES)
            self._rest += data
            self._is_at_end = not data
        line, end, self._rest = self._rest.partition(b"\n")
        if is_kept:
            self._err.write(f"{sanitize(line.decode('utf-8', 'replace'))}\n")
        return line.decode("utf-8", "replace") if line or end else None


QUIT_COMMANDS = ("/quit", "/exit")
LINE_ALTERNATIVES = {
    "resume": "run /tree to list sessions, then /resume SESSION",
    "merge": "run /tree to list sessions, then /merge SESSION [--summary]",
    "rebase": "run /show to list messages, then /rebase INDEX... [--squash]",
}
"""Commands that without arguments open a full-screen list, and their equivalents in line mode."""


async def run_conversation(context: CliContext, request: pb.PromptRequest) -> ExitCode:
    """Read and run prompts until the end of input. Raises `aio.AioRpcError` if no session can be opened."""
    async with open_service(context) as stub, OutputWriter(out=context.out) as output:
        for notice in context.loaded.notices:
            output.err.write(f"yarrow: {sanitize(notice)}\n")
        lines = LineReader(output.err)
        person = open_permission_ui(output, keep=lines.push_back)
        terminal = plain_mode.PlainTerminal(output.out, output.err, person)
        chat = LineConversation(
            stub, request, await choose_session(stub, context.arguments, request), terminal=terminal
        )
        chat.print_greeting()
        while (line := await lines.read_line()) is not None:
            # A space before the slash means that the line is not a command.
            text = line.rstrip()
            if text and text.split(None, 1)[0] in QUIT_COMMANDS and not text[0].isspace():
                break
            if text:
                await chat.handle_line(text)
        else:
            # At the end of input the cursor is still behind the last "> ".
            output.err.write("\n")
        if not request.options.ephemeral:
            command = format_resume_command(context.arguments._replace(plain=True), chat.session.session_id)
            output.err.write(f"Resume with: {command}\n")
    return ExitCode.DONE


class LineConversation:
    """A conversation, in one session at a time."""

    def __init__(
        self, stub: Stub, request: pb.PromptRequest, session: SessionInfo, *, terminal: plain_mode.PlainTerminal
    ) -> None:
        self.session = session
        self._stub = stub
        self._request = request
        self._terminal = terminal

    async def handle_line(self, text: str) -> None:
        """Run a line and print any error."""
        try:
            await self._dispatch(text)
        except aio.AioRpcError as error:
            self._print_notice(await self._explain(parse_rpc_error(error)))
        except (CommandError, FilePathError, CommandFailedError, SessionNotFound) as error:
            self._print_notice(str(error))

    async def _explain(self, refused: RpcFailure) -> str:
        """Return the service's error message, with advice if a session does not exist."""
        if refused.reason != "SESSION_UNKNOWN":
            return refused.message
        is_open = await session_exists(self._stub, self.session.session_id)
        return f"{refused.message}; run /tree to list sessions" if is_open else SESSION_NEEDED

    async def _dispatch(self, text: str) -> None:
        found = COMMAND_NAME.match(text)
        name = found[1] if found else ""
        if text.startswith(BANG):
            await self._replace_if_deleted()
            command = run_shell_command(self._stub, parse_bang(self.session.session_id, text), out=self._terminal.out)
            await abort_on_interrupt(command, self._stub, self.session)
        elif found and name in LINE_COMMANDS:
            await LINE_COMMANDS[name][1](self)
        elif found and name in CHAT_COMMANDS:
            if name in LINE_ALTERNATIVES and found.end() == len(text):
                raise CommandError(f"/{name} opens a list only in the terminal UI: {LINE_ALTERNATIVES[name]}")
            await self._run_chat_command(text)
        else:
            if found:
                await self._refuse_unknown(name)
            await self._replace_if_deleted()
            prompt = pb.PromptRequest(text=text)
            run = plain_mode.run_plain(self._stub, self.session, prompt, terminal=self._terminal)
            await abort_on_interrupt(run, self._stub, self.session)

    async def _replace_if_deleted(self) -> None:
        """Continue in a new session with the same settings if the current one was deleted elsewhere."""
        present = self.session
        if await session_exists(self._stub, present.session_id):
            return
        made = await recreate_session(
            self._stub, self._make_session, present.cwd, settings=present.settings or pb.SessionSettings()
        )
        self._print_notice(SESSION_DELETED)
        self.session = await open_session(self._stub, made, pb.SessionSettings())
        self.print_greeting()

    async def _run_chat_command(self, text: str) -> None:
        here = CommandContext(self._stub, self.session.session_id, self.session.cwd, self._make_session)
        answer = await run_line(here, text, table=CHAT_COMMANDS)
        self._terminal.out.write(f"{sanitize(answer.full_text)}\n")
        if answer.session_id or answer.changes_settings:
            going_on = answer.session_id or self.session.session_id
            self.session = await open_session(self._stub, going_on, pb.SessionSettings())
            self.print_greeting()

    async def _make_session(self, cwd: str) -> str:
        return (await make_similar_session(self._stub, self._request, cwd)).session_id

    async def _refuse_unknown(self, name: str) -> None:
        """Raise `CommandError` for an unknown command, which is not meant for the model."""
        if not {name, f"skill:{name}"} & {one.name for one in await self._list_prompt_commands()}:
            raise CommandError(
                f"Unknown command /{name}. Type /help to see all commands; start with a space to send it as text."
            )

    async def _list_prompt_commands(self) -> Iterable[pb.Command]:
        request = pb.ListCommandsRequest(session_id=self.session.session_id)
        return (await self._stub.ListCommands(request)).commands

    async def help(self) -> None:
        """Print the commands and other inputs."""
        rows = [(f"/{name} {one.usage}".strip(), one.help) for name, one in CHAT_COMMANDS.items()]
        rows += [(f"/{name}", text) for name, (text, _) in LINE_COMMANDS.items()]
        rows += [(f"/{one.name}", one.description) for one in await self._list_prompt_commands()]
        self._terminal.err.write("".join(f"{left}: {sanitize(right)}\n" for left, right in (*rows, *OTHER_INPUTS)))

    async def copy(self) -> None:
        """Copy the last answer to the clipboard with a program; a simple terminal is sent no escape sequences."""
        answer = ""
        async for message in read_messages_after(self._stub, self.session.session_id, ""):
            said = "".join(block.text.text for block in message.content)
            answer = said if message.role == pb.ROLE_ASSISTANT and said else answer
        if not answer:
            raise CommandError("Nothing to copy yet: there is no answer.")
        program = await write_text(answer, os.environ)
        if not program:
            raise CommandError(
                "No clipboard program found: install wl-copy, xclip, pbcopy or tmux, or use /export PATH."
            )
        target = "tmux buffer" if program == "tmux" else "clipboard"
        self._terminal.out.write(f"Copied the last answer to the {target} ({len(answer):,} characters)\n")

    async def reload(self) -> None:
        """Print the session again."""
        await self._run_chat_command("/show")

    def print_greeting(self) -> None:
        """Print why the provider was chosen and the warnings of the session, once."""
        session = self.session
        if session.provider_reason:
            self._print_notice(f"using {session.provider}/{session.model}: {session.provider_reason}")
        for sentence in session.warnings:
            self._print_notice(sentence)
        self.session = replace(session, provider_reason="", warnings=())

    def _print_notice(self, sentence: str) -> None:
        self._terminal.err.write(f"yarrow: {sanitize(sentence)}\n")


LINE_COMMANDS: dict[str, tuple[str, Callable[[LineConversation], Awaitable[None]]]] = {
    "copy": ("copy the last answer", LineConversation.copy),
    "reload": ("print the session again", LineConversation.reload),
    "help": ("show this help", LineConversation.help),
}
"""Commands of line mode in addition to `CHAT_COMMANDS`: help and implementation of each."""
OTHER_INPUTS = (
    ("/quit", "quit"),
    (f"{BANG}COMMAND", "run a shell command and tell the model"),
    (f"{2 * BANG}COMMAND", "run a shell command without telling the model"),
    (f"...{CONTINUATION}", "continue on the next line"),
)
"""Other inputs, and the help of each."""
