"""Statistics of a session, computed from its records."""

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from yarrow.message import Message, Role, ToolCall, Usage
from yarrow.session.ids import parse_seconds
from yarrow.session.line import UnknownRecord
from yarrow.session.record import Compaction, Header, Record
from yarrow.session.state import SessionState, fold_records


class ModelStats(Struct, frozen=True):
    """Usage of a model, regardless of the provider."""

    name: str
    """Empty for answers that do not name their model."""
    usage: Usage = Usage()
    count: int = 0
    """Number of answers and summaries it wrote, including interrupted ones."""


class ToolStats(Struct, frozen=True):
    """Usage of a tool; calls of an interrupted message were never run and do not count."""

    name: str
    calls: int
    errors: int
    """Number of results that report a failure, denial or abort."""
    seconds: float
    """Total seconds from the message, or the previous result for it, to each result.

    The calls of a message thus add up to the time needed to answer them all; of parallel calls, whose results are
    recorded together, the first gets nearly all of it. Includes the wait for permission.
    """


class SessionStats(Struct, frozen=True):
    """Statistics of a session."""

    usage: Usage
    """Usage of all recorded model calls: answers, including interrupted ones, and compaction summaries."""
    models: tuple[ModelStats, ...]
    """By name."""
    tools: tuple[ToolStats, ...]
    """By name."""
    compactions: tuple[Compaction, ...]
    """Oldest first."""
    messages: dict[Role, int]
    """Number of messages by role."""
    created: str
    """RFC 3339."""
    updated: str
    """Time of the last record, RFC 3339."""

    @property
    def thinking(self) -> int:
        """Thinking tokens in the output, as far as backends report them."""
        return self.usage.thinking


def compute_stats(header: Header, records: Iterable[Record | UnknownRecord]) -> SessionStats:
    """Return the statistics of a session in linear time; records inherited from another session count too."""
    kept = [record for record in records if not isinstance(record, UnknownRecord)]
    messages = [record for record in kept if isinstance(record, Message)]
    compactions = tuple(record for record in kept if isinstance(record, Compaction))
    answers = [message for message in messages if message.role is Role.ASSISTANT]
    models = count_by_model((*answers, *compactions))
    roles = Counter(message.role for message in messages)
    return SessionStats(
        usage=sum((model.usage for model in models), Usage()),
        models=models,
        tools=_count_by_tool(messages),
        compactions=compactions,
        messages={role: roles[role] for role in Role},
        created=header.created_at,
        updated=fold_records(SessionState(header), kept).header.updated_at,
    )


def count_by_model(written: Iterable[Message | Compaction]) -> tuple[ModelStats, ...]:
    """Return the statistics of each model, by name."""
    found: dict[str, ModelStats] = {}
    for record in written:
        known = found.get(record.model) or ModelStats(record.model)
        usage = known.usage + (record.usage or Usage())
        found[record.model] = ModelStats(record.model, usage, known.count + 1)
    return tuple(found[name] for name in sorted(found))


def _count_by_tool(messages: Sequence[Message]) -> tuple[ToolStats, ...]:
    whole = (message for message in messages if message.role is Role.ASSISTANT and not message.incomplete)
    calls = Counter(call.name for message in whole for call in message.tool_calls)
    errors: Counter[str] = Counter()
    spent: Counter[str] = Counter()
    """Milliseconds by tool name."""
    before: dict[int, str] = {}
    """Time of the last result so far, by the index of the message with the calls."""
    for index, asked in match_results(messages).items():
        asking, result = messages[asked.index], messages[index]
        if asking.incomplete:
            continue
        errors[asked.call.name] += result.is_error
        spent[asked.call.name] += _elapsed_milliseconds(before.get(asked.index, asking.timestamp), result.timestamp)
        before[asked.index] = result.timestamp
    return tuple(ToolStats(name, calls[name], errors[name], spent[name] / 1000) for name in sorted(calls))


def _elapsed_milliseconds(start: str, end: str) -> int:
    """Return the milliseconds between two times; 0 if one is invalid or the clock was set back."""
    try:
        return max(0, round(1000 * (parse_seconds(end) - parse_seconds(start))))
    except ValueError:
        return 0


class CallPosition(Struct, frozen=True):
    """A call, and the index of the message that contains it."""

    index: int
    call: ToolCall


def match_results(messages: Sequence[Message]) -> dict[int, CallPosition]:
    """Return the call that each result answers, by the result's index; results without a call are omitted.

    A result answers the earliest unanswered call with its id in the latest message that uses this id, since some
    servers restart the numbering of calls with each answer.
    """
    found: dict[int, CallPosition] = {}
    waiting: dict[str, deque[CallPosition]] = {}
    for index, message in enumerate(messages):
        if message.role is Role.TOOL:
            if calls := waiting.get(message.tool_call_id):
                found[index] = calls.popleft()
        elif message.role is Role.ASSISTANT:
            waiting.update((call.id, deque[CallPosition]()) for call in message.tool_calls)
            for call in message.tool_calls:
                waiting[call.id].append(CallPosition(index, call))
    return found


MAX_SUMMARY_CHARACTERS = 200
"""Maximum characters of a call on its line; the rest is truncated."""
_KEY_ARGUMENTS = ("command", "path")


def summarize_tool_call(call: ToolCall) -> str:
    """Return a call's command, path or arguments on one line."""
    try:
        arguments = msgspec.json.decode(call.arguments, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        arguments = {}
    named = next((arguments[name] for name in _KEY_ARGUMENTS if isinstance(arguments.get(name), str)), call.arguments)
    return truncate_to_line(named)


def truncate_to_line(text: str) -> str:
    """Return the start of a text on one line, with a mark if it is truncated."""
    text = text.strip()
    line = " ".join(text[: 8 * MAX_SUMMARY_CHARACTERS].split())
    return (
        line
        if len(line) <= MAX_SUMMARY_CHARACTERS and len(text) <= 8 * MAX_SUMMARY_CHARACTERS
        else f"{line[: MAX_SUMMARY_CHARACTERS - 1]}…"
    )
