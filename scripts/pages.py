"""Generator of the reference pages from the code: pages.py FOLDER, or pages.py --check

With `--check` nothing is written; it fails if a page in docs/ is not up to date.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from described import Described, Field, structs
from google.protobuf.descriptor import Descriptor

from yarrow import message
from yarrow.cli.exit_codes import MEANINGS
from yarrow.cli.flags import COMMAND_WORDS, COMMANDS, FLAGS
from yarrow.cli.help import format_help
from yarrow.client.sessions_command import USAGE
from yarrow.client.slash_commands import COMMANDS as PROMPT_COMMANDS
from yarrow.config import settings
from yarrow.config.layers import VARIABLE_PREFIX, map_settings_by_variable
from yarrow.event import events
from yarrow.session import record
from yarrow.v1 import agent_pb2 as pb

DOCS = Path(__file__).resolve().parents[1] / "docs"
MADE = "This page is made from the code by `make generate`."
_OF_COMMANDS = """\
The first word can be a command, also behind flags: `yarrow --attach SOCKET sessions list`. A flag that the command
does not heed is refused. `yarrow -p WORD` sends the word as a prompt, and so do quotes around several: `yarrow
"models are slow"`. A prompt of one word that is nearly a command is refused, so that a slip costs no run. `yarrow
COMMAND --help` tells about one command.

