"""Filter over the events of an answer that replaces calls written as text with calls."""

import re
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import assert_never

from yarrow.errors import ProviderError
from yarrow.message import StopReason, ToolCall, ToolSpec
from yarrow.provider.base import (
    CallPiece,
    CompletionRequest,
    NoticePiece,
    OpaquePiece,
    ProviderEvent,
    StopPiece,
    TextPiece,
    ThinkingPiece,
    UsagePiece,
)
from yarrow.provider.text_calls.markdown_code import MarkdownCode
from yarrow.provider.text_calls.notations import BY_OPENING, MARKS
from yarrow.provider.text_calls.possible_call import MAX_BLANK_CHARACTERS, PossibleCall
from yarrow.provider.text_calls.text_call_policy import TextCallPolicy, describe_unparsed_call

MAX_WASTED_CHARACTERS = 8 << 20
"""Maximum characters of an answer that are read as calls in vain; after more, the rest is text."""
UNPARSED_CALL = "UNPARSED_TOOL_CALL"
"""Code of the notice about a call that was not run."""

_NORMAL_STOPS = (StopReason.END_TURN, StopReason.STOP_SEQUENCE, StopReason.TOOL_USE)
_END_CHARACTERS = 64
_TAGS = tuple(mark for mark in MARKS if BY_OPENING[mark].name != "harmony")
"""Marks that stand only before calls; harmony's stand before every message."""
_MARK = re.compile("|".join(map(re.escape, sorted(MARKS, key=len, reverse=True))))
_LONGEST_MARK = max(map(len, MARKS))
_FIRST_CHARACTER = re.compile(rf"[{re.escape(''.join(sorted({mark[0] for mark in MARKS})))}]")
_PREFIXES = {mark[:size] for mark in MARKS for size in range(1, len(mark))}
_BEGINNINGS = (*BY_OPENING, "`", "~")
"""Texts with which an answer may begin that is a call as a whole."""
_LINE_CHARACTERS = tuple({one[0] for one, notation in BY_OPENING.items() if notation.starts_line})
_SPACE = re.compile(r"\s*")
_CLOSED = re.compile(r"(?:</[\w:\uff5c]{1,40}>|[|\uff5c]>|\[/[A-Z_]{1,20}\]|\})\s*\Z")


async def extract_text_calls(
    events: AsyncGenerator[ProviderEvent], request: CompletionRequest, policy: TextCallPolicy
) -> AsyncGenerator[ProviderEvent]:
    """Yield the events of an answer to a request, with calls in place of their text; closes `events`."""
    reader = TextCallReader(() if request.tool_choice == "none" else request.tools, policy)
    async with aclosing(events):
        try:
            async for event in events:
                for one in reader.take(event):
                    yield one
        except ProviderError:
            for one in reader.end():
                yield one
            raise


