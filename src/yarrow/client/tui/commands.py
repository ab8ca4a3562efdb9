"""What a typed line means: a prompt, a command of the table or of the terminal UI alone, or one for the shell."""

import os
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from yarrow.client.by_hand import SIGN
from yarrow.client.command import Command, Here, WrongWords
from yarrow.client.table import CONVERSING, NAME, perform_line
from yarrow.client.tui import choosing
from yarrow.client.tui.clipboard import write_text
from yarrow.client.tui.keys import KEYS, WRITING
from yarrow.client.tui.saying import say, shell
from yarrow.client.tui.views.reading import read_through
from yarrow.v1 import agent_pb2 as pb

if TYPE_CHECKING:
    from yarrow.client.tui.app import App

WAITS = " *"
WHILE_IT_RUNS = (
    "While the agent runs, texts, templates and skills wait: those sent with Enter for the tools that are running, "
    "those sent with Alt+Enter for the end of the run. Commands work at any time, but for those marked *."
)
HELP_TITLE = "Keys and commands"
ROWS_BESIDE_HELP = 8
"""Which the status line, the editor and the end of a long line take when the help is printed."""
_LONG = {"merge": "merging", "rebase": "rebasing", "import": "importing", "export": "exporting"}
"""Commands that may take long, and what the status line says meanwhile."""
SKILL = "skill:"
"""What the command of a skill begins with; where nothing else has the name, the name alone will do."""


class Typed(Struct, frozen=True):
    """A line as it was sent."""

    text: str
    follow_up: bool = False
    """Whether it is for the end of the run."""
    by_key: bool = False
    """Whether a key stands for it, so that nothing was written that could be lost."""


class Own(NamedTuple):
    """A command of the terminal UI alone."""

    usage: str
    help: str
    run: "Callable[[App, str], Awaitable[None]]"
    waits: bool = False
    """Whether the service refuses it while the agent runs."""


async def do(app: "App", typed: Typed) -> None:
    """Do what a line says.

    Raises `WrongWords` for a command that does not exist or is not used like that, what the table's commands raise,
    and `aio.AioRpcError` when the service refuses.
    """
    # A space before the slash, or before the sign of a shell command, says that it is none.
    text = typed.text.rstrip()
    if text.startswith(SIGN):
        await shell(app, text)
        return
    found = NAME.match(text)
    if found is None:
        await say(app, typed)
        return
    name, rest = found[1], text[found.end() :].strip()
    if name in OWN:
        await OWN[name].run(app, rest)
    elif name in CONVERSING:
        await _by_table(app, text)
    elif {name, f"{SKILL}{name}"} & (expanded := (await expanding(app)).keys()):
        await say(app, typed)
    else:
        raise WrongWords(_unknown(name, expanded))


async def _by_table(app: "App", text: str) -> None:
    here = Here(app.stub, app.driver.session_id, app.scene.cwd, app.opening.make)
    doing = _LONG.get(text[1:].split(maxsplit=1)[0])
    # The others are quick, or are told by events and ended like a run.
    call = perform_line(here, text, table=CONVERSING)
    answer = await (app.waiting.wait(doing, call) if doing else call)
    if answer.session_id and answer.session_id != app.driver.session_id:
        await app.open(answer.session_id)
    elif answer.sets:
        await app.reload_status()
    app.note("command", answer.text)
    if answer.notice:
        app.note("notice", answer.notice)


async def expanding(app: "App") -> dict[str, str]:
    """Return the commands that the service expands to prompts, with what they do: templates, skills, extensions'."""
    listed = await app.stub.ListCommands(pb.ListCommandsRequest(session_id=app.driver.session_id))
    return {command.name: command.description for command in listed.commands}