`yarrow sessions list --json` prints an object a line, with `sessionId`, `parentId`, `name`, `title`, `cwd`,
`provider`, `model`, `created`, `updated` and `active`; so do `yarrow sessions all --json` and `yarrow
sessions search TEXT --json`, the latter with `found`, the line that holds the text. `--export` without `-c` or `-r`
writes the newest session of this directory, and says which that is.
"""
_IN_PLACE = """\
In the terminal UI, and as a prompt with `-c` or `-r ID`. A prompt of one line that begins with a slash and a name
that is no command, template or skill is never sent to the model: `yarrow "/nope"` is refused. A path such as
`/usr/bin/env` is no command, and a space before the slash sends the line as it is. `!COMMAND` is for conversations;
on the command line it is refused in the same way, since a shell is at hand: `make test 2>&1 | yarrow -c "what
failed?"`.
"""


def command_line() -> str:
    """Return the page of flags, commands and exit codes."""
    flags = [
        (
            f"`{', '.join(flag.names)}{f' {flag.value}' if flag.value else ''}`",
            flag.group,
            ", ".join(f"`{choice}`" for choice in flag.choices),
            flag.help,
        )
        for flag in FLAGS
    ]
    commands = [
        (f"`yarrow {name}`", " ".join(f"`{word}`" for word in COMMAND_WORDS[name]), text)
        for name, text in COMMANDS.items()
    ]
    prompt = [(f"`/{name} {each.usage}`".replace(" `", "`"), each.help) for name, each in PROMPT_COMMANDS.items()]
    return "\n".join(
        [
            f"# The command line\n\n{MADE} How it is used is in the [tutorial](tutorial.md).\n",
            f"```text\n{format_help()}```\n",
            "## Flags\n\nA flag may be written `--flag VALUE` or `--flag=VALUE`; what follows `--` is prompt.\n",
            *_table(("flag", "about", "values", "what it does"), flags),
            f"## Commands\n\n{_OF_COMMANDS}",
            *_table(("command", "words that may follow", "what it does"), commands),
            f"```text\n{USAGE}\n```\n",
            f"## Commands in place of a prompt\n\n{_IN_PLACE}",
            *_table(("command", "what it does"), prompt),
            "## Exit codes\n",
            *_table(("code", "meaning"), [(f"`{int(code)}`", meaning) for code, meaning in MEANINGS.items()]),
            "## Completion\n\nA shell that has read its script completes flags, values, commands, sessions, models.\n",
            *_table(
                ("shell", "where it goes"),
                [
                    ("bash", '`eval "$(yarrow --completions bash)"` in `~/.bashrc`'),
                    ("zsh", "`source <(yarrow --completions zsh)` in `~/.zshrc`, after `compinit`"),
                    ("fish", "`yarrow --completions fish | source` in `~/.config/fish/config.fish`"),
                ],
            ),
        ]
    )


def configuration() -> str:
    """Return the page of settings."""
    found = structs(settings)
    names = ["Settings", *(name for name in found if name != "Settings")]
    variables = [
        (f"`{VARIABLE_PREFIX}{name}`", f"`{field.encode_name}`")
        for name, field in sorted(map_settings_by_variable().items())
    ]
    return "\n".join(
        [
            f"# Settings\n\n{MADE} Files, layers and trust are in [Configuration](configuration.md);",
            "`yarrow config schema` prints the same as a JSON Schema.\n",
            *(line for name in names for line in _value(found[name])),
            "## Variables\n",
            *_table(("variable", "setting"), variables),
        ]
    )


def event_stream() -> str:
    """Return the page of events, as printed by JSON mode and streamed by `Prompt`."""
    found = structs(events)
    parts = [
        "# Events\n",
        f"{MADE} `yarrow --json` prints a header and then these, one JSON object a",
        "line; over gRPC they are `AgentEvent` ([proto](../proto/yarrow/v1/agent.proto)). Within a run the order is\n",
        "```text",
        "agentStart (turnStart messageStart (textDelta|thinkingDelta|toolCall)* messageEnd",
        "            (toolDelta* toolOutput)* turnEnd)* agentEnd",
        "```\n",
        "also when it fails or is aborted; the others lie between them. Each has `sessionId`, `runId` (absent outside",
        "of a run), `sequence`, which counts the session's events without a gap, and `time`. 64-bit numbers are texts,",
        "and a field that is absent has its empty value: that is the JSON of protobuf.\n",
        "The header has `type` (`header`), `schemaVersion`, `sessionId`, `cwd`, `provider`, `model` and `versions`.",
        'Of a command in place of a prompt, as in `yarrow --json -c "/stats"`, no event is told: behind the header',
        "comes one line with `type` (`command`), `name`, `text`, which is what the command answered, and `sessionId`,",
        "the session to go on with. `/tree` is about no session, and its header names none.\n",
    ]
    for field in pb.AgentEvent.DESCRIPTOR.oneofs_by_name["event"].fields:
        kind = field.message_type
        assert kind is not None
        body = next(found[name] for name in (kind.name, f"{kind.name}Event", f"{kind.name}Report") if name in found)
        fields = ", ".join(f"`{each.json_name}`" for each in kind.fields) or "nothing"
        parts.append(f"### {field.json_name}\n\n{_escaped(_in_json(body.text, kind))}\n\nIt has {fields}.\n")
    return "\n".join(parts)


def _in_json(text: str, kind: Descriptor) -> str:
    """Return the description of an event with its fields named as in JSON."""
    for each in kind.fields:
        text = text.replace(f"`{each.name}`", f"`{each.json_name}`")
    return text


def session_format() -> str:
    """Return the page of the lines of a session file."""
    lines = structs(record)
    said = structs(message)
    blocks = [each for each in said.values() if each.tag and each.name != "Message"]
    return "\n".join(
        [
            "# The session file\n",
            f"{MADE} A session is `~/.yarrow/sessions/<project>/<id>.jsonl`: one JSON",
            f"object a line, append-only, UTF-8, format version {record.VERSION}. Files of every version are read for",
            "ever: fields are only added, each with a default; a reader skips and tells a line that it does not",
            "understand, and never rewrites it. Texts and images that are large lie in files beside it.\n",
            "## Lines\n",
            *(line for each in (lines["Header"], said["Message"]) for line in _value(each)),
            *(line for name, each in lines.items() if name != "Header" for line in _value(each)),
            "## Blocks of a message\n",
            *(line for each in blocks for line in _value(each)),
            *_value(said["Usage"]),
        ]
    )


def _value(value: Described) -> Iterable[str]:
    """Yield a heading, a description and a table."""
    yield f"### {value.name}\n\n{_escaped(value.text)}{f' Told by {value.tag}.' if value.tag else ''}\n"
    yield from _table(("field", "type", "default", "meaning"), map(_row, value.fields))


def _row(field: Field) -> Sequence[str]:
    return (f"`{field.name}`", field.type, f"`{field.default}`" if field.default else "must be there", field.text)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield f"| {' | '.join(_escaped(cell) for cell in row)} |"
    yield ""


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


PAGES = {
    "command-line.md": command_line,
    "settings.md": configuration,
    "events.md": event_stream,
    "session-format.md": session_format,
}
"""Pages by file name."""


def main(arguments: list[str]) -> int:
    """Run with the given arguments and return the exit code."""
    match arguments:
        case ["--check"]:
            stale = [name for name, page in PAGES.items() if _read(DOCS / name) != page().rstrip() + "\n"]
            for name in stale:
                print(f"docs/{name} is not what the code says: run make generate", file=sys.stderr)
            return 1 if stale else 0
        case [folder] if not folder.startswith("-"):
            for name, page in PAGES.items():
                (Path(folder) / name).write_text(page().rstrip() + "\n", "utf-8")
            return 0
        case _:
            print(__doc__, file=sys.stderr)
            return 2


def _read(path: Path) -> str:
    return path.read_text("utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
