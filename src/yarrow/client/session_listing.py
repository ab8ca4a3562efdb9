"""`yarrow sessions`: lists, shows and searches saved sessions, and runs commands of the table on one of them."""

import shutil
from collections.abc import Sequence

from grpc import StatusCode, aio

from yarrow.client import session_descriptions
from yarrow.client.json_mode import Sink, dumps
from yarrow.client.session_lookup import find_session
from yarrow.client.session_slash_commands import COMMANDS, run_command
from yarrow.client.slash_command import CommandContext, CommandError, CommandUsageError
from yarrow.client.stub import Stub
from yarrow.client.terminal_text_sanitizer import sanitize
from yarrow.v1 import agent_pb2 as pb

SESSION_COMMANDS = ("show", "stats", "branch", "fork", "rebase", "merge", "compact", "export", "name")
"""Subcommands that a session id follows, each a command of the table."""
_HELP_COLUMN = 49
"""Column at which the explanations start."""
_HELP_ROWS = {
    "[all]": "list the sessions here, or all, newest first",
    "tree [all]": "show them as a tree",
    "search TEXT": "find a text in messages and names, in all projects",
    "import PATH": COMMANDS["import"].help,
    "delete ID...": "delete sessions",
    **{f"{name} ID {COMMANDS[name].usage}".rstrip(): COMMANDS[name].help for name in SESSION_COMMANDS},
}
USAGE = "\n".join(f"{f'yarrow sessions {words}':<{_HELP_COLUMN}}{text}" for words, text in _HELP_ROWS.items())


async def run_sessions_command(stub: Stub, words: Sequence[str], *, cwd: str, json: bool, out: Sink) -> str:
    """Run the subcommand in `words` and print its answer; with `json`, lists are printed as one object per line.

    Return a notice for the user only, empty if there is none. Raises what `run_command` raises.
    """
    notice = ""
    if json and words and words[0] not in ("list", "all", "search"):
        raise CommandError(f"--json can't be used with {words[0]!r}, only with list, all and search")
    match list(words):
        case [] | ["list"]:
            await _print_list(stub, pb.ListSessionsRequest(cwd=cwd), json=json, out=out)
        case ["all"] | ["list", "all"]:
            await _print_list(stub, pb.ListSessionsRequest(scope=pb.SESSION_SCOPE_ALL), json=json, out=out)
        case ["search", *text] if text:
            request = pb.ListSessionsRequest(scope=pb.SESSION_SCOPE_ALL, search=" ".join(text))
            if not await _print_list(stub, request, json=json, out=out):
                notice = f'No sessions match "{request.search}"'
        case ["delete", *ids] if ids:
            for one in dict.fromkeys([await _find_id(stub, word) for word in ids]):
                await stub.DeleteSession(pb.DeleteSessionRequest(session_id=one))
                out.write(f"Deleted {session_descriptions.shorten_id(one)}\n")
        case ["tree" | "import" as name, *rest]:
            notice = await _print_result(CommandContext(stub, "", cwd), name, rest, out=out)
        case [name, session, *rest] if name in SESSION_COMMANDS:
            notice = await _print_result(
                CommandContext(stub, await find_session(stub, session), cwd), name, rest, out=out
            )
        case [name] if name in SESSION_COMMANDS:
            raise CommandError(f"usage: yarrow sessions {name} ID {COMMANDS[name].usage}".rstrip())
        case ["search" | "delete" as name]:
            raise CommandError(f"usage: yarrow sessions {name} {'TEXT' if name == 'search' else 'ID...'}")
        case _:
            raise CommandError(f"unknown command {' '.join(words)!r}; available:\n{USAGE}")
    await out.drain()
    return notice


async def _find_id(stub: Stub, word: str) -> str:
    """Return the id that a word refers to; if the session is unreadable, the word itself, which may be its id."""
    try:
        return await find_session(stub, word)
    except aio.AioRpcError as error:
        if error.code() is not StatusCode.FAILED_PRECONDITION:
            raise
        return word


async def _print_result(context: CommandContext, name: str, rest: Sequence[str], *, out: Sink) -> str:
    """Print the answer of a command of the table; return its notice."""
    try:
        answer = await run_command(context, name, rest)
    except CommandUsageError as error:
        # The usage in the table is that of the slash command.
        words = ("usage: yarrow sessions", name, *(["ID"] if name in SESSION_COMMANDS else []), error.usage)
        raise CommandError(" ".join(filter(None, words))) from None
    text = f"{sanitize(answer.stdout_text)}\n"
    out.write(_fit(text, out) if name == "tree" else text)
    return answer.notice


def _fit(text: str, out: Sink) -> str:
    """Return a text with its lines cut at the width of the terminal, if it goes to one."""
    return session_descriptions.cut_lines(text, shutil.get_terminal_size().columns) if out.is_terminal else text


async def _print_list(stub: Stub, request: pb.ListSessionsRequest, *, json: bool, out: Sink) -> int:
    """Print the sessions; return their number."""
    response = await stub.ListSessions(request)
    if not json:
        out.write(_fit(session_descriptions.format_list(response.sessions), out))
        return len(response.sessions)
    for session in response.sessions:
        entry = {
            "sessionId": session.session_id,
            "parentId": session.parent_id,
            "name": session.name,
            "title": session.title,
            "cwd": session.cwd,
            "provider": session.provider,
            "model": session.model,
            "created": session.created.ToJsonString(),
            "updated": session.updated.ToJsonString(),
            "active": session.active,
        }
        if request.search:
            entry["found"] = session.found
        out.write(dumps(entry) + "\n")
    return len(response.sessions)
