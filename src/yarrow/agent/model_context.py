"""Model context of a session, and estimates of its size in tokens."""

import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import pairwise
from math import ceil
from string import ascii_letters, digits, punctuation
from typing import NamedTuple, assert_never

import msgspec
from msgspec import Struct

from yarrow.message import Block, Image, Message, Opaque, Role, Text, Thinking, ToolCall, ToolSpec, Usage
from yarrow.session.record import Compaction
from yarrow.session.state import SessionState

IMAGE_TOKENS = 1600
"""Tokens of an image of any size: the most that hosted backends count for one of usual size."""
FRAME_TOKENS = 4
"""Tokens that a chat template adds around a message or a call."""
SHARED_TEXTS = 16
"""Maximum cached estimates of system prompts and schemas, which sessions share; the least recently used is dropped."""
_LEAST_DENSE = 24
_DENSE = re.compile(rb"(?<![A-Za-z0-9])(?=[A-Za-z]*+[0-9])[A-Za-z0-9]{%d,}+" % _LEAST_DENSE)
"""Hashes and base64. A match only starts at the beginning of a run, so the cost stays linear in its length."""
_MARKS = punctuation.encode() + bytes(code for code in (*range(32), 127) if code not in b"\t\n\r")


def _telling(members: bytes) -> bytes:
    """Return a translation table that maps `members` to a letter and all other bytes to a space.

    Splitting at spaces is several times faster than a regex search, and a session has millions of words.
    """
    return bytes(b"x"[0] if code in members else b" "[0] for code in range(256))


_WORD, _NUMBER = _telling(ascii_letters.encode()), _telling(digits.encode())
_WORD_OR_NUMBER = _telling(f"{ascii_letters}{digits}".encode())
_LINE_ENDS, _GAP = _telling(b"\r\n"), _telling(b" \t")


def text_tokens(text: str) -> int:
    """Estimate the tokens of a text by character class; works for prose, code and tool output."""
    data = text.encode("ascii", "replace")
    wide = 0 if text.isascii() else len(text) - len(text.encode("ascii", "ignore"))
    sparse, dense_runs = data, 0
    if b"x" * _LEAST_DENSE in data.translate(_WORD_OR_NUMBER):
        sparse, dense_runs = _DENSE.subn(b" ", data)
    dense = len(data) - len(sparse) + dense_runs
    marks = len(sparse) - len(sparse.translate(None, _MARKS)) - wide  # each wide character became a question mark
    return ceil(
        _runs(_WORD, sparse, lambda length: 1 if length <= 7 else length / 5)
        + _runs(_NUMBER, sparse, lambda length: ceil(length / 3))
        + _runs(_LINE_ENDS, sparse, lambda length: max(0.6, length / 32))
        + (_runs(_GAP, sparse, lambda length: max(0.7, length / 32) if length > 1 else 0) if _has_gap(sparse) else 0)
        + 0.7 * dense
        + 0.65 * marks
        + 0.75 * wide
    )


def _has_gap(data: bytes) -> bool:
    return b"  " in data or b"\t" in data


def _runs(table: bytes, data: bytes, cost: Callable[[int], float]) -> float:
    """Return the total cost of all runs of the table's bytes; equal lengths are counted together."""
    return sum(times * cost(length) for length, times in Counter(map(len, data.translate(table).split())).items())


def message_tokens(message: Message) -> int:
    """Estimate the tokens of a message; 0 if it is never sent."""
    return 0 if message.incomplete else FRAME_TOKENS + sum(map(_block_tokens, message.content))


def fixed_tokens(system: str, tools: Sequence[ToolSpec]) -> int:
    """Estimate the tokens of the parts sent with every request: the system prompt and the tool schemas."""
    return _shared_tokens(system) + _shared_tokens(msgspec.json.encode(tools).decode())


@lru_cache(maxsize=SHARED_TEXTS)
def _shared_tokens(text: str) -> int:
    return text_tokens(text)


def _block_tokens(block: Block) -> int:
    match block:
        case Text(text) | Thinking(text):
            return text_tokens(text)
        case ToolCall():
            return FRAME_TOKENS + text_tokens(block.name) + text_tokens(block.arguments)
        case Image():
            return IMAGE_TOKENS
        case Opaque(data):
            return text_tokens(data)
        case _:
            assert_never(block)


