"""Conversation of a user with the agent, for every front end: dispatches input lines and continues across sessions."""

from collections.abc import Iterable, Sequence

from grpc import aio

from yarrow.client.bang_command import BANG, parse_bang
from yarrow.client.clipboard import ClipboardError
from yarrow.client.front_end import HelpPage, InputLine, MakeSession, OutputKind
from yarrow.client.rpc_errors import RpcFailure, SessionNotFound, parse_rpc_error
from yarrow.client.session_export import FilePathError
from yarrow.client.session_lookup import SESSION_DELETED, SESSION_NEEDED, recreate_session, session_exists
from yarrow.client.session_slash_commands import (
    COMMAND_NAME,
    COMMANDS,
    SKILL_PREFIX,
    is_prompt_command,
    run_line,
    show_messages,
)
from yarrow.client.setting_slash_commands import SETTING_COMMANDS
from yarrow.client.slash_command import (
    ChatParts,
    CommandContext,
    CommandError,
    CommandFailedError,
    CommandResult,
    CommandWording,
    SlashCommand,
)
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb


class LineRejected(Exception):
    """A line was not accepted; the message says why."""


class Conversation:
    """A conversation, in one session at a time."""

    def __init__(self, stub: Stub, parts: ChatParts, *, make_session: MakeSession | None) -> None:
        """Without `make_session`, the conversation cannot continue in a session of its own."""
        self._stub = stub
        self._parts = parts
        self._session = parts.session
        self._make_session = make_session

    async def handle_line(self, line: InputLine) -> bool:
        """Handle an input line; return whether the conversation continues. Raises `LineRejected`."""
        try:
            return await self._dispatch(line)
        except aio.AioRpcError as error:
            raise LineRejected(await self._explain(parse_rpc_error(error))) from None
        except (CommandError, FilePathError, CommandFailedError, SessionNotFound) as error:
            raise LineRejected(str(error)) from None

    async def _dispatch(self, line: InputLine) -> bool:
        # A space before the slash, or before the sign of a shell command, marks the line as a prompt.
        text = line.text.rstrip()
        found = COMMAND_NAME.match(text)
        if text.startswith(BANG):
            await self._run_shell(line, text)
        elif found and found[1] in CHAT_COMMANDS:
            return await self._run_command(text)
        else:
            if found:
                await self._reject_unknown(found[1])
            await self._replace_if_deleted()
            await self._session.run(line, None)
        return True

    async def _run_shell(self, line: InputLine, text: str) -> None:
        if self._session.is_running:
            raise CommandError("Can't run a command while the agent is running. Wait, or press Esc to stop it.")
        await self._replace_if_deleted()
        await self._session.run(line, parse_bang(self._session.session_id, text))

    async def _run_command(self, text: str) -> bool:
        session = self._session
        context = CommandContext(self._stub, session.session_id, session.cwd, self._make_session, self._parts)
        result = await run_line(context, text, table=CHAT_COMMANDS)
        if result.session_id and (result.reopens or result.session_id != session.session_id):
            await session.open(result.session_id, "switched")
        elif result.changes_settings:
            await session.open(session.session_id, "configured")
        outputs: dict[OutputKind, str] = {"command": result.text, "model": result.model_text, "notice": result.notice}
        for kind, output in outputs.items():
            if output:
                self._parts.front_end.print(output, kind)
        return not result.ends

    async def _replace_if_deleted(self) -> None:
        """Continue in a new session with the same settings if the current one was deleted elsewhere.

        A session cannot be deleted while it runs. Raises `aio.AioRpcError`, and `CommandError` if no session can be
        created.
        """
        session = self._session
        if session.is_running or await session_exists(self._stub, session.session_id):
            return
        if self._make_session is None:
            raise CommandError(SESSION_NEEDED)
        made = await recreate_session(self._stub, self._make_session, session.cwd, settings=session.settings)
        await session.open(made, "replaced")
        self._parts.front_end.print(SESSION_DELETED, "error")

    async def _explain(self, refused: RpcFailure) -> str:
        """Return why a call was refused, with advice if a session does not exist."""
        if refused.reason != "SESSION_UNKNOWN":
            return refused.message
        is_open = await session_exists(self._stub, self._session.session_id)
        return f"{refused.message}; /tree lists them" if is_open else SESSION_NEEDED

    async def _reject_unknown(self, name: str) -> None:
        """Raise `CommandError` for an unknown command, which is not meant for the model."""
        expanded = await list_prompt_commands(self._stub, self._session.session_id)
        if not is_prompt_command(name, expanded):
            raise CommandError(_describe_unknown(name, expanded, has_menu=self._parts.front_end.has_screen))


