"""Incremental scanner for the text of one possible call; the same text gives the same result however it is split."""

import re
from collections.abc import Collection, Generator, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from yarrow.provider.tool_calls import MAX_CALLS

T = TypeVar("T")
Steps = Generator[None, None, T]
"""A function that pauses where it needs more text."""

MAX_HEADER_CHARACTERS = 160
"""Maximum characters of a name or another short part of a call."""
_NAME = re.compile(r"[A-Za-z_][\w.:/-]{0,63}", re.ASCII)
_JSON_MARK = re.compile(r'["{}\[\],]')
_PYTHON_MARK = re.compile(r"[\"'{}()\[\]]")
_STRING_MARKS = {quote: re.compile(rf"[\\{quote}]") for quote in "\"'"}


class NotACallError(Exception):
    """The text cannot become a call, whatever follows."""


class UnfinishedCallError(Exception):
    """The answer ended within a call."""


class WrittenCall(Struct, frozen=True):
    """A call as written: arguments as JSON text, or the text of each argument by its name."""

    name: str
    arguments: str | Mapping[str, str]


UNREADABLE_CALL = WrittenCall("", "")
"""A call in a known notation whose content is broken."""


def check_name(text: str) -> str:
    """Return a name without quotes and white space around it. Raises NotACallError for anything else."""
    name = text.strip().strip("\"'")
    if not _NAME.fullmatch(name):
        raise NotACallError
    return name


class Scanner:
    """Text that is consumed from its beginning, and the calls found in it."""

    def __init__(self) -> None:
        self.calls: list[WrittenCall] = []
        self.notation = ""
        """Name of the notation of the last call."""
        self.doubt = ""
        """Reason why the calls must not run although they are complete; empty if there is none."""
        self.is_certain = False
        """A call has begun, rather than only its opening."""
        self._buffer = ""
        self._is_ended = False

    def feed(self, text: str) -> None:
        """Add text."""
        self._buffer += text

    def end(self) -> None:
        """End the text."""
        self._is_ended = True

    def push_back(self, text: str) -> None:
        """Return text just taken."""
        self._buffer = text + self._buffer

    def add(self, call: WrittenCall) -> None:
        """Add a complete call; one too many makes all of them doubtful."""
        self.is_certain = True
        self.calls.append(call)
        if len(self.calls) > MAX_CALLS:
            self.doubt = f"an answer may have at most {MAX_CALLS} calls"

    def peek(self, length: int = 1) -> Steps[str]:
        """Return the next characters; fewer at the end of the text."""
        while len(self._buffer) < length and not self._is_ended:
            yield
        return self._buffer[:length]

    def take(self, length: int) -> None:
        """Consume characters that were seen."""
        self._buffer = self._buffer[length:]

    def take_space(self) -> Steps[str]:
        """Return white space, up to the next other character or the end."""
        taken: list[str] = []
        while True:
            rest = self._buffer.lstrip()
            taken.append(self._buffer[: len(self._buffer) - len(rest)])
            self._buffer = rest
            if rest or self._is_ended:
                return "".join(taken)
            yield

    def take_literal(self, options: Collection[str]) -> Steps[str]:
        """Return the longest option that comes next; empty if none does."""
        while any(len(option) > len(self._buffer) and option.startswith(self._buffer) for option in options):
            if self._is_ended and not any(self._buffer.startswith(option) for option in options):
                raise UnfinishedCallError
            if self._is_ended:
                break
            yield
        found = max((option for option in options if self._buffer.startswith(option)), key=len, default="")
        self._buffer = self._buffer[len(found) :]
        return found

    def expect(self, *options: str) -> Steps[str]:
        """Return the option that comes next. Raises NotACallError if none does."""
        found = yield from self.take_literal(options)
        if not found:
            raise NotACallError
        return found

    def take_name(self) -> Steps[str]:
        """Return a name, which ends where a character cannot belong to it. Raises NotACallError if there is none."""
        while True:
            found = _NAME.match(self._buffer)
            name = found[0] if found else ""
            if self._buffer and len(name) < len(self._buffer):
                self._buffer = self._buffer[len(name) :]
                return check_name(name)
            yield from self._wait()

    def take_until(self, *closers: str, limit: int = 0) -> Steps[tuple[str, str]]:
        """Return the text before the first closer, and the closer. With a limit, a longer text is no call."""
        parts: list[str] = []
        size, longest = 0, max(map(len, closers))
        while True:
            found = [(at, closer) for closer in closers if (at := self._buffer.find(closer)) >= 0]
            at, closer = min(found, default=(max(len(self._buffer) - longest + 1, 0), ""))
            parts.append(self._buffer[:at])
            size += at
            self._buffer = self._buffer[at + len(closer) :]
            if limit and size > limit:
                raise NotACallError
            if closer:
                return "".join(parts), closer
            yield from self._wait()

    def take_value(self, closer: str, followers: Sequence[str]) -> Steps[tuple[str, str]]:
        """Return the text before a closer, and the follower after it; a closer without one is part of the text.

        The first follower begins another value, so that one in the text makes the call doubtful.
        """
        parts: list[str] = []
        while True:
            text, _ = yield from self.take_until(closer)
            space = yield from self.take_space()
            follower = yield from self.take_literal(followers)
            parts.append(text)
            if follower:
                value = "".join(parts)
                if followers[0] in value:
                    self.doubt = "an argument contains a tag of the notation"
                return value, follower
            parts += (closer, space)

    def take_json(self, keys: Collection[str] = ()) -> Steps[str]:
        """Return an object or array up to its last bracket, unchecked. With keys, objects with others are no call."""
        first = yield from self.peek()
        if first not in ("{", "["):
            raise NotACallError
        return (yield from self._take_brackets(_BracketCounter(_JSON_MARK, keys, 1 if first == "{" else 2)))

    def take_python(self) -> Steps[str]:
        """Return an expression in brackets up to the last one, unchecked."""
        return (yield from self._take_brackets(_BracketCounter(_PYTHON_MARK)))

    def _take_brackets(self, counter: "_BracketCounter") -> Steps[str]:
        parts: list[str] = []
        while True:
            end = counter.feed(self._buffer)
            parts.append(self._buffer[:end])
            self._buffer = self._buffer[end:]
            self.is_certain = self.is_certain or counter.has_key
            if counter.is_closed:
                return "".join(parts)
            yield from self._wait()

    def _wait(self) -> Steps[None]:
        if self._is_ended:
            raise UnfinishedCallError
        yield


