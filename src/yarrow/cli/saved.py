"""Runs what is about saved sessions: `yarrow sessions`, `--export`, and commands such as `/stats` for a prompt."""

from yarrow.cli.arguments import Arguments
from yarrow.cli.exit_codes import ExitCode, of_run
from yarrow.cli.main import complain
from yarrow.cli.opened import Start, opened
from yarrow.cli.output import Output
from yarrow.cli.places import absolute
from yarrow.client import json_lines
from yarrow.client.by_hand import SIGN
from yarrow.client.command import Failed, Here, WrongWords
from yarrow.client.describe import short
from yarrow.client.files import WrongPath, export
from yarrow.client.inert import inert
from yarrow.client.session import Session, find_session, newest_session, open_session
from yarrow.client.sessions import sessions
from yarrow.client.stub import Stub
from yarrow.client.table import COMMANDS, NAME, is_command, nearest, perform_line
from yarrow.v1 import agent_pb2 as pb

__all__ = ["export_session", "is_command", "perform_command", "refuse_slip", "saved_sessions"]

NEED_NO_SESSION = ("tree", "import", "resume")
"""Commands of the table that are about no session in particular."""
OF_THE_TERMINAL = {
    "new": "a prompt without -c or -r begins another session",
    "model": "use -m MODEL",
    "thinking": "use --thinking LEVEL",
    "permissions": "use --permissions MODE or yarrow permissions",
    "dry-run": "use --dry-run",
    "copy": "nothing here does that",
    "reload": "nothing here does that",
    "help": "use --help",
    "quit": "nothing here waits to be left",
    "exit": "nothing here waits to be left",
}
"""Commands of the terminal UI alone, and what does the same for a single prompt."""


async def saved_sessions(start: Start, cwd: str) -> ExitCode:
    """Run `yarrow sessions`."""
    arguments = start.arguments
    async with opened(start) as stub, Output(out=start.out) as output:
        if arguments.resume:
            cwd = await directory_of(stub, arguments.resume)
        try:
            notice = await sessions(stub, arguments.words, cwd=cwd, json=arguments.json, out=output.out)
            output.err.write(f"yarrow: {inert(notice)}\n" if notice else "")
        except (WrongWords, WrongPath) as error:
            return complain(str(error), ExitCode.USAGE)
        except Failed as error:
            return complain(str(error), of_run("ERROR", error.code, denied=False))
    return ExitCode.DONE


async def export_session(start: Start, cwd: str) -> ExitCode:
    """Write a session to a file: the one that is named, else the newest of `cwd`."""
    path = absolute(start.arguments.export, "--export")
    async with opened(start) as stub, Output(out=start.out) as output:
        session_id = await named_session(stub, start.arguments, cwd)
        try:
            size = await export(stub, session_id, path)
        except WrongPath as error:
            return complain(str(error), ExitCode.USAGE)
        which = "" if start.arguments.resume else f" of {short(session_id)}, the newest session; -r ID takes another"
        output.err.write(f"yarrow: wrote {inert(str(path))} ({size:,} bytes){which}\n")
    return ExitCode.DONE


async def perform_command(start: Start, stub: Stub, request: pb.PromptRequest, *, output: Output) -> ExitCode:
    """Do what a command of the table says that stands where a prompt could, and print its answer."""
    arguments = start.arguments
    name = request.text[1:].split(None, 1)[0]
    session_id, cwd = "", request.cwd
    if arguments.resume or (arguments.newest and name not in NEED_NO_SESSION):
        session_id = await named_session(stub, arguments, request.cwd)
        cwd = await directory_of(stub, session_id)
    elif name not in NEED_NO_SESSION:
        return complain(f"/{name} is about a session: name one with -r ID, or -c for the newest", ExitCode.USAGE)
    try:
        answer = await perform_line(Here(stub, session_id, cwd), request.text)
    except (WrongWords, WrongPath) as error:
        return complain(str(error), ExitCode.USAGE)
    except Failed as error:
        return complain(str(error), of_run("ERROR", error.code, denied=False))
    if arguments.json:
        session_id = "" if name in NEED_NO_SESSION else session_id
        about = session_id or answer.session_id
        session = await open_session(stub, about, pb.SessionSettings()) if about else Session("", cwd, "", "", "", 0)
        output.out.write(json_lines.header(session))
        output.out.write(json_lines.command(name, answer.whole, answer.session_id or session_id))
    else:
        output.out.write(f"{inert(answer.printed)}\n")
        output.err.write(f"yarrow: {inert(answer.notice)}\n" if answer.notice else "")
    return ExitCode.DONE


async def refuse_slip(stub: Stub, request: pb.PromptRequest, *, resume: str = "") -> str:
    """Return what is wrong with a line that begins like a command and is none, nor a template; empty when nothing is.

    A text of several lines is a text. `resume` is the session that a flag names, which has a project of its own.
    """
    text = request.text.strip()
    if "\n" in text:
        return ""
    if request.text.startswith(SIGN):
        return (
            f"a line that begins with {SIGN} runs a shell command in a conversation, and nothing here: run it in your "
            f'shell, and tell of it with COMMAND | yarrow "PROMPT". {_as_it_is("sign")}'
        )
    found = NAME.match(request.text)
    if not found:
        return ""
    name = found[1]
    session_id = await find_session(stub, resume) if resume else ""
    listed = await stub.ListCommands(pb.ListCommandsRequest(session_id=session_id, cwd=request.cwd))
    names = [command.name for command in listed.commands]
    if {name, f"skill:{name}"} & {*names}:
        return ""
    if instead := OF_THE_TERMINAL.get(name):
        return f"/{name} is a command of the terminal UI: {instead}. {_as_it_is('slash')}"
    near = nearest(name, names)
    hint = f"did you mean /{near}?" if near else f"there are /{', /'.join([*COMMANDS, *names])}."
    return f"there is no command /{name}; {hint} {_as_it_is('slash')}"


def _as_it_is(sign: str) -> str:
    return f"A space before the {sign} sends it as it is"


async def directory_of(stub: Stub, session_id: str) -> str:
    """Return the working directory of a session. Raises `aio.AioRpcError`."""
    return (await stub.GetState(pb.GetStateRequest(session_id=session_id))).cwd


async def named_session(stub: Stub, arguments: Arguments, cwd: str) -> str:
    """Return the id of the session that the flags name, else of the newest of `cwd`.

    Raises `SessionNotFound`, and `aio.AioRpcError` when the service knows none or several.
    """
    return await find_session(stub, arguments.resume) if arguments.resume else await newest_session(stub, cwd)
