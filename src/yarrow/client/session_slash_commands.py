"""Slash commands for sessions, shared by all clients: each makes a few RPCs and returns an answer as text."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from msgspec.structs import replace

from yarrow.client import session_descriptions, session_export
from yarrow.client.front_end import (
    FrontEnd,
    MessagePicker,
    MessageSelection,
    SessionChoice,
    SessionPicker,
    ToolOutputPage,
    WordPicker,
)
from yarrow.client.session_lookup import find_session, join_text, read_messages_after
from yarrow.client.slash_command import (
    CommandContext,
    CommandError,
    CommandFailedError,
    CommandResult,
    CommandUsageError,
    CommandWording,
    SlashCommand,
)
from yarrow.v1 import agent_pb2 as pb

COMMAND_NAME = re.compile(r"/([\w.:-]+)(?:\s+|$)")
"""Start of a command; a path does not match because of its second slash."""
SKILL_PREFIX = "skill:"
"""Prefix of the command of a skill; the name alone is enough if no other command has it."""
MAX_PROMPT_LINES = 40
"""Maximum lines shown of an imported system prompt."""
CreatedSession = (
    pb.BranchSessionResponse
    | pb.ForkSessionResponse
    | pb.RebaseSessionResponse
    | pb.MergeSessionResponse
    | pb.ImportSessionResponse
)
"""Response of the service with the id of a session that it created."""
_REBASE_USAGE = "INDEX... [--squash] (indices count from 0)"
_MERGE_USAGE = "SESSION [--summary]"


async def run_line(
    context: CommandContext, line: str, *, table: Mapping[str, SlashCommand] | None = None
) -> CommandResult:
    """Run a line such as `/branch 3`. Raises what `run_command` raises."""
    name, *more = line.strip().removeprefix("/").split(None, 1) or [""]
    command = (COMMANDS if table is None else table).get(name)
    # A single argument is the rest of the line, including spaces: a path, a name, instructions.
    has_screen = context.screen is not None
    whole = command is not None and command.wording(has_screen=has_screen).max_words == 1 and more
    return await run_command(context, name, more if whole else _split_words("".join(more)), table=table)


async def run_command(
    context: CommandContext, name: str, words: Sequence[str], *, table: Mapping[str, SlashCommand] | None = None
) -> CommandResult:
    """Run a command of a table, by default `COMMANDS`.

    Raises `CommandError` if the command does not exist or is used incorrectly, `FilePathError`, `CommandFailedError`,
    and `aio.AioRpcError` if the service refuses.
    """
    command = (COMMANDS if table is None else table).get(name)
    if command is None:
        near = find_nearest(name)
        hint = f"Did you mean /{near}?" if near else f"Commands: /{', /'.join(COMMANDS)}"
        raise CommandError(f"Unknown command /{name}. {hint}")
    wording = command.wording(has_screen=context.screen is not None)
    if len(words) > wording.max_words:
        raise CommandUsageError(name, wording.usage)
    return await command.run(context, words)


def is_command(line: str) -> bool:
    """Return whether a line is a command of `COMMANDS`."""
    name, *_ = line.removeprefix("/").split(None, 1) or [""]
    return line.startswith(f"/{name}") and name in COMMANDS and "\n" not in line.strip()


def is_prompt_command(name: str, expanded: Iterable[str]) -> bool:
    """Return whether a command is one of those that the service expands to prompts."""
    return not {name, f"{SKILL_PREFIX}{name}"}.isdisjoint(expanded)


def find_nearest(name: str, others: Iterable[str] = ()) -> str:
    """Return the command, or the one of `others`, that `name` was probably meant to be; empty if none is close."""
    # Imported here because only a mistyped command needs it.
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, [*COMMANDS, *others], n=1, cutoff=0.8)), "")


async def _branch(context: CommandContext, words: Sequence[str]) -> CommandResult:
    index = _parse_number(words[0], "a message index") if words else None
    made = await context.stub.BranchSession(pb.BranchSessionRequest(session_id=context.session_id, index=index))
    return _make_result("Branched to", made)


async def _fork(context: CommandContext, _words: Sequence[str]) -> CommandResult:
    made = await context.stub.ForkSession(pb.ForkSessionRequest(session_id=context.session_id))
    return _make_result("Forked to", made)


async def _rebase(context: CommandContext, words: Sequence[str]) -> CommandResult:
    if not words:
        alternative = "run /show to list messages, then /rebase INDEX... [--squash]"
        screen = context.require_screen("rebase", _REBASE_USAGE, alternative)
        return await _pick_rebase(context, screen, context.session_id)
    squash = "--squash" in words
    indices = [_parse_number(word, "a message index") for word in words if word != "--squash"]
    if not indices or any(index < 0 for index in indices):
        raise CommandUsageError("rebase", _REBASE_USAGE)
    request = pb.RebaseSessionRequest(session_id=context.session_id, indices=indices, squash=squash)
    made = await context.wait("rebasing", context.stub.RebaseSession(request))
    added = f"; also kept: {', '.join(map(str, made.added))} (calls and results stay together)" if made.added else ""
    return _make_result("Rebased to", made, added)


async def _pick_rebase(context: CommandContext, screen: FrontEnd, session_id: str) -> CommandResult:
    """Show the messages of a session and create a session from those that the user chooses."""
    messages = [one async for one in read_messages_after(context.stub, session_id, "")]
    if not messages:
        raise CommandError("No messages in this session yet")
    chosen: MessageSelection | None = await screen.pick(MessagePicker(messages))
    if chosen is None:
        return CommandResult("")
    request = pb.RebaseSessionRequest(session_id=session_id, indices=chosen.indices, squash=chosen.squash)
    doing = "summarizing" if chosen.squash else "rebasing"
    return _make_result("Rebased to", await context.wait(doing, context.stub.RebaseSession(request)))


async def _merge(context: CommandContext, words: Sequence[str]) -> CommandResult:
    if not words:
        alternative = "run /tree to list sessions, then /merge SESSION [--summary]"
        screen = context.require_screen("merge", _MERGE_USAGE, alternative)
        picked = await _pick_other_session(context, screen)
        if picked is None:
            return CommandResult("")
        words = [picked]
    return await context.wait("merging", _merge_sessions(context, words))


async def _merge_sessions(context: CommandContext, words: Sequence[str]) -> CommandResult:
    others = [word for word in words if word != "--summary"]
    if len(others) != 1:
        raise CommandUsageError("merge", _MERGE_USAGE)
    other = await find_session(context.stub, others[0])
    request = pb.MergeSessionRequest(
        session_id=context.session_id, other_session_id=other, summary="--summary" in words
    )
    made = _make_result(
        f"Merged {session_descriptions.shorten_id(other)}; continuing in",
        await context.stub.MergeSession(request),
    )
    said = ""
    async for message in read_messages_after(context.stub, made.session_id, ""):
        # The last message is the model's, on how the two sessions fit together.
        said = join_text(message)
    return replace(made, model_text=said.strip())


async def _pick_other_session(context: CommandContext, screen: FrontEnd) -> str | None:
    request = pb.ListSessionsRequest(scope=pb.SESSION_SCOPE_PROJECT, cwd=context.cwd)
    sessions = (await context.stub.ListSessions(request)).sessions
    others = [one for one in sessions if one.session_id != context.session_id]
    if not others:
        raise CommandError("No other session to merge")
    choices = [
        (session_descriptions.shorten_id(one.session_id), session_descriptions.format_session(one).partition("  ")[2])
        for one in others
    ]
    return await screen.pick(WordPicker(("Merge which session into this one?", "Merge which one?"), choices))


async def _compact(context: CommandContext, words: Sequence[str]) -> CommandResult:
    request = pb.CompactRequest(session_id=context.session_id, instructions=" ".join(words))
    start = pb.CompactionStart()
    async for response in context.stub.Compact(request):
        event = response.event
        if event.HasField("compaction_start"):
            start = event.compaction_start
        elif event.HasField("compaction_end"):
            end = event.compaction_end
            if end.HasField("error"):
                raise CommandFailedError(f"Compaction failed: {end.error.message}", end.error.code)
            return _format_compaction(
                pb.CompactionRecord(
                    reason=start.reason,
                    tokens_before=start.tokens_before,
                    tokens_after=end.tokens_after,
                    summary=end.summary,
                )
            )
    raise CommandFailedError("The service stopped before the compaction was done", "DRAINING")


def _format_compaction(done: pb.CompactionRecord) -> CommandResult:
    text = f"Compacted the context from {done.tokens_before:,} to {done.tokens_after:,} tokens"
    return CommandResult(text, response=done)


async def _export(context: CommandContext, words: Sequence[str]) -> CommandResult:
    if not words:
        raise CommandUsageError("export", "PATH.jsonl or PATH.html")
    path = _parse_path(context, words[0])
    size = await context.wait("exporting", session_export.export_file(context.stub, context.session_id, path))
    return CommandResult(f"Exported to {path} ({session_descriptions.format_size(size)})")


async def _import(context: CommandContext, words: Sequence[str]) -> CommandResult:
    if not words:
        raise CommandUsageError("import", "PATH")
    path = _parse_path(context, words[0])
    made = await context.wait("importing", session_export.import_file(context.stub, path, context.cwd))
    skipped = f"; unreadable lines skipped: {made.skipped_lines:,}" if made.skipped_lines else ""
    return replace(_make_result("Imported as", made, skipped), notice=_format_imported_prompt(made))


def _format_imported_prompt(made: pb.ImportSessionResponse) -> str:
    """Return the system prompt of an imported session, indented so that no line looks like Yarrow's own."""
    if not made.system_prompt:
        return ""
    lines = [f"    {line}" for line in made.system_prompt.splitlines()]
    more = len(lines) - MAX_PROMPT_LINES
    cut = made.system_prompt_characters > len(made.system_prompt)
    if more > 0 or cut:
        rest = f"{made.system_prompt_characters:,} characters in total"
        lines = [*lines[:MAX_PROMPT_LINES], f"    ... ({rest})"]
    return "\n".join(["The imported session has its own system prompt, which its next run will use:", *lines])


