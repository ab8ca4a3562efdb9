"""Takes text that is a tool call in a model's own notation for the call it is, where the backend did not.

Local models often write the call that they mean: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>` on lines
of its own at the end of the answer, or one bare JSON object as the whole answer. Anything doubtful stays text.
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
from yarrow.provider.chat_completions.tool_calls import MAX_CALLS, new_call_id
from yarrow.provider.stream_framing import is_json_object

OPENING_TAG = "<tool_call>"
CLOSING_TAG = "</tool_call>"
MAX_HELD_CHARACTERS = 1 << 20
"""Characters that are held back because they may be calls; more of it is text."""
MAX_BLANK_CHARACTERS = 1024
"""Characters of white space, before a call and behind its first sign, that are held back; more of it is given."""

_CALL_KEYS = ("name", "arguments", "parameters", "type", "id", "function")
"""With which the object of a call may begin."""
_NORMAL_STOPS = (StopReason.END_TURN, StopReason.STOP_SEQUENCE)


async def extract_inline_calls(
    events: AsyncGenerator[ProviderEvent], request: CompletionRequest
) -> AsyncGenerator[ProviderEvent]:
    """Yield the events of an answer to a request, calls in place of the text that is one; closes `events`."""
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
    """The events of one answer on their way from a backend; `offered` are the names of the tools it may call.

    Text that may be a call is held back until the answer ends where the model wanted it to. It is given as it is when
    the backend itself names a call, when something else than text follows it, and when it turns out to be no call.
    """

    def __init__(self, offered: Collection[str]) -> None:
        self._offered = frozenset(offered)
        self._is_looking = bool(offered)
        self._held: list[str] = []
        self._size = 0
        self._begun = False
        """Whether what is held begins a call, rather than something that may become the beginning of one."""
        self._certain = False
        """Whether the object that is held has a first key that a call has."""
        self._fresh = True
        """Whether nothing but white space was given yet."""
        self._line_blank = True
        """Whether that is so of the current line."""
        self._usage: list[ProviderEvent] = []
        """What came behind the held text and waits with it."""

    def take(self, event: ProviderEvent) -> list[ProviderEvent]:
        """Return what an event completes."""
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
        """Return what is held back, as text."""
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
        """Return from where on a text is held back."""
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
        """Tell whether what is held cannot become a call, so that nobody waits for the end of a long text."""
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
        """Return the calls that the held text is; none if any of it is doubtful."""
        text = "".join(self._held).strip()
        written = [text] if text[:1] == "{" else _split_tagged(text)
        calls = [_parse_call(one, tagged=text[:1] != "{") for one in written]
        found = [call for call in calls if call is not None and call.name in self._offered]
        return found if len(found) == len(calls) else []


def _split_tagged(text: str) -> list[str]:
    """Return what stands between the tags; nothing if anything stands elsewhere. The last tag may be left open."""
    from json import JSONDecoder

    scan = JSONDecoder().raw_decode  # it tells where an object ends, whose strings may hold the closing tag
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
    """Return the call that a text is; a bare object is one only if it has arguments."""
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
    if arguments[:1] == '"':  # some models quote them once more
        arguments = msgspec.json.decode(arguments, type=str)
    return ToolCall(new_call_id(), function.name, arguments) if is_json_object(arguments) else None
