"""The user at the terminal: shown questions, heard key by key, so that no word typed for something else answers one."""

import asyncio
import os
import time
from codecs import getincrementaldecoder
from collections.abc import Callable

from yarrow.cli.output import Output
from yarrow.cli.typed_line import END, TypedLine
from yarrow.client.asking import Person, Typed
from yarrow.platform import system

LONGEST_READ = 1 << 16
"""Bytes taken from the terminal at one time."""


def person_at(output: Output, *, descriptor: int = 0, keep: Callable[[str], None] | None = None) -> Person | None:
    """Return the user when both standard input and standard error are a terminal that is ours, else None.

    `keep` takes text that was typed for something else, as it came; without it such lines are sent to the run.
    """
    there = output.err.is_terminal and os.isatty(descriptor) and not system.in_background(descriptor)
    return _Person(output, descriptor, keep) if there else None


class _Person:
    def __init__(self, output: Output, descriptor: int, keep: Callable[[str], None] | None) -> None:
        self._output = output
        self._descriptor = descriptor
        self._keep = keep
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._text = ""
        """The beginning of a line."""

    async def answer(self, question: str) -> Typed:
        """Show a question, its last line as a prompt, and return the next line that is typed."""
        said, _, prompt = question.rpartition("\n")
        with system.by_keys(self._descriptor) as is_ours:
            lines = self._take_early() if is_ours else []
            # The terminal has echoed the beginning of a line where the question is to stand.
            begins = "\n" if self._text else ""
            self._output.err.write(begins + (f"{said}\n" if said else "") + prompt + self._text)
            await self._output.written()
            line = TypedLine(self._text, time.monotonic())
            try:
                while not lines:
                    at, keys = await self._read(line)
                    lines += line.take(keys, at)
                    if is_ours:
                        self._output.err.write(line.echo)
                    line.echo = ""
            except asyncio.CancelledError:
                self._hand_over(line.text)
                raise
            self._text = line.text
        if lines[0].is_answer:
            return lines[0]
        return Typed("\n".join(one.text for one in lines if not one.is_end), is_answer=False)

    def keep(self, text: str) -> bool:
        """Keep a line for later; return False when nothing takes it later."""
        if self._keep is not None:
            self._keep(f"{text}\n")
        return self._keep is not None

    def tell(self, text: str) -> None:
        """Show a line."""
        self._output.err.write(f"{text}\n")

    def _take_early(self) -> list[Typed]:
        """Take what was typed before the question: return its whole lines and keep the beginning of the next."""
        *lines, self._text = (self._text + self._pending().replace("\r", "\n").replace("\0", "")).split("\n")
        return [Typed(text, is_answer=False) for text in lines]

    def _pending(self) -> str:
        data = b""
        while system.comes(self._descriptor, 0) and (more := os.read(self._descriptor, LONGEST_READ)):
            data += more
        return self._decode(data)

    async def _read(self, line: TypedLine) -> tuple[float, str]:
        """Return the next keys, and when the first of them came; the end of input as the keys that say so."""
        at: list[float] = []
        data = await read_typed(self._descriptor, LONGEST_READ, lambda: at.append(time.monotonic()))
        if not data:
            return at[0], "\n" * bool(line.text) + END
        return at[0], self._decode(data)

    def _hand_over(self, begun: str) -> None:
        """Leave the beginning of a line to what reads the rest of it, or to the next question."""
        self._text = "" if self._keep else begun
        if self._keep:
            self._keep(begun)


async def read_typed(descriptor: int, most: int, comes: Callable[[], object] = lambda: None) -> bytes:
    """Wait until something was typed at a terminal, call `comes`, and return it; nothing at the end of input."""
    loop = asyncio.get_running_loop()
    typed = asyncio.Event()
    system.watch(loop, descriptor, typed.set)
    try:
        await typed.wait()
    finally:
        system.unwatch(loop, descriptor)
    comes()
    return os.read(descriptor, most)