async def _resume(context: CommandContext, words: Sequence[str]) -> CommandResult:
    if not words:
        alternative = "run /tree to list sessions, then /resume SESSION"
        return await _browse(context, context.require_screen("resume", "SESSION (/tree lists them)", alternative))
    found = await find_session(context.stub, words[0])
    return CommandResult(f"Resumed {session_descriptions.shorten_id(found)}", found)


async def _tree(context: CommandContext, words: Sequence[str]) -> CommandResult:
    if words not in ([], ["all"]):
        raise CommandUsageError("tree", "[all]")
    if not words and context.screen is not None:
        return await _browse(context, context.screen)
    scope = pb.SESSION_SCOPE_ALL if words else pb.SESSION_SCOPE_PROJECT
    response = await context.stub.GetSessionTree(pb.GetSessionTreeRequest(scope=scope, cwd=context.cwd))
    text = session_descriptions.format_tree(response.nodes).rstrip("\n") or "No saved sessions"
    return CommandResult(text, response=response)


async def _browse(context: CommandContext, screen: FrontEnd) -> CommandResult:
    """Show the sessions of the project and perform the action that the user chooses."""
    request = pb.GetSessionTreeRequest(scope=pb.SESSION_SCOPE_PROJECT, cwd=context.cwd)
    nodes = (await context.stub.GetSessionTree(request)).nodes
    if not nodes:
        raise CommandError("No saved sessions")
    choice: SessionChoice | None = await screen.pick(SessionPicker(nodes, context.session_id))
    if choice is None:
        return CommandResult("")
    match choice.action:
        case "resume":
            short = session_descriptions.shorten_id(choice.session_id)
            return CommandResult(f"Resumed {short}", choice.session_id, reopens=True)
        case "branch":
            branch = await context.stub.BranchSession(pb.BranchSessionRequest(session_id=choice.session_id))
            return _make_result("Branched to", branch)
        case "fork":
            fork = await context.stub.ForkSession(pb.ForkSessionRequest(session_id=choice.session_id))
            return _make_result("Forked to", fork)
        case "rebase":
            return await _pick_rebase(context, screen, choice.session_id)


