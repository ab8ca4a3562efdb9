"""One-line notes for the user about tool calls, their results and other events of a run."""

import re
from typing import Any

import msgspec

from yarrow.client.json_mode import dumps
from yarrow.client.run_stream import RunResult
from yarrow.v1 import agent_pb2 as pb

MAX_NOTE_CHARACTERS = 120
"""Maximum characters of a note about a tool; the rest is truncated."""
MAX_PREVIEW_LINES = 400
"""Maximum lines of a dry-run preview; the note counts the rest."""
_DRY_RUN_PREFIX = "Dry run: "
"""Start of the output of a tool that only described what it would do."""
NO_OUTPUT = "[no output]"
"""Output of a command that printed nothing."""
NOT_RUN_PREFIX = "Not run: "
"""Start of the output of a call that was refused or stopped before it ran."""
MAX_QUARANTINE_CHARACTERS = 500
"""Maximum characters of a note about quarantined files; the rest is truncated."""
_QUARANTINED = re.compile(
    r"^\[(.+: (?:quarantined|renamed to .+|unchanged; the change was dropped) because .+)\]$", re.MULTILINE
)
"""Line below the output of a command about the files that were taken from it."""
_COMMAND_END = re.compile(r"^\[((?:exit code|timed out after|killed by signal) [^\]\n]+)\]", re.MULTILINE)
"""Line below the output of a failed command that says how it ended."""
_NO_ONE_TO_ASK = "no one can be asked (standard input or error is not a terminal)"
_KEY_ARGUMENTS = ("command", "pattern", "path")
"""Arguments that say most about a call, the most informative first."""


def format_call_note(name: str, arguments_json: str, invalid_arguments: str) -> str:
    """Return the note about a call, such as `> bash: ls -la timeout=30`."""
    raw = invalid_arguments or arguments_json
    try:
        arguments = msgspec.json.decode(raw, type=dict[str, Any])
        leaves = name == "bash" and arguments.get("outside") is True
        kept = {key: value for key, value in arguments.items() if not leaves or key not in {"outside", "reason"}}
        parts = _format_arguments(kept) + ["(outside the sandbox)"] * leaves
    except msgspec.DecodeError:
        return _truncate(f"> {name}: arguments that are not a JSON object: {raw}")
    except RecursionError:
        # Nested too deeply to parse; the beginning is still readable.
        return _truncate(f"> {name}: {raw}")
    return _truncate(f"> {name}: {' '.join(parts)}" if parts else f"> {name}")


def is_not_run(output: pb.ToolOutput) -> bool:
    """Return whether an output says that its call did not run."""
    # A command that failed may have printed anything, but its exit code follows.
    return output.is_error and output.text.startswith(NOT_RUN_PREFIX) and not _COMMAND_END.search(output.text)


def format_result_note(output: pb.ToolOutput) -> str:
    """Return a line about an error, or the size of a change; empty if there is neither."""
    if output.is_error:
        return _truncate(f"< {output.name}: {_summarize_error(output.text)}")
    if not output.diff:
        return ""
    added, removed = (
        # Three signs and a space start the line that names a file.
        sum(line.startswith(sign) and not line.startswith(f"{3 * sign} ") for line in output.diff.split("\n"))
        for sign in "+-"
    )
    return f"< {output.name}: +{added} -{removed}"


def format_quarantine_note(output: pb.ToolOutput) -> str:
    """Return which files of a command were quarantined, and how to restore them; empty if none were."""
    found = _QUARANTINED.findall(output.text) if output.name == "bash" else []
    return _truncate(f"< {output.name}: {found[-1]}", MAX_QUARANTINE_CHARACTERS) if found else ""


def format_preview_note(output: pb.ToolOutput) -> str:
    """Return the whole preview of a dry run, or what `format_result_note` returns if the tool ran."""
    if output.is_error or not output.text.startswith(_DRY_RUN_PREFIX):
        return format_result_note(output)
    first, *lines = output.text.rstrip("\n").split("\n")
    more = len(lines) - MAX_PREVIEW_LINES
    if more > 0:
        lines = [*lines[:MAX_PREVIEW_LINES], f"... and {more:,} more lines"]
    # Indented, so that no line of a file looks like a note.
    return "\n".join([f"< {output.name}: {first}", *(f"    {line}" for line in lines)])


def format_event_note(event: pb.AgentEvent, kind: str) -> str:
    """Return the note about an event other than messages and tools; empty if it needs none."""
    match kind:
        case "notice":
            return f"yarrow: {event.notice.text}"
        case "retry_scheduled":
            retry = event.retry_scheduled
            why = f": {retry.message}" if retry.message else ""
            return _truncate(f"yarrow: {_format_code(retry.code)}, retrying in {retry.delay:.1f}s{why}")
        case "model_changed":
            change = event.model_changed
            failed = f"{change.from_provider}/{change.from_model}"
            return f"yarrow: {_format_code(change.code)} at {failed}, continuing with {change.provider}/{change.model}"
        case "compaction_start":
            return f"yarrow: compacting the context ({event.compaction_start.tokens_before:,} tokens)"
        case "compaction_end" if event.compaction_end.HasField("error"):
            return f"yarrow: compaction failed: {event.compaction_end.error.message}"
        case "compaction_end":
            return f"yarrow: compacted the context to {event.compaction_end.tokens_after:,} tokens"
        case "permission_request":
            request = event.permission_request
            return _truncate(f"yarrow: {request.tool} was denied because {_NO_ONE_TO_ASK}: {request.reason}")
        case _:
            return ""


def format_end_note(outcome: RunResult) -> str:
    """Return why a run ended early; empty if it completed."""
    if outcome.error_message:
        return f"yarrow: {': '.join(filter(None, (outcome.error_code, outcome.error_message)))}"
    return "" if outcome.reason == "COMPLETED" else f"yarrow: the run ended early: {outcome.reason.lower()}"


def _format_code(code: str) -> str:
    """Return an error code as words, such as `Server error`."""
    return code.replace("_", " ").capitalize()


def _format_arguments(arguments: dict[str, Any]) -> list[str]:
    """Return the arguments as `name=value`, the most informative first and without its name."""
    keys = sorted(
        arguments, key=lambda key: _KEY_ARGUMENTS.index(key) if key in _KEY_ARGUMENTS else len(_KEY_ARGUMENTS)
    )
    parts = [f"{key}={_format_value(arguments[key])}" for key in keys]
    if keys and keys[0] in _KEY_ARGUMENTS:
        parts[0] = _format_value(arguments[keys[0]])
    return parts


def _format_value(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value)


def _summarize_error(text: str) -> str:
    """Return how a command ended, with the last line of its output, or the first line of another error."""
    *_, end = [None, *_COMMAND_END.finditer(text)]
    if end is None:
        return text.strip().partition("\n")[0]
    last = text[: end.start()].strip().rpartition("\n")[2]
    return f"{end[1]}: {last}" if last and last != NO_OUTPUT else end[1]


def _truncate(text: str, limit: int = MAX_NOTE_CHARACTERS) -> str:
    """Return text on one line of at most `limit` characters."""
    # White space is collapsed only in the part that could be shown.
    line = " ".join(text[: 8 * limit].split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
