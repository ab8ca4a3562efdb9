"""Generator of the reference pages and the descriptions of tools from the code: pages.py FOLDER, or pages.py --check

With `--check` nothing is written; it fails if a page in docs/ or the descriptions are not up to date.
"""

import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
from described import Described, Field, structs
from google.protobuf.descriptor import Descriptor

from yarrow import message
from yarrow.cli.command_table import COMMAND_WORDS, COMMANDS, FLAGS
from yarrow.cli.exit_codes import MEANINGS
from yarrow.cli.help import format_help
from yarrow.client.session_listing import USAGE
from yarrow.client.session_slash_commands import COMMANDS as PROMPT_COMMANDS
from yarrow.config import settings
from yarrow.config.schema import USER_ONLY_NOTE
from yarrow.config.settings_merge import VARIABLE_PREFIX, map_settings_by_variable
from yarrow.config.validation import MAX_NUMBER
from yarrow.event import events
from yarrow.session import record
from yarrow.tool.base import get_access
from yarrow.tool.builtin import DESCRIPTIONS, NAMES, BuiltinTool, ToolDescription
from yarrow.tool.registry import make_spec
from yarrow.v1 import agent_pb2 as pb

DOCS = Path(__file__).resolve().parents[1] / "docs"
MADE = "This page is generated from the code by `make generate`."
_OF_COMMANDS = """\
- The command may follow flags: `yarrow --attach SOCKET sessions list`.
- A flag that the command does not use is refused.
- `yarrow -p WORD` sends the word as a prompt. So does `yarrow "models are slow"`: quoted words are a prompt.
- A prompt of one word that resembles a command is refused, so that a typo starts no run.
- `yarrow COMMAND --help` describes one command.

`yarrow sessions list --json` and `yarrow sessions all --json` print one object per line with `sessionId`, `parentId`,
`name`, `title`, `cwd`, `provider`, `model`, `created`, `updated` and `active`. `yarrow sessions search TEXT --json`
adds `found`, the line that contains the text.
"""
_OF_PROVIDERS = """\
A provider is `providers.ID`. A timeout of 0 means no limit, and null the provider's default.

- These ids need no configuration: {ids}.
- Any other id needs a `type`.
"""
_OF_PRICES = """\
A price is `prices.MODEL`, in US dollars per million tokens. The status line and `/stats` show the resulting cost.
"""
_OF_ALLOWED_CALLS = """\
Yarrow adds an entry to `permissions.always` when you answer *always* to a [question](permissions.md#questions).
"""
_OF_EVENTS = """`yarrow --json` prints a header, then one event per line as
a JSON object. Over gRPC the same events are `AgentEvent` ([proto](../proto/yarrow/v1/agent.proto)).

## Order

Within a run the order is

```text
agentStart (turnStart messageStart (textDelta|thinkingDelta|toolCall)* messageEnd
            (toolDelta* toolOutput)* turnEnd)* agentEnd
```

- The order holds for failed and aborted runs too.
- All other events can occur between these.

## Common fields

- `sessionId`: the session.
- `runId`: the run; absent outside a run.
- `sequence`: the position among the session's events, without gaps.
- `time`: the time of publication.

The encoding is protobuf's JSON: a 64-bit number is a string, and a field with an empty value is absent. The
[protocol](protocol.md#messages) describes each field.

## Header

The header has `type` (`header`), `schemaVersion`, `sessionId`, `cwd`, `provider`, `model` and `versions`.

A command instead of a prompt, such as `yarrow --json -c "/stats"`, produces no events. One line follows the header,
with `type` (`command`), `name`, `text` (the output of the command) and `sessionId` (the session to continue with).
If the command reports or creates something, `result` contains the same as fields: those of `GetStatsResponse` for
`/stats`, `GetSessionTreeResponse` for `/tree`, `GetMessagesResponse` for `/show`, `CompactionRecord` for `/compact`,
and of the RPC's response for a command that creates a session.
`/tree` concerns no single session, so its header names none.

## Events
"""
_OF_COMPLETION = """\
Add one line to your shell profile to complete flags, values, commands, sessions and models.
"""
_LINKS = {
    "ProviderSettings": "[providers](#providers)",
    "Price": "[prices](#prices)",
    "AllowedCall": "[allowed calls](#allowed-calls)",
}
"""Sections that describe the structs in types of keys, by class name."""
_IN_PLACE = """\
These commands work in the terminal UI, and as a prompt with `-c` or `-r ID`: `yarrow -c "/stats"`.

- A prompt of one line that begins with a slash and a name must be a command, template or skill: `yarrow "/nope"` is
  refused and never sent to the model.
- A path such as `/usr/bin/env` is not a command. A space before the slash sends the line as it is.
- `!COMMAND` is only for conversations. On the command line use a pipe: `make test 2>&1 | yarrow -c "what failed?"`.
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
            f"# The command line\n\n{MADE} The [tutorial](tutorial.md) shows it in use.\n",
            f"```text\n{format_help()}```\n",
            "## Flags\n\nBoth `--flag VALUE` and `--flag=VALUE` work. Everything after `--` is the prompt.\n",
            *_table(("flag", "group", "values", "effect"), flags),
            f"## Commands\n\n{_OF_COMMANDS}",
            *_table(("command", "subcommands", "effect"), commands),
            f"```text\n{USAGE}\n```\n",
            f"## Commands in place of a prompt\n\n{_IN_PLACE}",
            *_table(("command", "effect"), prompt),
            "## Exit codes\n",
            *_table(("code", "meaning"), [(f"`{int(code)}`", meaning) for code, meaning in MEANINGS.items()]),
            f"## Completion\n\n{_OF_COMPLETION}",
            *_table(
                ("shell", "line and file"),
                [
                    ("bash", '`eval "$(yarrow --completions bash)"` in `~/.bashrc`'),
                    ("zsh", "`source <(yarrow --completions zsh)` in `~/.zshrc`, after `compinit`"),
                    ("fish", "`yarrow --completions fish | source` in `~/.config/fish/config.fish`"),
                ],
            ),
        ]
    )


def configuration() -> str:
    """Return the page of settings: keys by dotted path, providers, the remaining objects, and variables."""
    found = structs(settings)
    heads = ("key", "type", "default", "meaning")
    ids = ", ".join(f"`{name}`" for name in settings.BUILT_IN_PROVIDERS)
    variables = [
        (f"`{VARIABLE_PREFIX}{name}`", f"`{field.encode_name}`")
        for name, field in sorted(map_settings_by_variable().items())
    ]
    return "\n".join(
        [
            "# Settings\n",
            f"{MADE} [Configuration](configuration.md) explains files, layers and trust;",
            "`yarrow config schema` prints the same keys as a JSON Schema.\n",
            f"## Keys\n\nA number is between 0 and {MAX_NUMBER}.\n",
            *_table(heads, _keys(found, "Settings", "")),
            f"## Providers\n\n{_OF_PROVIDERS.format(ids=ids)}",
            *_table(heads, map(_row, found["ProviderSettings"].fields)),
            f"## Prices\n\n{_OF_PRICES}",
            *_table(heads, map(_row, found["Price"].fields)),
            f"## Allowed calls\n\n{_OF_ALLOWED_CALLS}",
            *_table(heads, map(_row, found["AllowedCall"].fields)),
            "## Variables\n\nA top-level key with a single value has a variable.\n",
            *_table(("variable", "setting"), variables),
        ]
    )


def _keys(found: Mapping[str, Described], name: str, prefix: str) -> Iterable[Sequence[str]]:
    """Yield a row for each key of a struct; the fields of a nested struct follow under their dotted path."""
    note = f" {USER_ONLY_NOTE}" if USER_ONLY_NOTE in found[name].text else ""
    for field in found[name].fields:
        if field.type in found:
            outer = f" {USER_ONLY_NOTE}" if USER_ONLY_NOTE in field.text else ""
            rows = _keys(found, field.type, f"{prefix}{field.name}.")
            yield from ((*cells, meaning + outer) for *cells, meaning in rows)
        else:
            item = field.type.rpartition(" ")[2]
            kind = field.type.replace(item, _LINKS.get(item, item))
            yield *_row(field._replace(name=prefix + field.name, type=kind))[:3], f"{field.text}{note}"


def event_stream() -> str:
    """Return the page of events, as printed by JSON mode and streamed by `Prompt`."""
    found = structs(events)
    parts = [f"# Events\n\n{MADE} {_OF_EVENTS}"]
    for field in pb.AgentEvent.DESCRIPTOR.oneofs_by_name["event"].fields:
        kind = field.message_type
        assert kind is not None
        body = next(found[name] for name in (kind.name, f"{kind.name}Event", f"{kind.name}Report") if name in found)
        fields = ", ".join(f"`{each.json_name}`" for each in kind.fields) or "no fields"
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
            f"object per line, append-only, UTF-8, format version {record.VERSION}. Files beside it store large texts",
            "and images.\n",
            "- Files of every version stay readable: fields are only added, each with a default.",
            "- A reader skips a line that it does not understand, with a warning, and never rewrites it.\n",
            "## Lines\n",
            *(line for each in (lines["Header"], said["Message"]) for line in _value(each)),
            *(line for name, each in lines.items() if name != "Header" for line in _value(each)),
            "## Blocks of a message\n",
            *(line for each in blocks for line in _value(each)),
            *_value(said["Usage"]),
        ]
    )


def _value(value: Described) -> Iterable[str]:
    """Yield a heading, a description and a table, with the names of JSON."""
    yield f"### {value.name}\n\n{_escaped(value.text)}{f' Tag: {value.tag}.' if value.tag else ''}\n"
    rows = (field._replace(text=re.sub(r"\bNone\b", "null", field.text)) for field in value.fields)
    yield from _table(("field", "type", "default", "meaning"), map(_row, rows))


def _row(field: Field) -> Sequence[str]:
    return (f"`{field.name}`", field.type, f"`{field.default}`" if field.default else "required", field.text)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterable[str]:
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield f"| {' | '.join(_escaped(cell) for cell in row)} |"
    yield ""


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


def tool_descriptions() -> str:
    """Return the descriptions of the built-in tools, in JSON."""
    tools = {name: BuiltinTool(name).load() for name in NAMES}
    found = {name: ToolDescription(tool.read_only, get_access(tool), make_spec(tool)) for name, tool in tools.items()}
    return msgspec.json.format(msgspec.json.encode(found)).decode() + "\n"


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
            stale = [f"docs/{name}" for name, page in PAGES.items() if _read(DOCS / name) != page().rstrip() + "\n"]
            stale += [DESCRIPTIONS.name] if _read(DESCRIPTIONS) != tool_descriptions() else []
            for name in stale:
                print(f"{name} is not what the code says: run make generate", file=sys.stderr)
            return 1 if stale else 0
        case [folder] if not folder.startswith("-"):
            for name, page in PAGES.items():
                (Path(folder) / name).write_text(page().rstrip() + "\n", "utf-8")
            DESCRIPTIONS.write_text(tool_descriptions(), "utf-8")
            return 0
        case _:
            print(__doc__, file=sys.stderr)
            return 2


def _read(path: Path) -> str:
    return path.read_text("utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
