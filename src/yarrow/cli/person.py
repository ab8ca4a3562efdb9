"""The person at the terminal: a question is shown, and what was typed before that is no answer to it."""

import asyncio
import os

from yarrow.cli.output import Output
from yarrow.client.asking import Person
from yarrow.platform import system

LONGEST_LINE = 1 << 16
"""Bytes of one answer; what a terminal gives beyond that is dropped before the next question."""


def person_at(output: Output, *, descriptor: int = 0) -> Person | None:
    """Return the person when both standard input and standard error are a terminal that is ours, else None."""
    there = output.err.is_terminal and os.isatty(descriptor) and not system.in_background(descriptor)
    return _Person(output, descriptor) if there else None


class _Person:
    def __init__(self, output: Output, descriptor: int) -> None:
        self._output = output
        self._descriptor = descriptor

    async def answer(self, question: str) -> str:
        """Show a question, its last line as a prompt, and return the line typed after it; empty at the end of input."""
        said, _, prompt = question.rpartition("\n")
        self._output.err.write(f"{said}\n")
        await self._output.written()
        # What was typed until here was meant for something else. The prompt comes after, so that a program which
        # answers as soon as it sees that is heard.
        system.forget_typed(self._descriptor)
        self._output.err.write(prompt)
        return (await read_typed(self._descriptor, LONGEST_LINE)).decode("utf-8", "replace")


async def read_typed(descriptor: int, most: int) -> bytes:
    """Wait until something was typed at a terminal, and return it; nothing at the end of input."""
    loop = asyncio.get_running_loop()
    typed = asyncio.Event()
    system.watch(loop, descriptor, typed.set)
    try:
        await typed.wait()
    finally:
        system.unwatch(loop, descriptor)
    return os.read(descriptor, most)
