"""Dispatch of input lines: prompts, commands of the table, commands of the terminal UI, and shell commands."""

import os
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from yarrow.client.shell_escape import BANG
from yarrow.client.slash_command import CommandContext, CommandError, SlashCommand
from yarrow.client.slash_commands import CHAT_COMMANDS, COMMAND_NAME, run_line
from yarrow.client.tui import pickers
from yarrow.client.tui.clipboard import write_text
from yarrow.client.tui.input_actions import run_shell, send_text
from yarrow.client.tui.key_bindings import EDITOR_KEYS, KEYS
from yarrow.client.tui.views.list_view import show_text
from yarrow.v1 import agent_pb2 as pb

if TYPE_CHECKING:
    from yarrow.client.tui.app import App

IDLE_ONLY_MARK = " *"
HELP_WHILE_RUNNING = (
    "While the agent runs, texts, templates and skills are queued: Enter sends them after the running tools, "
    "Alt+Enter after the run. Commands work at any time, except those marked *."
)
HELP_TITLE = "Keys and commands"
HELP_MARGIN_ROWS = 8
"""Rows needed by the status line, the editor and the end of a long line when the help is printed."""
_LONG_COMMANDS = {"merge": "merging", "rebase": "rebasing", "import": "importing", "export": "exporting"}
"""Commands that may take long, and the activity that the status line shows meanwhile."""
SKILL_PREFIX = "skill:"
"""Prefix of the command of a skill; the name alone is enough if no other command has it."""


class InputLine(Struct, frozen=True):
    """An input line as it was sent."""

    text: str
    follow_up: bool = False
    """True if the line is for the end of the run."""
    is_from_key: bool = False
    """True if a key sent the line, so that there is no typed text to lose."""


class TuiCommand(NamedTuple):
    """A command of the terminal UI only."""

    usage: str
    help: str
    run: "Callable[[App, str], Awaitable[None]]"
    is_idle_only: bool = False
    """True if the service refuses it while the agent runs."""


async def dispatch_line(app: "App", line: InputLine) -> None:
    """Handle an input line.

    Raises `CommandError` if a command does not exist or is used incorrectly, what the commands of the table raise, and
    `aio.AioRpcError` if the service refuses.
    """
    # A space before the slash, or before the sign of a shell command, marks the line as a prompt.
    text = line.text.rstrip()
    if text.startswith(BANG):
        await run_shell(app, text)
        return
    found = COMMAND_NAME.match(text)
    if found is None:
        await send_text(app, line)
        return
    name, rest = found[1], text[found.end() :].strip()
    if name in TUI_COMMANDS:
        await TUI_COMMANDS[name].run(app, rest)
    elif name in CHAT_COMMANDS:
        await _run_chat_command(app, text)
    elif {name, f"{SKILL_PREFIX}{name}"} & (expanded := (await list_prompt_commands(app)).keys()):
        await send_text(app, line)
    else:
        raise CommandError(_describe_unknown(name, expanded))


async def _run_chat_command(app: "App", text: str) -> None:
    context = CommandContext(app.stub, app.session_client.session_id, app.view_state.cwd, app.options.make_session)
    doing = _LONG_COMMANDS.get(text[1:].split(maxsplit=1)[0])
    # The other commands are quick, or report their progress through events and are aborted like a run.
    call = run_line(context, text, table=CHAT_COMMANDS)
    answer = await (app.operation.run(doing, call) if doing else call)
    if answer.session_id and answer.session_id != app.session_client.session_id:
        await app.open_session(answer.session_id)
    elif answer.changes_settings:
        await app.reload_status()
    app.add_note("command", answer.text)
    if answer.notice:
        app.add_note("notice", answer.notice)


async def list_prompt_commands(app: "App") -> dict[str, str]:
    """Return the commands that the service expands to prompts, with descriptions: templates, skills, extensions'."""
    listed = await app.stub.ListCommands(pb.ListCommandsRequest(session_id=app.session_client.session_id))
    return {command.name: command.description for command in listed.commands}


def _describe_unknown(name: str, expanding: Iterable[str]) -> str:
    # Imported here because only a mistyped command needs it.
    from difflib import get_close_matches

    near = get_close_matches(name, [*TUI_COMMANDS, *CHAT_COMMANDS, *expanding], n=1, cutoff=0.7)
    hint = f"Did you mean /{near[0]}? Start" if near else "Type / to see all commands; start"
    what = f"skill {name.removeprefix(SKILL_PREFIX)}" if name.startswith(SKILL_PREFIX) else f"command /{name}"
    return f"Unknown {what}. {hint} with a space to send it as text."


async def _tree(app: "App", rest: str) -> None:
    await _run_chat_command(app, f"/tree {rest}") if rest else await pickers.pick_session(app)