MIN_RATIO, MAX_RATIO = 0.5, 8.0
"""Minimum and maximum ratio of a server's token count to our estimate; a count outside is ignored.

Servers that truncate the prompt or omit cached tokens report less, and servers that add up several requests report
more; no text exceeds its estimate by such a factor.
"""
SUMMARY_INTRODUCTION = "(The summary above replaces the conversation before this point.)"


class ContextBudget(Struct, frozen=True):
    """Limits that a context must fit into; sizes are in tokens."""

    provider: str
    """The provider's configured id."""
    model: str
    window: int
    """Context window; 0 if unknown."""
    fixed: int
    """Size of the system prompt and tool schemas, as estimated by `fixed_tokens`."""


class ModelContext(NamedTuple):
    """The messages of a model call."""

    messages: tuple[Message, ...]
    unbound: int
    """Number of leading messages written under another summary, system prompt or tool set."""


class Context(Struct, frozen=True):
    """The messages sent to a model: the opening, then the session's messages from `start` on."""

    opening: tuple[Message, ...]
    """Summary of a compaction, followed by the turn's user message if the cut split a turn."""
    messages: Sequence[Message]
    """All messages of the session."""
    start: int
    said_since: int
    """Index of the first message after the compaction; usage reported earlier refers to another context."""
    prefix_changed_at: int
    """Index of the first message written under the current summary, system prompt and tools."""
    created_at: str
    """Creation time of the session; older messages come from another session, as does their usage."""

    def sent(self) -> ModelContext:
        """Return the messages to send; runs in time linear in their number."""
        unbound = len(self.opening) + max(self.prefix_changed_at - self.start, 0)
        return ModelContext((*self.opening, *self.messages[self.start :]), unbound)


def context_of(state: SessionState) -> Context:
    """Return the context of a session.

    It contains the messages from the first kept one on, and all later than the compaction record. If the record names a
    message that does not exist, nothing is omitted: an oversized context can be compacted again, lost messages cannot
    be restored.
    """
    messages, record = state.messages, state.compaction
    origin = state.header.created_at
    if record is None:
        return Context(
            (), messages, start=0, said_since=0, prefix_changed_at=state.prefix_changed_at, created_at=origin
        )
    start = compacted_at = state.compacted_at
    if record.first_kept_message_id:
        start = next((at for at in reversed(range(compacted_at)) if messages[at].id == record.first_kept_message_id), 0)
    return Context(_opening(record, messages, start), messages, start, compacted_at, state.prefix_changed_at, origin)


def _opening(record: Compaction, messages: Sequence[Message], start: int) -> tuple[Message, ...]:
    text = Text(f"{record.summary}\n\n{SUMMARY_INTRODUCTION}")
    summary = Message(id="", role=Role.USER, content=(text,), timestamp=record.timestamp)
    at = last_asked(messages, start) if record.split_turn else None
    return (summary,) if at is None else (summary, messages[at])


def last_asked(messages: Sequence[Message], before: int) -> int | None:
    """Return the index of the last user message before an index; None if there is none."""
    return next((at for at in reversed(range(before)) if is_asked(messages[at])), None)


def is_asked(message: Message) -> bool:
    """Return True if the message is a user message that is sent."""
    return message.role is Role.USER and not message.incomplete


def needs_compaction(state: SessionState, frame: ContextBudget, used: int) -> bool:
    """Return True if the context must be compacted before the next model call; an unknown window is never full."""
    settings = state.header.compaction
    return settings.enabled and frame.window > 0 and used > frame.window - settings.reserve_tokens


class TokenCalibration:
    """Ratio of reported to estimated tokens per model, learned from the reports."""

    MODELS = 64
    """Maximum models remembered; the least recently used one is dropped and starts at 1 again."""
    WEIGHT = 0.3
    """Weight of the newest report in the moving average."""
    LEAST, MOST = 0.7, 2.5

    def __init__(self) -> None:
        self._ratios: OrderedDict[tuple[str, str], float] = OrderedDict()

    def of(self, provider: str, model: str) -> float:
        """Return the ratio of a model; 1 if unknown."""
        key = (provider, model)
        if key not in self._ratios:
            return 1.0
        self._ratios.move_to_end(key)
        return self._ratios[key]

    def learn(self, frame: ContextBudget, *, reported: int, estimated: int) -> None:
        """Update the ratio with the reported tokens of a request."""
        seen = min(max(reported / max(estimated, 1), self.LEAST), self.MOST)
        key = (frame.provider, frame.model)
        self._ratios[key] = (
            seen if key not in self._ratios else self._ratios[key] * (1 - self.WEIGHT) + seen * self.WEIGHT
        )
        self._ratios.move_to_end(key)
        if len(self._ratios) > self.MODELS:
            self._ratios.popitem(last=False)


