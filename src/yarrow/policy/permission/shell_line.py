"""Reader of shell lines that finds the simple commands in them, as far as their words show what runs.

It is a safety net for rules that deny or ask, not a shell parser: variables, aliases and globs are not expanded.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations

from msgspec import Struct

from yarrow.policy.permission.command_prefixes import command_starts, inner_lines, is_shell

MAX_NESTING = 10
"""Maximum levels of substitutions and nested lines; deeper ones count as text of the level above."""
MAX_PIPED = 8
"""Maximum commands of a pipeline that are compared with a pattern together; the rest are compared individually."""
_MAX_CACHED = 4
"""Maximum lines whose commands are cached for the next rule."""
_PLAIN_TEXT = re.compile(r"[^ \t\r\n;|&()<>'\"\\$`]+")
_IN_QUOTES = re.compile(r"[^\"\\$`]+")
_REDIRECTION = re.compile(r"&>>?|<<<|<<-?|[<>]&|>>|>\||<>|[<>]")
_SEPARATOR = re.compile(r"\|\||\|&?|&&|[\n;&()]")
_FD = re.compile(r"\d+|\{\w+\}")
_UNQUOTED = re.compile(r"[\w@%+=:,./-]+")
_BLANKS = " \t\r"


class Word(Struct, frozen=True):
    """A word of a command, or one of its redirections."""

    start: int
    source: str
    """The word as written."""
    text: str
    """The word without quotes."""
    redirects: bool = False


class SimpleCommand(Struct, frozen=True):
    """A simple command: its words, and the text from its first word to its end."""

    words: tuple[Word, ...]
    source: str

    def normalized(self) -> str:
        """Return the command without prefixes, quotes, redirections and repeated blanks."""
        words = [word for word in self.words if not word.redirects]
        texts = [word.text for word in words]
        return " ".join(texts[command_starts([word.source for word in words], texts)[-1] :])

    def spellings(self) -> Iterator[str]:
        """Yield the spellings that a pattern may match: without prefixes, quotes, redirections and repeated blanks."""
        first = self.words[0].start
        words = [word for word in self.words if not word.redirects]
        texts = [word.text for word in words]
        for at in command_starts([word.source for word in words], texts):
            start = words[at].start
            yield self.source[start - first :]
            yield from _join_words(words[at:])
            if len(words) < len(self.words):
                yield from _join_words([word for word in self.words if word.start >= start])
            if "/" in texts[at]:
                yield " ".join([texts[at].rpartition("/")[2], *texts[at + 1 :]])


def _join_words(words: Sequence[Word]) -> Iterator[str]:
    yield " ".join(word.source for word in words)
    if any(word.source != word.text for word in words):
        yield " ".join(word.text if _UNQUOTED.fullmatch(word.text) else word.source for word in words)
        yield " ".join(word.text for word in words)


class Pipeline(Struct, frozen=True):
    """Commands joined by pipes, at most `MAX_PIPED`."""

    commands: tuple[SimpleCommand, ...]
    text: str
    """The text that contains the commands."""

    def spellings(self) -> Iterator[str]:
        """Yield the spellings of each part of the pipeline that contains a pipe."""
        for first, last in combinations(range(len(self.commands)), 2):
            end = self.commands[last]
            yield self.text[self.commands[first].words[0].start : end.words[0].start + len(end.source)]
            for joined in (" | ", "|"):
                yield joined.join(one.normalized() for one in self.commands[first : last + 1])


class _HereDocument(Struct):
    """A here-document whose body begins on the next line."""

    end: str
    indented: bool
    quoted: bool
    words: list[Word]
    """Words of the command that reads it."""


@lru_cache(_MAX_CACHED)
def spellings(line: str) -> frozenset[str]:
    """Return the spellings of all simple commands of a line."""
    whole = " ".join(line.split())
    return frozenset([whole, line.strip(), *(form for one in parse_commands(line) for form in one.spellings())])


def parse_commands(line: str, depth: int = 0) -> Iterator[SimpleCommand | Pipeline]:
    """Yield the simple commands of a line, including those in substitutions and in lines passed to a shell."""
    reader = _Reader(line, depth)
    reader.read("")
    yield from reader.pipelines
    for command in reader.found:
        yield command
        if depth < MAX_NESTING:
            for inner in inner_lines([word.text for word in command.words if not word.redirects]):
                yield from parse_commands(inner, depth + 1)


class _Reader:
    """Reader of one text; anything left unclosed ends with the text."""

    def __init__(self, text: str, depth: int) -> None:
        self.found: list[SimpleCommand] = []
        self.pipelines: list[Pipeline] = []
        self._text = text
        self._at = 0
        self._depth = depth
        self._documents: list[_HereDocument] = []

    def read(self, closing: str) -> None:
        """Read commands up to a closing character, which is consumed, or to the end."""
        words: list[Word] = []
        piped: list[SimpleCommand] = []
        while (char := self._char()) and char != closing:
            if char in _BLANKS or self._text.startswith("\\\n", self._at):
                self._at += 1 if char in _BLANKS else 2
            elif char == "#":
                self._at = self._line_end()
            elif match := _REDIRECTION.match(self._text, self._at):
                self._redirection(match.group(), words, closing)
            elif match := _SEPARATOR.match(self._text, self._at):
                self._end(words, piped)
                if match.group() not in ("|", "|&", "\n") or (char == "\n" and words):
                    self._pipeline(piped)
                words, self._at = [], match.end()
                if char == "\n":
                    self._bodies()
                elif char == "(":
                    self._nested(")")
            else:
                words.append(self._word(closing))
        self._end(words, piped)
        self._pipeline(piped)
        self._at += 1

    def expand(self) -> None:
        """Read only the substitutions, as in a here-document."""
        while self._at < len(self._text):
            self._quoted('"', [])
            self._at += 1

    def _char(self, ahead: int = 0) -> str:
        return self._text[self._at + ahead : self._at + ahead + 1]

    def _line_end(self) -> int:
        end = self._text.find("\n", self._at)
        return end if end >= 0 else len(self._text)

    def _nested(self, closing: str) -> None:
        """Read the content of a bracket or backtick; if nested too deeply, it is read as part of the enclosing text."""
        if self._depth >= MAX_NESTING:
            return
        self._depth += 1
        self.read(closing)
        self._depth -= 1

    def _end(self, words: list[Word], piped: list[SimpleCommand]) -> None:
        if any(not word.redirects for word in words):
            self.found.append(SimpleCommand(tuple(words), self._text[words[0].start : self._at].rstrip()))
            piped.append(self.found[-1])

    def _pipeline(self, piped: list[SimpleCommand]) -> None:
        if len(piped) > 1:
            self.pipelines.append(Pipeline(tuple(piped[:MAX_PIPED]), self._text))
        piped.clear()

    def _word(self, closing: str) -> Word:
        start, parts = self._at, list[str]()
        while (char := self._char()) and char != closing:
            if match := _PLAIN_TEXT.match(self._text, self._at):
                parts.append(match.group())
                self._at = match.end()
            elif char == "\\":
                parts.append(self._char(1).replace("\n", ""))
                self._at += 2
            elif char == "'":
                end = self._text.find("'", self._at + 1)
                end = end if end >= 0 else len(self._text)
                parts.append(self._text[self._at + 1 : end])
                self._at = end + 1
            elif char == '"':
                self._at += 1
                self._quoted('"', parts)
                self._at += 1
            elif char in "$`":
                self._expansion(parts)
            else:
                break
        return Word(start, self._text[start : self._at], "".join(parts))

    def _quoted(self, closing: str, parts: list[str]) -> None:
        """Read up to a closing character outside expansions, which is not consumed."""
        while (char := self._char()) and char != closing:
            if match := _IN_QUOTES.match(self._text, self._at):
                parts.append(match.group().partition(closing)[0])
                self._at += len(parts[-1])
            elif char == "\\":
                escaped = self._char(1)
                parts.append(escaped.replace("\n", "") if escaped in '$`"\\\n' else f"\\{escaped}")
                self._at += 2
            elif char in "$`":
                self._expansion(parts)
            else:  # a quotation mark inside another kind of delimiter
                parts.append(char)
                self._at += 1

    def _expansion(self, parts: list[str]) -> None:
        """Read what a dollar sign or backtick starts."""
        start, follows = self._at, self._char(1)
        opening = "`" if self._char() == "`" else f"${follows}"
        self._at += len(opening) if opening in ("`", "$(", "${", "$'") else 1
        match opening:
            case "`":
                self._nested("`")
            case "$(":
                self._nested(")")
            case "${" if self._depth < MAX_NESTING:
                self._depth += 1
                self._quoted("}", [])
                self._depth -= 1
                self._at += 1
            case "$'":
                end = re.compile(r"(?:[^'\\]|\\.)*", re.DOTALL).match(self._text, self._at)
                parts.append(_unescape(end.group() if end else ""))
                self._at = (end.end() if end else self._at) + 1
                return
            case '$"':
                return
            case _:
                pass
        parts.append(self._text[start : self._at])

    def _redirection(self, sign: str, words: list[Word], closing: str) -> None:
        start = self._at
        if words and words[-1].start + len(words[-1].source) == start and _FD.fullmatch(words[-1].source):
            start = words.pop().start
        self._at += len(sign)
        if sign in ("<", ">") and self._char() == "(":
            self._at += 1
            self._nested(")")
        else:
            while (char := self._char()) and char in _BLANKS:
                self._at += 1
            target = self._word(closing)
            if sign in ("<<", "<<-"):
                quoted = target.source != target.text
                self._documents.append(_HereDocument(target.text, sign == "<<-", quoted, words))
        source = self._text[start : self._at]
        words.append(Word(start, source, source, redirects=True))

    def _bodies(self) -> None:
        """Read the here-documents announced on this line; a body is text, unless a shell reads it."""
        documents, self._documents = self._documents, []
        for document in documents:
            lines: list[str] = []
            while self._at < len(self._text):
                end = self._line_end()
                line = self._text[self._at : end]
                self._at = end + 1
                if (line.lstrip("\t") if document.indented else line) == document.end:
                    break
                lines.append(line)
            self._body("\n".join(lines), document)

    def _body(self, text: str, document: _HereDocument) -> None:
        if self._depth >= MAX_NESTING:
            return
        reader = _Reader(text, self._depth + 1)
        if is_shell([word.text for word in document.words if not word.redirects]):
            reader.read("")
        elif not document.quoted:
            reader.expand()
        self.found += reader.found
        self.pipelines += reader.pipelines


def _unescape(text: str) -> str:
    """Return the content of `$'...'` with its single-character escapes resolved."""
    short = {"n": "\n", "t": "\t", "r": "\r"}

    def one(match: re.Match[str]) -> str:
        code = match.group(1)
        if code[0] == "x":
            return chr(int(code[1:], 16))
        return chr(int(code, 8)) if code[0] in "01234567" else short.get(code, code)

    return re.sub(r"\\(x[0-9a-fA-F]{1,2}|[0-7]{1,3}|.)", one, text, flags=re.DOTALL)
