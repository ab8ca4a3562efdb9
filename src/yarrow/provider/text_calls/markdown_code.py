"""Detection of code in Markdown, where a tool call is an example."""

import re

_MARK = re.compile(r"\n|`+|~+|[^\n`~]+")
_INDENT = 4
"""Columns of white space that make a paragraph code."""
_FENCE_LENGTH = 3
"""Minimum length of a fence."""


class MarkdownCode:
    """Position in a text: whether it is in a fenced block, an indented block, an inline span or a quotation."""

    def __init__(self) -> None:
        self._fence = ""
        """Fence of the block; empty outside one."""
        self._is_opening = False
        """The line opens the block."""
        self._is_closing = False
        """The line may close the block, unless it goes on."""
        self._span = 0
        """Number of backticks that opened a span; 0 outside one."""
        self._run = ""
        """Backticks or tildes that may go on."""
        self._is_blank = True
        """Only white space so far in this line."""
        self._is_blank_before = True
        """The line before has only white space."""
        self._column = 0
        self._is_quoted = False

    def feed(self, text: str) -> None:
        """Move behind a text."""
        for found in _MARK.finditer(text):
            mark = found[0]
            if self._run and mark[0] != self._run[0]:
                self._take_run()
            if mark[0] in "`~":
                self._run += mark
            elif mark == "\n":
                self._end_line()
            else:
                self._take_line(mark)

    def is_code(self) -> bool:
        """Return whether a call at this position is in code or in a quotation."""
        self._take_run()
        indented = self._is_blank and self._column >= _INDENT and self._is_blank_before
        return bool(self._fence) or self._span > 0 or self._is_quoted or indented

    def is_line_start(self) -> bool:
        """Return whether only white space precedes in this line."""
        return self._is_blank and not self._run

    def _take_line(self, text: str) -> None:
        """Process a part of a line."""
        written = text.lstrip()
        if self._is_blank:
            space = text[: len(text) - len(written)]
            self._column += len(space) + (_INDENT - 1) * space.count("\t")
            self._is_quoted = written.startswith(">")
        if written:
            self._is_blank = self._is_closing = False

    def _take_run(self) -> None:
        run, self._run = self._run, ""
        if not run:
            return
        if self._fence and self._is_opening and run[0] == "`":
            self._fence = ""  # a span: the line of a fence has no other backticks
        elif self._fence:
            self._is_closing = self._is_blank and run.startswith(self._fence)
        elif self._is_blank and len(run) >= _FENCE_LENGTH:
            self._fence, self._is_opening = run, True
        elif run[0] == "`":
            self._span = 0 if self._span == len(run) else self._span or len(run)
        self._is_blank = False

    def _end_line(self) -> None:
        if self._is_closing:
            self._fence, self._is_closing = "", False
        elif self._is_blank:
            self._span = 0  # a span ends with its paragraph
        self._is_blank_before = self._is_blank
        self._is_blank, self._is_quoted, self._is_opening, self._column = True, False, False, 0
