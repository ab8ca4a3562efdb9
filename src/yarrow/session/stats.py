"""Statistics of a session, counted from its records."""

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
    """What a model, of whatever provider, was asked."""

    name: str
    """Empty for answers that do not name their model."""
    usage: Usage = Usage()
    count: int = 0
    """Answers and summaries that it wrote, also those that were cut."""


class ToolStats(Struct, frozen=True):
    """How a tool was used; calls of a message that was cut never ran and do not count."""

    name: str
    calls: int
    errors: int
    """Results that say that the call failed, was refused or was aborted."""
    seconds: float
    """From the end of the message with the call, or from the result before it of that message, to the result.

    So the calls of a message add up to the time that it took to answer them all; of calls that ran side by side, whose
    results are recorded together, the first has nearly all of it. It holds the wait for a permission.
    """


class SessionStats(Struct, frozen=True):
    """The figures of a session."""

    usage: Usage
    """Of all model calls that were recorded: answers, also those that were cut, and summaries of compactions."""
    models: tuple[ModelStats, ...]
    """By name."""
    tools: tuple[ToolStats, ...]
    """By name."""
    compactions: tuple[Compaction, ...]
    """Oldest first."""
    messages: dict[Role, int]
    """How many there are of each role."""
    created: str
    """RFC 3339."""
    updated: str
    """Time of the last record, RFC 3339."""

    @property
    def thinking(self) -> int:
        """Tokens of all output that were thinking, as far as backends told."""
        return self.usage.thinking


def compute_stats(header: Header, records: Iterable[Record | UnknownRecord]) -> SessionStats:
    """Return the figures of a session in time linear in its records; what it took over from another counts too."""
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
    """Return the figures of each model that wrote some answers and summaries, by name."""
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
    """Milliseconds."""
    before: dict[int, str] = {}
    """By the index of a message with calls, the time of the last result that it got so far."""
    for index, asked in match_results(messages).items():
        asking, result = messages[asked.index], messages[index]
        if asking.incomplete:
            continue
        errors[asked.call.name] += result.is_error
        spent[asked.call.name] += _elapsed_milliseconds(before.get(asked.index, asking.timestamp), result.timestamp)
        before[asked.index] = result.timestamp
    return tuple(ToolStats(name, calls[name], errors[name], spent[name] / 1000) for name in sorted(calls))


def _elapsed_milliseconds(start: str, end: str) -> int:
    """Return the milliseconds from one time to another; 0 where one is no time, or the clock was put back."""
    try:
        return max(0, round(1000 * (parse_seconds(end) - parse_seconds(start))))
    except ValueError:
        return 0


class CallPosition(Struct, frozen=True):
    """A call, and the index of the message that holds it."""

    index: int
    call: ToolCall


def match_results(messages: Sequence[Message]) -> dict[int, CallPosition]:
    """Return the call that each result answers, by the index of the result; one that answers none is left out.

    A result answers the last call before it that has its id and no answer yet; a later message takes over the ids of
    its calls, since some servers number the calls of each answer anew.
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
"""Maximum characters of a call on its line; the rest is cut."""
_KEY_ARGUMENTS = ("command", "path")


def summarize_tool_call(call: ToolCall) -> str:
    """Return the command of a call, its path, or else its arguments, on one line."""
    try:
        arguments = msgspec.json.decode(call.arguments, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        arguments = {}
    named = next((arguments[name] for name in _KEY_ARGUMENTS if isinstance(arguments.get(name), str)), call.arguments)
    return truncate_to_line(named)


def truncate_to_line(text: str) -> str:
    """Return the beginning of a text on one line, with a mark where it is cut."""
    text = text.strip()
    line = " ".join(text[: 8 * MAX_SUMMARY_CHARACTERS].split())
    return (
        line
        if len(line) <= MAX_SUMMARY_CHARACTERS and len(text) <= 8 * MAX_SUMMARY_CHARACTERS
        else f"{line[: MAX_SUMMARY_CHARACTERS - 1]}…"
    )
