"""Recognition of tool calls that a model wrote as text and the backend did not parse.

Local models often write a call as `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` on lines of its own at the
end of the answer, or as one bare JSON object that is the whole answer. Anything doubtful stays text.
"""

from collections.abc import AsyncGenerator, Collection
from contextlib import aclosing
from typing import Literal, assert_never

import msgspec
from msgspec import Raw, Struct

from yarrow.errors import ProviderError
from yarrow.message import StopReason, ToolCall
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
from yarrow.provider.stream_framing import is_json_object
from yarrow.provider.tool_calls import MAX_CALLS, new_call_id

OPENING_TAG = "<tool_call>"
CLOSING_TAG = "</tool_call>"
MAX_HELD_CHARACTERS = 1 << 20
"""Maximum characters held back as a possible call; anything longer is text."""
MAX_BLANK_CHARACTERS = 1024
"""Maximum characters of white space held back before a call and after its first sign; anything longer is emitted."""

_CALL_KEYS = ("name", "arguments", "parameters", "type", "id", "function")
"""Possible first keys of a call's object."""
_NORMAL_STOPS = (StopReason.END_TURN, StopReason.STOP_SEQUENCE)


async def extract_inline_calls(
    events: AsyncGenerator[ProviderEvent], request: CompletionRequest
) -> AsyncGenerator[ProviderEvent]:
    """Yield the events of an answer to a request, with inline calls in place of their text; closes `events`."""
    offered = () if request.tool_choice == "none" else tuple(tool.name for tool in request.tools)
    reader = InlineCallReader(offered)
    async with aclosing(events):
        try:
            async for event in events:
                for one in reader.take(event):
                    yield one
        except ProviderError:
            for one in reader.end():
                yield one
            raise


class InlineCallReader:
    """Filter over the events of one answer; `offered` are the names of the tools it may call.

    Text that may be a call is held back until the answer ends normally. It is emitted unchanged if the backend itself
    reports a call, if anything but text follows it, or if it is not a call.
    """

    def __init__(self, offered: Collection[str]) -> None:
        self._offered = frozenset(offered)
        self._is_looking = bool(offered)
        self._held: list[str] = []
        self._size = 0
        self._begun = False
        """The held text starts a call, rather than a possible prefix of one."""
        self._certain = False
        """The first key of the held object is one of a call."""
        self._fresh = True
        """Only white space has been emitted so far."""
        self._line_blank = True
        """The same, for the current line."""
        self._usage: list[ProviderEvent] = []
        """Usage that arrived after the held text and waits with it."""

    def take(self, event: ProviderEvent) -> list[ProviderEvent]:
        """Return the events that an event completes."""
        match event:
            case TextPiece(text):
                return self._take_text(text) if self._is_looking else [event]
            case UsagePiece():
                if not self._held:
                    return [event]
                self._usage = [event]
                return []
            case StopPiece(reason):
                calls = self._parse_calls() if reason in _NORMAL_STOPS else []
                if calls:
                    return [*map(CallPiece, calls), *self._usage, StopPiece(StopReason.TOOL_USE)]
                return [*self.end(), event]
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
        text = "".join(self._held)
        self._held.clear()
        self._size = 0
        self._begun = self._certain = False
        usage, self._usage = self._usage, []
        return [*self._emit_text(text), *usage]

    def _take_text(self, text: str) -> list[ProviderEvent]:
        if not self._begun:
            text = "".join(self._held) + text
            self._held.clear()
            self._size = 0
            at = self._find_beginning(text)
            given, text = self._emit_text(text[:at]), text[at:]
        else:
            given = []
        if text:
            self._held.append(text)
            self._size += len(text)
        if self._size > MAX_HELD_CHARACTERS:
            self._is_looking = False
            return [*given, *self.end()]
        if self._begun and not self._certain and self._is_hopeless():
            return [*given, *self.end()]
        return given

    def _find_beginning(self, text: str) -> int:
        """Return the position from which a text is held back."""
        if self._fresh:
            begins = text.lstrip()
            if not begins:
                return 0 if len(text) <= MAX_BLANK_CHARACTERS else len(text)
            if begins[0] == "{":
                self._begun = True
                return 0
        at = text.find("<")
        while at >= 0:
            line = text.rfind("\n", 0, at) + 1
            found = text[at : at + len(OPENING_TAG)]
            if OPENING_TAG.startswith(found) and not text[line:at].strip() and (line or self._line_blank):
                self._begun = found == OPENING_TAG
                return 0 if self._fresh and not text[:at].strip() else at
            at = text.find("<", at + 1)
        return len(text)

    def _is_hopeless(self) -> bool:
        """Return whether the held text cannot become a call, so that a long text is not held to its end."""
        held = "".join(self._held)
        inner = held.lstrip().removeprefix(OPENING_TAG).lstrip()
        inside = inner[1:].lstrip()
        if not inside:
            return inner[:1] not in ("", "{") or len(held) > MAX_BLANK_CHARACTERS
        key, quote, _ = inside[1:].partition('"')
        self._certain = quote != "" and key in _CALL_KEYS
        possible = self._certain or (not quote and any(known.startswith(key) for known in _CALL_KEYS))
        return inner[0] != "{" or inside[0] != '"' or not possible

    def _emit_text(self, text: str) -> list[ProviderEvent]:
        if not text:
            return []
        line = text.rfind("\n") + 1
        self._line_blank = (line > 0 or self._line_blank) and not text[line:].strip()
        self._fresh = self._fresh and not text.strip()
        return [TextPiece(text)]

    def _parse_calls(self) -> list[ToolCall]:
        """Return the calls in the held text; empty if any of it is doubtful."""
        text = "".join(self._held).strip()
        written = [text] if text[:1] == "{" else _split_tagged(text)
        calls = [_parse_call(one, tagged=text[:1] != "{") for one in written]
        found = [call for call in calls if call is not None and call.name in self._offered]
        return found if len(found) == len(calls) else []