class TextCallReader:
    """Filter over the events of one answer; only the offered tools may be called.

    Text that may be a call is held back until the answer ends normally. It is emitted unchanged if the backend itself
    reports a call, if anything but text follows it, or if it is not a call.
    """

    def __init__(self, tools: Sequence[ToolSpec], policy: TextCallPolicy) -> None:
        self._tools = {tool.name: tool for tool in tools}
        self._policy = policy
        self._is_looking = bool(tools) and (policy.runs or policy.watches)
        self._candidate: PossibleCall | None = None
        self._pending = ""
        """White space before the answer, or characters that may begin an opening."""
        self._is_fresh = True
        """Only white space has been emitted so far."""
        self._follows_example = False
        """Only white space has been emitted since a mark in code."""
        self._code = MarkdownCode()
        self._unseen: list[str] = []
        """Text that is not yet fed to it: most answers have nothing for which it matters."""
        self._wasted = 0
        self._head = self._tail = ""
        """First and last characters of the answer, without white space before it."""
        self._usage: list[ProviderEvent] = []
        """Usage that arrived after the held text and waits with it."""

    def take(self, event: ProviderEvent) -> list[ProviderEvent]:
        """Return the events that an event completes."""
        if not self._is_looking:
            return [event]
        if not self._policy.runs:
            return self._watch(event)
        match event:
            case TextPiece(text):
                return self._take_text(text)
            case UsagePiece():
                if self._candidate is None:
                    return [*self.end(), event]
                self._usage = [event]
                return []
            case StopPiece(reason):
                return self._stop(event, is_normal=reason in _NORMAL_STOPS)
            case CallPiece():
                self._is_looking = False
                return [*self.end(), event]
            case ThinkingPiece() | OpaquePiece():
                return [*self.end(), event]
            case NoticePiece():
                return [event]
            case _:
                assert_never(event)

    def end(self) -> list[ProviderEvent]:
        """Return the held text as text."""
        text = self._candidate.text if self._candidate else self._pending
        self._candidate, self._pending = None, ""
        usage, self._usage = self._usage, []
        self._pass(text)
        return [*_as_pieces(text), *usage]

    def _stop(self, event: StopPiece, *, is_normal: bool) -> list[ProviderEvent]:
        found = self._find_calls()
        if is_normal and found and not isinstance(found, str):
            return [*map(CallPiece, found), *self._usage, StopPiece(StopReason.TOOL_USE)]
        notices = self._make_notices(found) if is_normal else []
        return [*self.end(), *notices, event]

    def _watch(self, event: ProviderEvent) -> list[ProviderEvent]:
        """Pass an event on; before the stop, report an answer that is a call as a whole."""
        match event:
            case TextPiece(text):
                self._take_text(text)
            case StopPiece(reason):
                found = self._find_calls() if reason in _NORMAL_STOPS else ""
                return [*self._make_notices(found), event]
            case CallPiece():
                self._is_looking = False
            case _:
                pass
        return [event]

    def _find_calls(self) -> list[ToolCall] | str:
        found = self._candidate.find_calls(self._tools) if self._candidate else ""
        if not found and self._head.startswith(_TAGS) and _CLOSED.search(self._tail):
            return "it could not be read"
        return found

    def _make_notices(self, found: list[ToolCall] | str) -> list[ProviderEvent]:
        if not found or not self._policy.watches:
            return []
        notation = self._candidate.scanner.notation if self._candidate else ""
        reason = found if isinstance(found, str) else "calls in text are not run for a server elsewhere"
        return [NoticePiece(UNPARSED_CALL, describe_unparsed_call(self._policy, notation, reason))]

    def _take_text(self, text: str) -> list[ProviderEvent]:
        if len(self._head) < _END_CHARACTERS:
            self._head = (self._head + text).lstrip()[:_END_CHARACTERS]
        self._tail = (self._tail + text)[-_END_CHARACTERS:]
        open_one = self._candidate
        given = self._continue(open_one, text) if open_one else self._scan(self._pending + text)
        if self._candidate is not None and self._candidate.is_too_long:
            self._is_looking = False
            return [*_as_pieces(given), *self.end()]
        return _as_pieces(given)

    def _continue(self, candidate: PossibleCall, text: str) -> str:
        """Feed a candidate; if it fails, return the part of its text that is certain to be text."""
        if candidate.feed(text):
            return ""
        self._candidate = None
        return self._scan(candidate.text, self._skip(candidate.text, 0, candidate.size))

    def _scan(self, text: str, at: int = 0) -> str:
        """Return the beginning of a text that cannot belong to a call, and hold the rest; skips up to a position."""
        self._pending = ""
        while at < len(text) and self._is_looking:
            begin = self._find_beginning(text, at)
            self._pass(text[at:begin])
            at = begin
            if at == len(text):
                break
            if self._is_pending(text, at):
                self._pending = text[at:]
                return text[:at]
            if not self._is_eligible(text, at):
                at = self._skip_example(text, at)
            else:
                candidate = PossibleCall(is_whole=self._is_fresh, blank=_find_written(text, at) - at)
                self._candidate = candidate
                if candidate.feed(text, at):
                    return text[:at]
                self._candidate = None
                at = self._skip(text, at, candidate.size)
        self._pass(text[at:])
        return text

    def _skip(self, text: str, at: int, wasted: int) -> int:
        """Pass the first character from which no call begins; return the position after it."""
        end = _find_written(text, at) + 1
        self._pass(text[at:end])
        self._wasted += wasted
        self._is_looking = self._wasted <= MAX_WASTED_CHARACTERS
        return end

    def _skip_example(self, text: str, at: int) -> int:
        """Pass a mark in code, and note that one directly after it belongs to the same example."""
        found = _MARK.match(text, at)
        end = found.end() if found else at + 1
        self._pass(text[at:end])
        self._follows_example = True
        return end

    def _find_beginning(self, text: str, start: int) -> int:
        """Return the first position from which a text may be a call; the length of the text if there is none."""
        if self._is_fresh:
            written = _find_written(text, start)
            if written == len(text):
                return start if written - start <= MAX_BLANK_CHARACTERS else written
            if text.startswith(_BEGINNINGS, written) or text[written : written + _LONGEST_MARK] in _PREFIXES:
                return start
        found = _MARK.search(text, start)
        if found:
            return found.start()
        for found in _FIRST_CHARACTER.finditer(text, max(start, len(text) - _LONGEST_MARK + 1)):
            if text[found.start() :] in _PREFIXES:
                return found.start()
        return len(text)

    def _is_pending(self, text: str, begin: int) -> bool:
        """Return whether the text from a position on is too short to be an opening."""
        written = _find_written(text, begin)
        if self._is_fresh and text.startswith(_BEGINNINGS, written):
            return False
        return written == len(text) or text[written : written + _LONGEST_MARK] in _PREFIXES

    def _is_eligible(self, text: str, begin: int) -> bool:
        if self._is_fresh:
            return True
        self._code.feed("".join(self._unseen))
        self._unseen.clear()
        if self._follows_example:
            return False
        is_word = text[begin] in _LINE_CHARACTERS
        return not self._code.is_code() and (not is_word or self._code.is_line_start())

    def _pass(self, text: str) -> None:
        """Note that a text is text."""
        if text:
            self._unseen.append(text)
            self._is_fresh = self._is_fresh and text.isspace()
            self._follows_example = self._follows_example and text.isspace()


def _find_written(text: str, at: int) -> int:
    """Return the position of the first character from a position on that is not white space."""
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _as_pieces(text: str) -> list[ProviderEvent]:
    return [TextPiece(text)] if text else []
