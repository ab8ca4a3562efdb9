"""Runs what is about saved sessions: `yarrow sessions`, `--export`, and commands such as `/stats` for a prompt."""

from yarrow.cli.arguments import Arguments
from yarrow.cli.exit_codes import ExitCode, of_run
from yarrow.cli.main import complain
from yarrow.cli.opened import Start, opened
from yarrow.cli.output import Output
from yarrow.cli.places import absolute
from yarrow.client.command import Failed, Here, WrongWords
from yarrow.client.files import WrongPath, export
from yarrow.client.inert import inert
from yarrow.client.json_event import dumps
from yarrow.client.session import find_session, newest_session
from yarrow.client.sessions import sessions
from yarrow.client.sink import Sink
from yarrow.client.stub import Stub
from yarrow.client.table import is_command, nearest, perform_line
from yarrow.v1 import agent_pb2 as pb

__all__ = ["export_session", "is_command", "perform_command", "refuse_slip", "saved_sessions"]

NEED_NO_SESSION = ("tree", "import", "resume")
"""Commands of the table that are about no session in particular."""
OF_THE_TERMINAL = {
    "new": "a prompt without -c or -r begins another session",
    "model": "use -m MODEL",
    "thinking": "use --thinking LEVEL",
    "permissions": "use --permissions MODE",
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
        try:
            await sessions(stub, arguments.words, cwd=cwd, json=arguments.json, out=output.out)
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
        output.err.write(f"yarrow: wrote {inert(str(path))} ({size:,} bytes)\n")
    return ExitCode.DONE


async def perform_command(start: Start, stub: Stub, request: pb.PromptRequest, *, out: Sink) -> ExitCode:
    """Do what a command of the table says that stands where a prompt could, and print its answer."""
    arguments = start.arguments
    name = request.text[1:].split(None, 1)[0]
    if name in NEED_NO_SESSION:
        session_id, cwd = "", request.cwd
    elif arguments.newest or arguments.resume:
        session_id = await named_session(stub, arguments, request.cwd)
        cwd = (await stub.GetState(pb.GetStateRequest(session_id=session_id))).cwd
    else:
        return complain(f"/{name} is about a session: name one with -r ID, or -c for the newest", ExitCode.USAGE)
    try:
        answer = await perform_line(Here(stub, session_id, cwd), request.text)
    except (WrongWords, WrongPath) as error:
        return complain(str(error), ExitCode.USAGE)
    except Failed as error:
        return complain(str(error), of_run("ERROR", error.code, denied=False))
    if arguments.json:
        out.write(dumps({"text": answer.text, "sessionId": answer.session_id or session_id}) + "\n")
    else:
        out.write(f"{inert(answer.text)}\n")
    return ExitCode.DONE


async def refuse_slip(stub: Stub, request: pb.PromptRequest) -> str:
    """Return what is wrong with a text that begins with a command of elsewhere or nearly one, and with no template.

    It is empty when nothing is.
    """
    name, *_ = request.text[1:].split(None, 1) or [""]
    near, instead = nearest(name), OF_THE_TERMINAL.get(name)
    if not (near or instead) or "\n" in request.text.strip():
        return ""
    listed = await stub.ListCommands(pb.ListCommandsRequest(cwd=request.cwd))
    if {name, f"skill:{name}"} & {command.name for command in listed.commands}:
        return ""
    if instead:
        return f"/{name} is a command of the terminal UI: {instead}. A space before the slash sends it as it is"
    return f"there is no command /{name}; did you mean /{near}? A space before the slash sends it as it is"


async def named_session(stub: Stub, arguments: Arguments, cwd: str) -> str:
    """Return the id of the session that the flags name, else of the newest of `cwd`.

    Raises `SessionNotFound`, and `aio.AioRpcError` when the service knows none or several.
    """
    return await find_session(stub, arguments.resume) if arguments.resume else await newest_session(stub, cwd)