async def _stats(context: CommandContext, _words: Sequence[str]) -> CommandResult:
    stats = await context.stub.GetStats(pb.GetStatsRequest(session_id=context.session_id))
    return CommandResult(session_descriptions.format_stats(stats).rstrip("\n"), response=stats)


async def _show(context: CommandContext, words: Sequence[str]) -> CommandResult:
    if context.screen is not None:
        await context.screen.view(ToolOutputPage(words[0] if words else ""))
        return CommandResult("")
    return await show_messages(context)


async def show_messages(context: CommandContext) -> CommandResult:
    """Return the messages of the session with their indices."""
    messages = [one async for one in read_messages_after(context.stub, context.session_id, "")]
    text = "".join(session_descriptions.format_message(index, message) for index, message in enumerate(messages))
    return CommandResult(text.rstrip("\n") or "No messages yet", response=pb.GetMessagesResponse(messages=messages))


async def _name(context: CommandContext, words: Sequence[str]) -> CommandResult:
    if not words:
        raise CommandUsageError("name", "NAME")
    await context.stub.ConfigureSession(pb.ConfigureSessionRequest(session_id=context.session_id, name=words[0]))
    return CommandResult(f"Named this session {words[0]}")


def _parse_path(context: CommandContext, word: str) -> Path:
    try:
        return Path(context.cwd) / Path(word).expanduser()
    except RuntimeError:
        home = word.partition("/")[0]
        raise session_export.FilePathError(f"{word}: home directory {home} not found; use the full path") from None