class _BracketCounter:
    """Depth of brackets outside strings; with keys, it checks the keys of the objects at one depth."""

    def __init__(self, marks: re.Pattern[str], keys: Collection[str] = (), level: int = 0) -> None:
        self.is_closed = False
        self.has_key = not keys
        """The first key is one of the allowed ones."""
        self._marks = marks
        self._keys = keys
        self._level = level
        self._depth = 0
        self._quote = ""
        self._is_escaped = False
        self._is_key_due = False
        self._key: str | None = None
        """The key so far, within one."""

    def feed(self, text: str) -> int:
        """Return the number of characters that belong to the brackets. Raises NotACallError for another key."""
        at = 0
        while at < len(text) and not self.is_closed:
            if self._is_escaped:
                self._is_escaped = False
                at += 1
                continue
            found = (_STRING_MARKS[self._quote] if self._quote else self._marks).search(text, at)
            self._pass(text[at : found.start() if found else len(text)])
            at = found.end() if found else len(text)
            if found:
                self._take_mark(found[0])
        return at

    def _pass(self, text: str) -> None:
        if self._key is not None:
            self._key += text
            if not any(key.startswith(self._key) for key in self._keys):
                raise NotACallError
        elif self._is_key_due and text.strip():
            raise NotACallError

    def _take_mark(self, mark: str) -> None:
        if self._quote:
            self._take_string_mark(mark)
            return
        if self._is_key_due and mark not in '"}':
            raise NotACallError
        if mark in "\"'":
            self._quote = mark
            self._key, self._is_key_due = ("" if self._is_key_due else None), False
        elif mark in "{[(":
            self._depth += 1
            self._is_key_due = bool(self._keys) and mark == "{" and self._depth == self._level
        elif mark == ",":
            self._is_key_due = bool(self._keys) and self._depth == self._level
        else:
            self._depth -= 1
            self._is_key_due = False
            self.is_closed = self._depth <= 0

    def _take_string_mark(self, mark: str) -> None:
        if mark == "\\":
            self._is_escaped = True
            return
        self._quote = ""
        if self._key is not None:
            if self._key not in self._keys:
                raise NotACallError
            self._key, self.has_key = None, True
