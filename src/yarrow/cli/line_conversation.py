"""Line-by-line conversation for screen readers and simple terminals; nothing is redrawn."""

import os

from msgspec.structs import replace

from yarrow._version import VERSION
from yarrow.cli.cli_context import CliContext, choose_session, format_resume_command, open_service
from yarrow.cli.exit_codes import ExitCode
from yarrow.cli.interrupt_handler import abort_on_interrupt
from yarrow.cli.output_writer import OutputStream, OutputWriter
from yarrow.cli.terminal_permission_prompts import open_permission_ui, read_terminal
from yarrow.client import plain_mode
from yarrow.client.bang_command import BANG, run_shell_command
from yarrow.client.clipboard import Clipboard
from yarrow.client.conversation import CHAT_COMMANDS, Conversation, LineRejected
from yarrow.client.front_end import HelpPage, InputLine, OutputKind, Picker, SessionChange, ToolOutputPage
from yarrow.client.json_mode import Sink
from yarrow.client.session_lookup import SessionInfo, join_text, make_similar_session, open_session, read_messages_after
from yarrow.client.slash_command import ChatParts, LongOperation
from yarrow.client.stub import Stub
from yarrow.client.terminal_text_sanitizer import sanitize
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


async def run_conversation(context: CliContext, request: pb.PromptRequest) -> ExitCode:
    """Read and run prompts until the end of input. Raises `aio.AioRpcError` if no session can be opened."""
    async with open_service(context) as stub, OutputWriter(out=context.out) as output:
        for notice in context.loaded.notices:
            output.err.write(f"yarrow: {sanitize(notice)}\n")
        lines = LineReader(output.err)
        person = open_permission_ui(output, keep=lines.push_back)
        terminal = plain_mode.PlainTerminal(output.out, output.err, person)
        session = LineSession(stub, await choose_session(stub, context.arguments, request), terminal)
        greeting = sanitize(f"Yarrow {VERSION}, {session.model}. Type /help for commands.")
        output.err.write(f"{greeting}\n")
        conversation = _make_conversation(stub, request, session=session, terminal=terminal)
        await _read_lines(lines, conversation, session, err=output.err)
        if not request.options.ephemeral:
            command = format_resume_command(context.arguments._replace(plain=True), session.session_id)
            output.err.write(f"Resume with: {command}\n")
    return ExitCode.DONE


def _make_conversation(
    stub: Stub, request: pb.PromptRequest, *, session: "LineSession", terminal: plain_mode.PlainTerminal
) -> Conversation:
    async def make_session(cwd: str) -> str:
        return (await make_similar_session(stub, request, cwd)).session_id

    # A simple terminal is sent no escape sequences, and shows no operation that is running.
    operation, clipboard = LongOperation(lambda _doing, _since: None), Clipboard(os.environ)
    parts = ChatParts(LineFrontEnd(terminal), session, operation, clipboard)
    return Conversation(stub, parts, make_session=make_session)


async def _read_lines(lines: LineReader, conversation: Conversation, session: "LineSession", *, err: Sink) -> None:
    """Read and handle lines until the user quits or the input ends."""
    session.print_greeting()
    while (line := await lines.read_line()) is not None:
        if not (text := line.rstrip()):
            continue
        try:
            if not await conversation.handle_line(InputLine(text)):
                return
        except LineRejected as error:
            _write_notice(err, str(error))
        session.print_greeting()
    # At the end of input the cursor is still behind the last "> ".
    err.write("\n")


class LineFrontEnd:
    """Prints results on standard output and everything else on standard error."""

    has_screen = False

    def __init__(self, terminal: plain_mode.PlainTerminal) -> None:
        self._terminal = terminal

    def print(self, text: str, kind: OutputKind) -> None:
        """Print a text; an empty line precedes what a model wrote."""
        if kind == "error":
            _write_notice(self._terminal.err, text)
        else:
            self._terminal.out.write(f"{chr(10) * (kind == 'model')}{sanitize(text)}\n")

    async def pick(self, picker: Picker) -> None:
        """Choose nothing: there is no list to pick from."""

    async def view(self, page: HelpPage | ToolOutputPage) -> None:
        """Print the commands and other inputs."""
        if isinstance(page, HelpPage):
            rows = [(f"/{name} {one.usage}".strip(), one.help) for name, one in CHAT_COMMANDS.items()]
            rows += [(f"/{name}", text) for name, text in page.expanded.items()]
            self._terminal.err.write("".join(f"{left}: {sanitize(right)}\n" for left, right in (*rows, *OTHER_INPUTS)))


class LineSession:
    """The session of a line-by-line conversation; each line runs to its end before the next is read."""

    is_running = False

    def __init__(self, stub: Stub, session: SessionInfo, terminal: plain_mode.PlainTerminal) -> None:
        self._stub = stub
        self._session = session
        self._terminal = terminal

    @property
    def session_id(self) -> str:
        """Id of the session."""
        return self._session.session_id

    @property
    def model(self) -> str:
        """Name of the model."""
        return self._session.model

    @property
    def cwd(self) -> str:
        """Working directory of the session."""
        return self._session.cwd

    @property
    def settings(self) -> pb.SessionSettings:
        """Settings of the session when it was opened."""
        return self._session.settings or pb.SessionSettings()

    async def open(self, session_id: str, _change: SessionChange) -> None:
        """Continue in a session."""
        self._session = await open_session(self._stub, session_id, pb.SessionSettings())

    async def run(self, line: InputLine, request: pb.RunToolRequest | None) -> None:
        """Run a prompt or a shell command; an interrupt ends only this."""
        self.print_greeting()
        if request is not None:
            command = run_shell_command(self._stub, request, out=self._terminal.out)
            await abort_on_interrupt(command, self._stub, self._session)
            return
        prompt = pb.PromptRequest(text=line.text)
        run = plain_mode.run_plain(self._stub, self._session, prompt, terminal=self._terminal)
        await abort_on_interrupt(run, self._stub, self._session)

    async def find_last_answer(self) -> str:
        """Return the text of the model's last message that has text; empty if none has."""
        answer = ""
        async for message in read_messages_after(self._stub, self.session_id, ""):
            said = join_text(message)
            answer = said if message.role == pb.ROLE_ASSISTANT and said else answer
        return answer

    def print_greeting(self) -> None:
        """Print why the provider was chosen and the warnings of the session, once."""
        session = self._session
        if session.provider_reason:
            _write_notice(self._terminal.err, f"using {session.provider}/{session.model}: {session.provider_reason}")
        for sentence in session.warnings:
            _write_notice(self._terminal.err, sentence)
        self._session = replace(session, provider_reason="", warnings=())


def _write_notice(err: Sink, sentence: str) -> None:
    err.write(f"yarrow: {sanitize(sentence)}\n")


OTHER_INPUTS = (
    (f"{BANG}COMMAND", "run a shell command and tell the model"),
    (f"{2 * BANG}COMMAND", "run a shell command without telling the model"),
    (f"...{CONTINUATION}", "continue on the next line"),
)
"""Other inputs, and the help of each."""