def _unknown(name: str, expanding: Iterable[str]) -> str:
    # Here, since only a mistake needs it.
    from difflib import get_close_matches

    near = get_close_matches(name, [*OWN, *CONVERSING, *expanding], n=1, cutoff=0.7)
    hint = f"did you mean /{near[0]}?" if near else "/help lists them."
    what = f"skill {name.removeprefix(SKILL)}" if name.startswith(SKILL) else f"command /{name}"
    return f"there is no {what}; {hint} A space before the slash sends it as it is"


async def _tree(app: "App", rest: str) -> None:
    await _by_table(app, f"/tree {rest}") if rest else await choosing.tree(app)


async def _rebase(app: "App", rest: str) -> None:
    await _by_table(app, f"/rebase {rest}") if rest else await choosing.rebase(app, app.driver.session_id)


async def _resume(app: "App", rest: str) -> None:
    await _by_table(app, f"/resume {rest}") if rest else await choosing.tree(app)


async def _merge(app: "App", rest: str) -> None:
    if other := rest or await choosing.merge(app):
        await _by_table(app, f"/merge {other}")


async def _show(app: "App", rest: str) -> None:
    await choosing.show(app, rest)


async def _model(app: "App", rest: str) -> None:
    if not rest and app.scene.status.running:
        raise WrongWords("the agent is running: choose another model when it is over")
    if rest := rest or await choosing.model(app):
        await _by_table(app, f"/model {rest}")


async def _copy(app: "App", _rest: str) -> None:
    text = app.scene.last_answer()
    if not text:
        raise WrongWords("there is no answer to copy yet")
    taken = app.screen.copy(text)
    if program := await write_text(text, os.environ):
        app.note("command", f"copied the last answer, {len(text):,} characters, by {program}")
    else:
        of = "" if taken == len(text) else f" of {len(text):,}"
        app.note("command", f"copied the last answer, {taken:,}{of} characters, if your terminal lets programs copy")


async def _reload(app: "App", _rest: str) -> None:
    await app.open(app.driver.session_id)


async def _help(app: "App", _rest: str) -> None:
    listed: dict[str, Own | Command] = {**OWN, **{name: one for name, one in CONVERSING.items() if name not in OWN}}
    rows = [*((key.shown, key.help) for key in KEYS), *WRITING]
    rows += [(f"/{name} {one.usage}".strip(), f"{one.help}{WAITS * one.waits}") for name, one in listed.items()]
    rows += [
        ("!COMMAND", f"run a shell command and tell the model{WAITS}"),
        ("!!COMMAND", f"run it and tell nobody{WAITS}"),
        ("!!!COMMAND", f"run it outside the sandbox{WAITS}"),
    ]
    rows += [(f"/{name}", text) for name, text in (await expanding(app)).items()]
    columns, height = app.screen.size
    text = f"{_columns(rows, columns)}\n\n{WHILE_IT_RUNS}"
    if text.count("\n") + ROWS_BESIDE_HELP <= height:
        app.note("command", text)
    else:
        # Its beginning, the keys, would have scrolled away.
        await app.view(lambda terminal: read_through(terminal, HELP_TITLE, text))


def _columns(rows: Iterable[tuple[str, str]], columns: int) -> str:
    """Return what stands left and right in two columns, or one below the other where there is no room."""
    # Here, since only the help needs it.
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


OWN: dict[str, Own] = {
    "tree": Own("", "the saved sessions, to go on with one or to make another of it", _tree),
    "rebase": Own("", "make a session of messages that you choose", _rebase),
    "resume": Own("[SESSION]", "go on with a saved session", _resume),
    "merge": Own("[SESSION] [--summary]", "bring another session into this one", _merge),
    "show": Own("[CALL]", "the whole output of a tool", _show),
    "model": Own("[PROVIDER/MODEL]", "go on with another model", _model, waits=True),
    "copy": Own("", "copy the last answer", _copy),
    "reload": Own("", "print the session anew", _reload),
    "help": Own("", "keys and commands", _help),
    "quit": Own("", "leave", _quit),
    "exit": Own("", "leave", _quit),
}
"""By name, in the order in which they are listed."""
