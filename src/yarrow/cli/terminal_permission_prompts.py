"""Permission questions at the terminal, read key by key."""

import asyncio
import os
import re
import time
import unicodedata
from codecs import getincrementaldecoder
from collections.abc import Callable

from yarrow.cli.output_writer import OutputWriter
from yarrow.client.permission_prompts import PermissionUI, TypedAnswer
from yarrow.platform import system

QUIET_SECONDS = 1.0
"""Minimum seconds between the question, or the previous key, and the first key of an answer."""
END_OF_INPUT = "\x04"
"""Ctrl+D, the end of input on an empty line."""
_ERASE, _ERASE_WORD, _ERASE_LINE = "\x7f\b", "\x17", "\x15"
_SEQUENCE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)?", re.DOTALL)


class TypedLine:
    """Line being typed; the times of its keys distinguish an answer from text typed for something else."""

    def __init__(self, text: str, shown_at: float) -> None:
        """Start with `text`, typed before the question was shown."""
        self.text = text
        self.echo = ""
        """Text to echo for the keys since it was last cleared."""
        self._is_early = bool(text)
        self._shown_at = shown_at
        self._last_at = shown_at

    def feed(self, keys: str, at: float) -> list[TypedAnswer]:
        """Return the lines that these keys complete. A line followed by more keys was pasted and is not an answer."""
        keys = _SEQUENCE.sub("", keys.replace("\r\n", "\n"))
        lines: list[TypedAnswer] = []
        for index, key in enumerate(keys):
            if key in "\r\n":
                is_last = index == len(keys) - 1
                lines.append(TypedAnswer(self.text, is_answer=is_last and not self._is_early))
                self.text, self._is_early = "", False
                self.echo += "\n"
            elif key == END_OF_INPUT and not self.text:
                lines.append(TypedAnswer("", is_answer=True, is_end=True))
            else:
                self._edit(key, at)
            self._last_at = at
        return lines

    def _edit(self, key: str, at: float) -> None:
        if key in _ERASE:
            self._erase(1)
        elif key == _ERASE_LINE:
            self._erase(len(self.text))
        elif key == _ERASE_WORD:
            self._erase(len(self.text) - len(re.sub(r"\S*\s*\Z", "", self.text)))
        elif key.isprintable() or key == "\t":
            if not self.text:
                self._is_early = min(at - self._shown_at, at - self._last_at) < QUIET_SECONDS
            self.text += key
            self.echo += key

    def _erase(self, count: int) -> None:
        kept = len(self.text) - min(count, len(self.text))
        self.echo += "".join("\b \b" * _width(key) for key in reversed(self.text[kept:]))
        self.text = self.text[:kept]
        self._is_early = self._is_early and bool(self.text)


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


MAX_READ_BYTES = 1 << 16
"""Maximum bytes per read from the terminal."""


def open_permission_ui(
    output: OutputWriter, *, descriptor: int = 0, keep: Callable[[str], None] | None = None
) -> PermissionUI | None:
    """Return the UI if standard input and standard error are a terminal and we are in its foreground, else None.

    `keep` receives text typed for something else, unchanged; without it such lines are sent to the run.
    """
    there = output.err.is_terminal and os.isatty(descriptor) and not system.is_in_background(descriptor)
    return _TerminalPermissionUI(output, descriptor, keep) if there else None


class _TerminalPermissionUI:
    def __init__(self, output: OutputWriter, descriptor: int, keep: Callable[[str], None] | None) -> None:
        self._output = output
        self._descriptor = descriptor
        self._keep = keep
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._text = ""
        """Start of an unfinished line."""

    async def answer(self, question: str) -> TypedAnswer:
        """Show a question, with its last line as the prompt, and return the next line typed."""
        said, _, prompt = question.rpartition("\n")
        with system.set_cbreak_mode(self._descriptor) as is_ours:
            lines = self._take_typed_ahead() if is_ours else []
            # The terminal has already echoed the start of a line, so the question starts on the next.
            begins = "\n" if self._text else ""
            self._output.err.write(begins + (f"{said}\n" if said else "") + prompt + self._text)
            await self._output.flush()
            line = TypedLine(self._text, time.monotonic())
            try:
                while not lines:
                    at, keys = await self._read_keys(line)
                    lines += line.feed(keys, at)
                    if is_ours:
                        self._output.err.write(line.echo)
                    line.echo = ""
            except asyncio.CancelledError:
                self._push_back(line.text)
                raise
            self._text = line.text
        if lines[0].is_answer:
            return lines[0]
        return TypedAnswer("\n".join(one.text for one in lines if not one.is_end), is_answer=False)

    def keep(self, text: str) -> bool:
        """Keep a line for later; return False if it has no later reader."""
        if self._keep is not None:
            self._keep(f"{text}\n")
        return self._keep is not None

    def tell(self, text: str) -> None:
        self._output.err.write(f"{text}\n")

    def _take_typed_ahead(self) -> list[TypedAnswer]:
        """Return the whole lines typed before the question, and keep the start of the next."""
        *lines, self._text = (self._text + self._read_pending().replace("\r", "\n").replace("\0", "")).split("\n")
        return [TypedAnswer(text, is_answer=False) for text in lines]

    def _read_pending(self) -> str:
        data = b""
        while system.wait_readable(self._descriptor, 0) and (more := os.read(self._descriptor, MAX_READ_BYTES)):
            data += more
        return self._decode(data)

    async def _read_keys(self, line: TypedLine) -> tuple[float, str]:
        """Return the time of the next keys, and the keys; the end of input is Ctrl+D, after Enter if needed."""
        at: list[float] = []
        data = await read_terminal(self._descriptor, MAX_READ_BYTES, lambda: at.append(time.monotonic()))
        if not data:
            return at[0], "\n" * bool(line.text) + END_OF_INPUT
        return at[0], self._decode(data)

    def _push_back(self, begun: str) -> None:
        """Hand the start of a line to the reader of its rest, or keep it for the next question."""
        self._text = "" if self._keep else begun
        if self._keep:
            self._keep(begun)


async def read_terminal(descriptor: int, max_bytes: int, on_input: Callable[[], object] = lambda: None) -> bytes:
    """Wait for input from a terminal, call `on_input`, and return the input; empty at the end of input."""
    loop = asyncio.get_running_loop()
    typed = asyncio.Event()
    system.watch_readable(loop, descriptor, typed.set)
    try:
        await typed.wait()
    finally:
        system.unwatch_readable(loop, descriptor)
    on_input()
    return os.read(descriptor, max_bytes)