def _split_tagged(text: str) -> list[str]:
    """Return the contents of the tags; empty if there is text outside them. The last tag may be unclosed."""
    from json import JSONDecoder

    scan = JSONDecoder().raw_decode  # finds the end of an object whose strings may contain the closing tag
    bodies: list[str] = []
    while text:
        inside = text.removeprefix(OPENING_TAG).lstrip()
        try:
            _, end = scan(inside)
        except (ValueError, RecursionError):
            return []
        rest = inside[end:].lstrip()
        if not text.startswith(OPENING_TAG) or (rest and not rest.startswith(CLOSING_TAG)) or len(bodies) == MAX_CALLS:
            return []
        bodies.append(inside[:end])
        text = rest.removeprefix(CLOSING_TAG).lstrip()
    return bodies


class _WrittenFunction(Struct, frozen=True, forbid_unknown_fields=True):
    """The inner object of the notation that some models know from an API."""

    name: str
    arguments: Raw = Raw(b"")
    parameters: Raw = Raw(b"")


class _WrittenCall(Struct, frozen=True, forbid_unknown_fields=True):
    """The object of a call as models write it."""

    name: str = ""
    arguments: Raw = Raw(b"")
    parameters: Raw = Raw(b"")
    type: Literal["function"] = "function"
    id: str | None = None
    function: _WrittenFunction | None = None


_decode = msgspec.json.Decoder(_WrittenCall).decode


def _parse_call(text: str, *, tagged: bool) -> ToolCall | None:
    """Return the call in a text; a bare object is a call only if it has arguments."""
    try:
        written = _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    plain = _WrittenFunction(written.name, written.arguments, written.parameters)
    function = written.function or plain
    if function is not plain and plain.name:
        return None
    given = [bytes(one).decode() for one in (function.arguments, function.parameters) if bytes(one)]
    if len(given) > 1 or (not given and not tagged):
        return None
    arguments = given[0] if given else "{}"
    if arguments[:1] == '"':  # some models quote them twice
        arguments = msgspec.json.decode(arguments, type=str)
    return ToolCall(new_call_id(), function.name, arguments) if is_json_object(arguments) else None