async def list_prompt_commands(stub: Stub, session_id: str) -> dict[str, str]:
    """Return the commands that the service expands to prompts, with descriptions: templates, skills, extensions'."""
    listed = await stub.ListCommands(pb.ListCommandsRequest(session_id=session_id))
    return {command.name: command.description for command in listed.commands}


def _describe_unknown(name: str, expanded: Iterable[str], *, has_menu: bool) -> str:
    # Imported here because only a mistyped command needs it.
    from difflib import get_close_matches

    near = get_close_matches(name, [*CHAT_COMMANDS, *expanded], n=1, cutoff=0.7)
    menu = "Type /" if has_menu else "Type /help"
    hint = f"Did you mean /{near[0]}? Start" if near else f"{menu} to see all commands; start"
    is_skill = has_menu and name.startswith(SKILL_PREFIX)
    what = f"skill {name.removeprefix(SKILL_PREFIX)}" if is_skill else f"command /{name}"
    return f"Unknown {what}. {hint} with a space to send it as text."


async def _copy(context: CommandContext, _words: Sequence[str]) -> CommandResult:
    chat = _require_chat(context)
    text = await chat.session.find_last_answer()
    if not text:
        raise CommandError("Nothing to copy yet: there is no answer.")
    try:
        return CommandResult(f"Copied the last answer {await chat.clipboard.copy(text)}")
    except ClipboardError as error:
        raise CommandError(str(error)) from None


async def _reload(context: CommandContext, _words: Sequence[str]) -> CommandResult:
    if context.screen is None:
        return await show_messages(context)
    return CommandResult("", context.session_id, reopens=True)


async def _help(context: CommandContext, _words: Sequence[str]) -> CommandResult:
    expanded = await list_prompt_commands(context.stub, context.session_id)
    await _require_chat(context).front_end.view(HelpPage(expanded))
    return CommandResult("")


async def _quit(_context: CommandContext, _words: Sequence[str]) -> CommandResult:
    return CommandResult("", ends=True)


def _require_chat(context: CommandContext) -> ChatParts:
    if context.chat is None:
        raise CommandError("this command needs a conversation")
    return context.chat


_SCREEN_COMMANDS = ("tree", "rebase", "resume", "merge", "show")
"""Commands that are listed first: they show a list or a page, where there is a screen for it."""
CHAT_COMMANDS: dict[str, SlashCommand] = {
    **{name: COMMANDS[name] for name in _SCREEN_COMMANDS},
    "model": SETTING_COMMANDS["model"],
    # Words after the name have no effect.
    "copy": SlashCommand("", "copy the last answer", _copy, 1),
    "reload": SlashCommand(
        "", "print the session again", _reload, 1, on_screen=CommandWording("", "redraw the session")
    ),
    "help": SlashCommand("", "show this help", _help, 1, on_screen=CommandWording("", "show keys and commands")),
    "quit": SlashCommand("", "quit", _quit, 1),
    "exit": SlashCommand("", "quit", _quit, 1),
    **COMMANDS,
    **SETTING_COMMANDS,
}
"""Commands of a conversation by name, in the order in which they are listed."""
