"""The commands about sessions, once for every client: each is a few calls of the service and an answer in words."""

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from yarrow.client import describe, files
from yarrow.client.command import Answer, Command, Failed, Here, WrongUse, WrongWords
from yarrow.client.missed import messages_after
from yarrow.client.session import find_session
from yarrow.client.settings import SETTINGS
from yarrow.v1 import agent_pb2 as pb

NAME = re.compile(r"/([\w.:-]+)(?:\s+|$)")
"""How a command begins; a path has a second slash in it and is none."""
PROMPT_LINES = 40
"""Lines shown of a system prompt that an import brings."""


async def perform_line(here: Here, line: str, *, table: Mapping[str, Command] | None = None) -> Answer:
    """Do what a line such as `/branch 3` says. Raises as `perform`."""
    name, *more = line.strip().removeprefix("/").split(None, 1) or [""]
    command = (COMMANDS if table is None else table).get(name)
    # One that takes a single word takes the rest of the line, spaces and all: a path, a name, instructions.
    whole = command is not None and command.most == 1 and more
    return await perform(here, name, more if whole else _words("".join(more)), table=table)


async def perform(here: Here, name: str, words: Sequence[str], *, table: Mapping[str, Command] | None = None) -> Answer:
    """Do a command of a table, `COMMANDS` when none is given.

    Raises `WrongWords` for a command that does not exist or is not used like that, `files.WrongPath`, `Failed`, and
    `aio.AioRpcError` when the service refuses.
    """
    command = (COMMANDS if table is None else table).get(name)
    if command is None:
        near = nearest(name)
        hint = f"did you mean /{near}?" if near else f"there are /{', /'.join(COMMANDS)}"
        raise WrongWords(f"there is no command /{name}; {hint}")
    if len(words) > command.most:
        raise WrongUse(name, command.usage)
    return await command.run(here, words)


def is_command(line: str) -> bool:
    """Return whether a line is a command of the table."""
    name, *_ = line.removeprefix("/").split(None, 1) or [""]
    return line.startswith(f"/{name}") and name in COMMANDS and "\n" not in line.strip()


def nearest(name: str, others: Iterable[str] = ()) -> str:
    """Return the command, or which of `others`, `name` was probably meant to be, or an empty text."""
    # Here, since only a mistake needs it.
    from difflib import get_close_matches

    return next(iter(get_close_matches(name, [*COMMANDS, *others], n=1, cutoff=0.8)), "")


async def _branch(here: Here, words: Sequence[str]) -> Answer:
    index = _number(words[0], "the index of a message") if words else None
    made = await here.stub.BranchSession(pb.BranchSessionRequest(session_id=here.session_id, index=index))
    return _made("branched", made.session_id)


async def _fork(here: Here, _words: Sequence[str]) -> Answer:
    made = await here.stub.ForkSession(pb.ForkSessionRequest(session_id=here.session_id))
    return _made("forked", made.session_id)


async def _rebase(here: Here, words: Sequence[str]) -> Answer:
    squash = "--squash" in words
    indices = [_number(word, "the index of a message") for word in words if word != "--squash"]
    if not indices or any(index < 0 for index in indices):
        raise WrongUse("rebase", "INDEX... [--squash], where an index counts from 0")
    request = pb.RebaseSessionRequest(session_id=here.session_id, indices=indices, squash=squash)
    made = await here.stub.RebaseSession(request)
    added = f"; messages {', '.join(map(str, made.added))} came along with their calls" if made.added else ""
    return Answer(_made("rebased", made.session_id).text + added, made.session_id)


async def _merge(here: Here, words: Sequence[str]) -> Answer:
    others = [word for word in words if word != "--summary"]
    if len(others) != 1:
        raise WrongUse("merge", "SESSION [--summary]")
    other = await find_session(here.stub, others[0])
    request = pb.MergeSessionRequest(session_id=here.session_id, other_session_id=other, summary="--summary" in words)
    made = _made(f"merged with {describe.short(other)}", (await here.stub.MergeSession(request)).session_id)
    said = ""
    async for message in messages_after(here.stub, made.session_id, ""):
        # The last is the model's, on how both fit together.
        said = "".join(block.text.text for block in message.content)
    return Answer(made.text, made.session_id, said=said.strip())


async def _compact(here: Here, words: Sequence[str]) -> Answer:
    request = pb.CompactRequest(session_id=here.session_id, instructions=" ".join(words))
    before = 0
    async for response in here.stub.Compact(request):
        event = response.event
        if event.HasField("compaction_start"):
            before = event.compaction_start.tokens_before
        elif event.HasField("compaction_end"):
            end = event.compaction_end
            if end.HasField("error"):
                raise Failed(f"the context was not compacted: {end.error.message}", end.error.code)
            return Answer(f"compacted the context from {before:,} to {end.tokens_after:,} tokens")
    raise Failed("the service ended before the context was compacted", "DRAINING")