def _make_result(how: str, made: CreatedSession, more: str = "") -> CommandResult:
    """Return the result for a session that the service created."""
    text = f"{how} {session_descriptions.shorten_id(made.session_id)}{more}"
    return CommandResult(text, made.session_id, response=made)


def _parse_number(word: str, what: str) -> int:
    try:
        number = int(word)
    except ValueError:
        raise CommandError(f"{word!r} is not {what}") from None
    if abs(number) >= 1 << 31:
        raise CommandError(f"{word} is not {what}")
    return number


def _split_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise CommandError(f"Can't parse {text!r}: {error}") from None


COMMANDS: dict[str, SlashCommand] = {
    "branch": SlashCommand("[INDEX]", "branch from a message", _branch, 1),
    "fork": SlashCommand("", "copy this session", _fork),
    "rebase": SlashCommand(
        "INDEX... [--squash]",
        "create a session from selected messages",
        _rebase,
        10_000,
        on_screen=CommandWording("", "create a session from selected messages", 10_000),
    ),
    "merge": SlashCommand(
        _MERGE_USAGE,
        "merge another session into this one",
        _merge,
        2,
        on_screen=CommandWording("[SESSION] [--summary]", "merge another session into this one", 2),
    ),
    "compact": SlashCommand(
        "[INSTRUCTIONS]", "summarize the older part of the context", _compact, 1, is_idle_only=True
    ),
    "export": SlashCommand("PATH", "export the session to a .jsonl or .html file", _export, 1),
    "import": SlashCommand("PATH", "import a session from a JSONL file", _import, 1),
    "resume": SlashCommand(
        "SESSION",
        "resume a saved session",
        _resume,
        1,
        on_screen=CommandWording("[SESSION]", "resume a saved session"),
    ),
    "tree": SlashCommand(
        "[all]",
        "show the sessions of this project, or of all, as a tree",
        _tree,
        1,
        on_screen=CommandWording("", "browse, resume, branch or fork sessions"),
    ),
    "stats": SlashCommand("", "show tokens, tools, compactions and times", _stats),
    "show": SlashCommand(
        "",
        "show the messages with their indices",
        _show,
        on_screen=CommandWording("[CALL]", "show the whole output of a tool"),
    ),
    "name": SlashCommand("NAME", "name the session", _name, 1, is_idle_only=True),
}
"""Commands by name, in the order in which they are listed."""
