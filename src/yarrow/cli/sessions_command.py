"""Commands on saved sessions: `yarrow sessions`, `--export`, and slash commands such as `/stats` as a prompt."""

from yarrow.cli.arguments import Arguments
from yarrow.cli.cli_context import CliContext, open_service
from yarrow.cli.exit_codes import ExitCode, exit_code_for_run
from yarrow.cli.output_writer import OutputWriter
from yarrow.cli.path_arguments import make_absolute
from yarrow.cli.standard_streams import print_error
from yarrow.client import json_mode
from yarrow.client.bang_command import BANG
from yarrow.client.session_descriptions import shorten_id
from yarrow.client.session_export import FilePathError, export_file
from yarrow.client.session_listing import run_sessions_command
from yarrow.client.session_lookup import SessionInfo, find_newest_session, find_session, open_session
from yarrow.client.session_slash_commands import COMMAND_NAME, COMMANDS, find_nearest, is_prompt_command, run_line
from yarrow.client.slash_command import CommandContext, CommandError, CommandFailedError
from yarrow.client.stub import Stub
from yarrow.client.terminal_text_sanitizer import sanitize
from yarrow.v1 import agent_pb2 as pb

SESSIONLESS_COMMANDS = ("tree", "import", "resume")
"""Slash commands that are not about a particular session."""
TERMINAL_COMMANDS = {
    "new": "a prompt without -c or -r starts a new session",
    "model": "use -m MODEL",
    "thinking": "use --thinking LEVEL",
    "permissions": "use --permissions MODE or yarrow permissions",
    "dry-run": "use --dry-run",
    "copy": "it has no equivalent here",
    "reload": "it has no equivalent here",
    "help": "use --help",
    "quit": "it is not needed here",
    "exit": "it is not needed here",
}
"""Slash commands only of the terminal UI, and the equivalent of each for a single prompt."""
_SEND_AS_IS_HINT = "Start with a space to send it as text."


async def run_sessions(context: CliContext, cwd: str) -> ExitCode:
    """Run `yarrow sessions`."""
    arguments = context.arguments
    async with open_service(context) as stub, OutputWriter(out=context.out) as output:
        if arguments.resume:
            cwd = await get_cwd(stub, arguments.resume)
        try:
            notice = await run_sessions_command(stub, arguments.words, cwd=cwd, json=arguments.json, out=output.out)
            output.err.write(f"yarrow: {sanitize(notice)}\n" if notice else "")
        except (CommandError, FilePathError) as error:
            return print_error(str(error), ExitCode.USAGE)
        except CommandFailedError as error:
            return print_error(str(error), exit_code_for_run("ERROR", error.code, denied=False))
    return ExitCode.DONE


async def run_export(context: CliContext, cwd: str) -> ExitCode:
    """Export a session to a file: the one given with `-r`, otherwise the newest of `cwd`."""
    path = make_absolute(context.arguments.export, "--export")
    async with open_service(context) as stub, OutputWriter(out=context.out) as output:
        session_id = await find_named_session(stub, context.arguments, cwd)
        try:
            size = await export_file(stub, session_id, path)
        except FilePathError as error:
            return print_error(str(error), ExitCode.USAGE)
        latest = "" if context.arguments.resume else f"the latest session ({shorten_id(session_id)}) "
        other = "" if context.arguments.resume else "; use -r ID for another"
        output.err.write(f"yarrow: exported {latest}to {sanitize(str(path))} ({-(-size // 1000):,} kB){other}\n")
    return ExitCode.DONE


async def run_slash_command(
    context: CliContext, stub: Stub, request: pb.PromptRequest, *, output: OutputWriter
) -> ExitCode:
    """Run a slash command given as the prompt, and print its answer."""
    arguments = context.arguments
    name = request.text[1:].split(None, 1)[0]
    session_id, cwd = "", request.cwd
    if arguments.resume or (arguments.newest and name not in SESSIONLESS_COMMANDS):
        session_id = await find_named_session(stub, arguments, request.cwd)
        cwd = await get_cwd(stub, session_id)
    elif name not in SESSIONLESS_COMMANDS:
        return print_error(f"/{name} needs a session: use -r ID, or -c for the latest", ExitCode.USAGE)
    try:
        answer = await run_line(CommandContext(stub, session_id, cwd), request.text)
    except (CommandError, FilePathError) as error:
        return print_error(str(error), ExitCode.USAGE)
    except CommandFailedError as error:
        return print_error(str(error), exit_code_for_run("ERROR", error.code, denied=False))
    if arguments.json:
        session_id = "" if name in SESSIONLESS_COMMANDS else session_id
        about = session_id or answer.session_id
        session = (
            await open_session(stub, about, pb.SessionSettings()) if about else SessionInfo("", cwd, "", "", "", 0)
        )
        output.out.write(json_mode.format_header(session))
        output.out.write(json_mode.format_command(name, answer, answer.session_id or session_id))
    else:
        output.out.write(f"{sanitize(answer.stdout_text)}\n")
        output.err.write(f"yarrow: {sanitize(answer.notice)}\n" if answer.notice else "")
    return ExitCode.DONE


async def reject_unknown_command(stub: Stub, request: pb.PromptRequest, *, resume: str = "") -> str:
    """Return the error for a line that starts like a command but is neither a command nor a template; else empty.

    A text of several lines is never a command. `resume` is the session given with `-r`, which has its own project.
    """
    text = request.text.strip()
    if "\n" in text:
        return ""
    if request.text.startswith(BANG):
        instead = 'run COMMAND | yarrow "PROMPT" in your shell'
        return f"{BANG}COMMAND works only in a conversation: {instead}. {_SEND_AS_IS_HINT}"
    found = COMMAND_NAME.match(request.text)
    if not found:
        return ""
    name = found[1]
    session_id = await find_session(stub, resume) if resume else ""
    listed = await stub.ListCommands(pb.ListCommandsRequest(session_id=session_id, cwd=request.cwd))
    names = [command.name for command in listed.commands]
    if is_prompt_command(name, names):
        return ""
    if instead := TERMINAL_COMMANDS.get(name):
        return f"/{name} works only in the terminal UI: {instead}. {_SEND_AS_IS_HINT}"
    near = find_nearest(name, names)
    hint = f"Did you mean /{near}?" if near else f"Commands: /{', /'.join([*COMMANDS, *names])}."
    return f"Unknown command /{name}. {hint} {_SEND_AS_IS_HINT}"


async def get_cwd(stub: Stub, session_id: str) -> str:
    """Return the working directory of a session. Raises `aio.AioRpcError`."""
    return (await stub.GetState(pb.GetStateRequest(session_id=session_id))).cwd


async def find_named_session(stub: Stub, arguments: Arguments, cwd: str) -> str:
    """Return the id of the session given with `-r`, otherwise of the newest of `cwd`.

    Raises `SessionNotFound`, and `aio.AioRpcError` if no session or several match.
    """
    return await find_session(stub, arguments.resume) if arguments.resume else await find_newest_session(stub, cwd)
