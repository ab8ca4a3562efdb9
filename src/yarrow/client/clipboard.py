"""System clipboard, accessed through external programs where they exist."""

import asyncio
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from yarrow.platform import system
from yarrow.platform.search_path import find_program

MAX_READ_SECONDS = 3.0
MAX_WRITE_SECONDS = 2.0
"""Timeouts in seconds for one program; after that it is killed and counts as missing."""
MAX_IMAGE_BYTES = 16 << 20
"""Maximum bytes read from the clipboard; more does not count as an image."""
_APPLE = ("osascript", "-e", "get the clipboard as \u00abclass PNGf\u00bb")
_APPLE_BEGIN = "\u00abdata PNGf".encode()
_READERS = (
    # The program with its arguments, and the variable without which it has no clipboard to read.
    (("wl-paste", "--no-newline", "--type", "image/png"), "WAYLAND_DISPLAY"),
    (("xclip", "-selection", "clipboard", "-t", "image/png", "-o"), "DISPLAY"),
    (("pngpaste", "-"), ""),
    (_APPLE, ""),
)
_WRITERS = (
    (("wl-copy",), "WAYLAND_DISPLAY"),
    (("xclip", "-selection", "clipboard", "-i"), "DISPLAY"),
    (("pbcopy",), ""),
    (("tmux", "load-buffer", "-w", "-"), "TMUX"),
)


class ClipboardError(Exception):
    """No program that reads or writes the clipboard was found; the message names suitable ones."""


class Clipboard:
    """Clipboard of the user, written by a program, and by the terminal if it lets programs do so."""

    def __init__(self, environment: Mapping[str, str], send: Callable[[str], int] | None = None) -> None:
        """`send` copies a text through the terminal and returns the number of characters sent."""
        self._environment = environment
        self._send = send

    async def copy(self, text: str) -> str:
        """Copy a text; return where it is now, and its size. Raises `ClipboardError`."""
        sent = self._send(text) if self._send else 0
        if program := await write_text(text, self._environment):
            place = "the tmux buffer" if program == "tmux" else f"the clipboard with {program}"
            return f"to {place} ({len(text):,} characters)"
        if not sent:
            raise ClipboardError(
                "No clipboard program found: install wl-copy, xclip, pbcopy or tmux, or use /export PATH."
            )
        of = "" if sent == len(text) else f" of {len(text):,}"
        return f"({sent:,}{of} characters), if your terminal allows it"


async def read_image(environment: Mapping[str, str]) -> bytes:
    """Return the image in the clipboard, empty if it contains none. Raises `ClipboardError`."""
    programs = list(_find_programs(_READERS, environment))
    if not programs:
        raise ClipboardError("no program to read images is installed (wl-paste, xclip or pngpaste): use @FILE")
    for program in programs:
        if data := _decode(await _run(program, b"", MAX_READ_SECONDS)):
            return data
    return b""


async def write_text(text: str, environment: Mapping[str, str]) -> str:
    """Copy a text to the clipboard; return the name of the program that accepted it, empty if none did."""
    for program in _find_programs(_WRITERS, environment):
        if await _run(program, text.encode("utf-8", "replace"), MAX_WRITE_SECONDS) is not None:
            return Path(program[0]).stem
    return ""


def _find_programs(
    table: Sequence[tuple[Sequence[str], str]], environment: Mapping[str, str]
) -> Iterator[Sequence[str]]:
    """Yield the programs that are on the path and have a clipboard."""
    for program, variable in table:
        found = (not variable or environment.get(variable)) and find_program(program[0], environment)
        if found:
            yield (found, *program[1:])


async def _run(program: Sequence[str], given: bytes, seconds: float) -> bytes | None:
    """Return the output of a program, or None if it fails or times out; its group is killed if it still runs."""
    writes = not given
    try:
        process = await asyncio.create_subprocess_exec(
            # A program that writes keeps running to serve the text, and must not hold one of our pipes open.
            *program,
            stdin=PIPE if given else DEVNULL,
            stdout=PIPE if writes else DEVNULL,
            stderr=DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None
    try:
        async with asyncio.timeout(seconds):
            out = await _communicate(process, given)
            return out if await process.wait() == 0 else None
    except TimeoutError:
        return None
    finally:
        if process.returncode is None:
            with suppress(ProcessLookupError):
                system.kill_group(process.pid)
            await process.wait()


async def _communicate(process: Process, given: bytes) -> bytes:
    if process.stdin is not None:
        process.stdin.write(given)
        with suppress(OSError):
            await process.stdin.drain()
        process.stdin.close()
    if process.stdout is None:
        return b""
    out = bytearray()
    while data := await process.stdout.read(1 << 16):
        out += data
        if len(out) > MAX_IMAGE_BYTES:
            raise TimeoutError
    return bytes(out)


def _decode(out: bytes | None) -> bytes:
    """Return the bytes of an image; AppleScript prints them in hexadecimal."""
    if out is None or not out.startswith(_APPLE_BEGIN):
        return out or b""
    digits = out.removeprefix(_APPLE_BEGIN).decode("utf-8", "ignore").strip()[:-1]
    try:
        return bytes.fromhex(digits)
    except ValueError:
        return b""