async def _export(here: Here, words: Sequence[str]) -> Answer:
    if not words:
        raise WrongUse("export", "PATH, which ends in .jsonl or .html")
    path = _path(here, words[0])
    size = await files.export(here.stub, here.session_id, path)
    return Answer(f"wrote {path} ({size:,} bytes)")


async def _import(here: Here, words: Sequence[str]) -> Answer:
    if not words:
        raise WrongUse("import", "PATH")
    made = await files.take_in(here.stub, _path(here, words[0]), here.cwd)
    skipped = f"; {made.skipped_lines} lines could not be read" if made.skipped_lines else ""
    text = _made("imported", made.session_id).text + skipped
    return Answer(text, made.session_id, notice=_brought(made))


def _brought(made: pb.ImportSessionResponse) -> str:
    """Return the system prompt that an imported session brings, indented so that no line of it looks like ours."""
    if not made.system_prompt:
        return ""
    lines = [f"    {line}" for line in made.system_prompt.splitlines()]
    more = len(lines) - PROMPT_LINES
    cut = made.system_prompt_characters > len(made.system_prompt)
    if more > 0 or cut:
        rest = f"{made.system_prompt_characters:,} characters in all"
        lines = [*lines[:PROMPT_LINES], f"    ... ({rest})"]
    return "\n".join(["the imported session brings its own system prompt, which its next run uses:", *lines])


async def _resume(here: Here, words: Sequence[str]) -> Answer:
    if not words:
        raise WrongUse("resume", "SESSION; /tree shows them")
    found = await find_session(here.stub, words[0])
    return Answer(f"resumed {describe.short(found)}", found)


async def _tree(here: Here, words: Sequence[str]) -> Answer:
    if words not in ([], ["all"]):
        raise WrongUse("tree", "[all]")
    scope = pb.SESSION_SCOPE_ALL if words else pb.SESSION_SCOPE_PROJECT
    response = await here.stub.GetSessionTree(pb.GetSessionTreeRequest(scope=scope, cwd=here.cwd))
    return Answer(describe.tree(response.nodes).rstrip("\n") or "there are no saved sessions")


async def _stats(here: Here, _words: Sequence[str]) -> Answer:
    stats = await here.stub.GetStats(pb.GetStatsRequest(session_id=here.session_id))
    return Answer(describe.figures(stats).rstrip("\n"))


async def _show(here: Here, _words: Sequence[str]) -> Answer:
    parts = [
        describe.conversation(index, message)
        for index, message in enumerate([one async for one in messages_after(here.stub, here.session_id, "")])
    ]
    return Answer("".join(parts).rstrip("\n") or "nothing was said yet")


async def _name(here: Here, words: Sequence[str]) -> Answer:
    if not words:
        raise WrongUse("name", "NAME")
    await here.stub.ConfigureSession(pb.ConfigureSessionRequest(session_id=here.session_id, name=words[0]))
    return Answer(f"named the session {words[0]}")


def _path(here: Here, word: str) -> Path:
    try:
        return Path(here.cwd) / Path(word).expanduser()
    except RuntimeError:
        home = word.partition("/")[0]
        raise files.WrongPath(f"{word}: there is no home directory {home}; write the whole path") from None


def _made(how: str, session_id: str) -> Answer:
    return Answer(f"{how}: the session is now {describe.short(session_id)}", session_id)


def _number(word: str, what: str) -> int:
    try:
        number = int(word)
    except ValueError:
        raise WrongWords(f"{word!r} is not {what}") from None
    if abs(number) >= 1 << 31:
        raise WrongWords(f"{word} is not {what}")
    return number


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise WrongWords(f"{text!r} cannot be taken apart: {error}") from None


COMMANDS: dict[str, Command] = {
    "branch": Command("[INDEX]", "a child with the history up to a message", _branch, 1),
    "fork": Command("", "a detached copy", _fork),
    "rebase": Command("INDEX... [--squash]", "a session of chosen messages", _rebase, 10_000),
    "merge": Command("SESSION [--summary]", "bring another session into this one", _merge, 2),
    "compact": Command("[INSTRUCTIONS]", "sum up the older part of the context", _compact, 1, waits=True),
    "export": Command("PATH", "write the session to a file that ends in .jsonl or .html", _export, 1),
    "import": Command("PATH", "make a session of a JSONL file", _import, 1),
    "resume": Command("SESSION", "go on with a saved session", _resume, 1),
    "tree": Command("[all]", "the saved sessions of this project, or of all", _tree, 1),
    "stats": Command("", "tokens, tools, compactions and times", _stats),
    "show": Command("", "the messages with their indices", _show),
    "name": Command("NAME", "give the session a name", _name, 1, waits=True),
}
"""By name, in the order in which they are listed."""
CONVERSING: dict[str, Command] = {**COMMANDS, **SETTINGS}
"""Those that a conversation has, which goes on with the session that a command answers with."""