class TokenCounter:
    """Counts the tokens of one session's contexts; each message is counted once.

    Holds one number per message of the context, and recounts if the last counted message has moved. Messages dropped by
    a compaction are not counted: in a large session that takes seconds.
    """

    def __init__(self, ratios: TokenCalibration | None = None) -> None:
        self.ratios = ratios or TokenCalibration()
        self._begin = 0
        self._sums = [0]
        """Total tokens of the first 0, 1, 2 ... messages from `_begin` on."""
        self._last: Message | None = None
        self._learnt: Message | None = None
        self._record: Compaction | None = None
        self._context: Context | None = None
        self._opened: tuple[tuple[Message, ...], int] = ((), 0)

    def context(self, state: SessionState) -> Context:
        """Return `context_of(state)`; its start is only searched again after a compaction."""
        known = self._context
        if known is None or self._record != state.compaction or known.said_since != state.compacted_at:
            known = context_of(state)
            self._record = state.compaction
        self._context = msgspec.structs.replace(
            known, messages=state.messages, prefix_changed_at=state.prefix_changed_at
        )
        return self._context

    def used(self, context: Context, frame: ContextBudget) -> int:
        """Return the tokens of the context: the model's last report plus an estimate of what follows.

        Everything is estimated if the last answer came from another model or its report is implausible.
        """
        at = self._last_answer(context)
        usage = None if at is None else _usage(context, at, frame)
        if at is None or usage is None:
            return self.estimate(context, frame)
        asked = self._raw(context, frame, until=at)
        reported = usage.context - usage.output
        if not MIN_RATIO * asked <= reported <= MAX_RATIO * asked or usage.output > frame.window > 0:
            return self.estimate(context, frame)
        answer = context.messages[at]
        if answer is not self._learnt:
            self._learnt = answer
            self.ratios.learn(frame, reported=reported, estimated=asked)
        return usage.context + self.scaled(self._sums[-1] - self._sums[at + 1 - self._begin], frame)

    def estimate(self, context: Context, frame: ContextBudget) -> int:
        """Estimate the tokens of a complete request, ignoring reports."""
        return self.scaled(self._raw(context, frame, until=len(context.messages)), frame)

    def sizes(self, context: Context, frame: ContextBudget) -> list[int]:
        """Estimate the tokens of each message from the context's start on."""
        self._count(context.messages, context.start)
        sums = self._sums[context.start - self._begin :]
        return [self.scaled(after - before, frame) for before, after in pairwise(sums)]

    def scaled(self, tokens: int, frame: ContextBudget) -> int:
        """Return the tokens that the model would report for an estimate of `tokens`."""
        return ceil(tokens * self.ratios.of(frame.provider, frame.model))

    def _opening(self, context: Context) -> int:
        if self._opened[0] is not context.opening:
            self._opened = (context.opening, sum(map(message_tokens, context.opening)))
        return self._opened[1]

    def _last_answer(self, context: Context) -> int | None:
        """Return the index of the last complete answer in this context."""
        for at in reversed(range(context.said_since, len(context.messages))):
            message = context.messages[at]
            if message.role is Role.ASSISTANT and not message.incomplete:
                return at
        return None

    def _raw(self, context: Context, frame: ContextBudget, *, until: int) -> int:
        self._count(context.messages, context.start)
        said = self._sums[until - self._begin] - self._sums[context.start - self._begin]
        return frame.fixed + self._opening(context) + said

    def _count(self, messages: Sequence[Message], start: int) -> None:
        """Count new messages; a session only grows, so only its last counted message is compared."""
        known = self._begin + len(self._sums) - 1
        changed = known > self._begin and (known > len(messages) or messages[known - 1] != self._last)
        if changed or not self._begin <= start <= known:
            self._begin, self._sums, known = start, [0], start
        for message in messages[known:]:
            self._sums.append(self._sums[-1] + message_tokens(message))
            self._last = message


def _usage(context: Context, at: int, frame: ContextBudget) -> Usage | None:
    """Return the usage reported by an answer if it applies to this context and to the next model."""
    answer = context.messages[at]
    own = (answer.provider, answer.model) == (frame.provider, frame.model)
    return answer.usage if own and answer.timestamp >= context.created_at else None