async def _rebase(app: "App", rest: str) -> None:
    await _run_chat_command(app, f"/rebase {rest}") if rest else await pickers.pick_rebase(
        app, app.session_client.session_id
    )


async def _resume(app: "App", rest: str) -> None:
    await _run_chat_command(app, f"/resume {rest}") if rest else await pickers.pick_session(app)


async def _merge(app: "App", rest: str) -> None:
    if other := rest or await pickers.pick_merge(app):
        await _run_chat_command(app, f"/merge {other}")


async def _show(app: "App", rest: str) -> None:
    await pickers.show_call(app, rest)


async def _model(app: "App", rest: str) -> None:
    if not rest and app.view_state.status.is_running:
        raise CommandError("Can't change the model while the agent is running. Wait, or press Esc to stop it.")
    if rest := rest or await pickers.pick_model(app):
        await _run_chat_command(app, f"/model {rest}")


async def _copy(app: "App", _rest: str) -> None:
    text = app.view_state.find_last_answer()
    if not text:
        raise CommandError("No answer to copy yet")
    taken = app.screen.copy(text)
    if program := await write_text(text, os.environ):
        place = "the tmux buffer" if program == "tmux" else f"the clipboard with {program}"
        app.add_note("command", f"Copied the last answer to {place} ({len(text):,} characters)")
    else:
        of = "" if taken == len(text) else f" of {len(text):,}"
        app.add_note("command", f"Copied the last answer ({taken:,}{of} characters), if your terminal allows it")


async def _reload(app: "App", _rest: str) -> None:
    await app.open_session(app.session_client.session_id)


async def _help(app: "App", _rest: str) -> None:
    listed: dict[str, TuiCommand | SlashCommand] = {
        **TUI_COMMANDS,
        **{name: one for name, one in CHAT_COMMANDS.items() if name not in TUI_COMMANDS},
    }
    rows = [*((key.shown, key.help) for key in KEYS), *EDITOR_KEYS]
    rows += [
        (f"/{name} {one.usage}".strip(), f"{one.help}{IDLE_ONLY_MARK * one.is_idle_only}")
        for name, one in listed.items()
    ]
    rows += [
        ("!COMMAND", f"run a shell command and show the result to the model{IDLE_ONLY_MARK}"),
        ("!!COMMAND", f"run a shell command without telling the model{IDLE_ONLY_MARK}"),
        ("!!!COMMAND", f"run a shell command outside the sandbox{IDLE_ONLY_MARK}"),
    ]
    rows += [(f"/{name}", text) for name, text in (await list_prompt_commands(app)).items()]
    columns, height = app.screen.size
    text = f"{_format_columns(rows, columns)}\n\n{HELP_WHILE_RUNNING}"
    if text.count("\n") + HELP_MARGIN_ROWS <= height:
        app.add_note("command", text)
    else:
        # Its beginning, the keys, would scroll out of view.
        await app.show_view(lambda terminal: show_text(terminal, HELP_TITLE, text))


def _format_columns(rows: Iterable[tuple[str, str]], columns: int) -> str:
    """Return rows in two columns, or with the right part below the left if there is no room for both."""
    # Imported here because only the help needs it.
    from textwrap import wrap

    rows = list(rows)
    width = max(len(left) for left, _ in rows) + 2
    beside = columns >= 2 * width
    indent = width if beside else 2
    lines: list[str] = []
    for left, right in rows:
        first, *rest = wrap(right, max(columns - indent, 1)) or [""]
        lines += [f"{left:<{width}}{first}"] if beside else [left, f"  {first}"]
        lines += [f"{'':<{indent}}{line}" for line in rest]
    return "\n".join(lines)


async def _quit(app: "App", _rest: str) -> None:
    app.quit()


TUI_COMMANDS: dict[str, TuiCommand] = {
    "tree": TuiCommand("", "browse, resume, branch or fork sessions", _tree),
    "rebase": TuiCommand("", "create a session from selected messages", _rebase),
    "resume": TuiCommand("[SESSION]", "resume a saved session", _resume),
    "merge": TuiCommand("[SESSION] [--summary]", "merge another session into this one", _merge),
    "show": TuiCommand("[CALL]", "show the whole output of a tool", _show),
    "model": TuiCommand("[PROVIDER/MODEL]", "choose a model", _model, is_idle_only=True),
    "copy": TuiCommand("", "copy the last answer", _copy),
    "reload": TuiCommand("", "redraw the session", _reload),
    "help": TuiCommand("", "show keys and commands", _help),
    "quit": TuiCommand("", "quit", _quit),
    "exit": TuiCommand("", "quit", _quit),
}
"""Commands by name, in the order in which they are listed."""
