"""Reads what is piped into the command, without ever waiting for a pipe that somebody merely left open."""

import os
import stat
import time
from typing import NamedTuple

from yarrow.cli.prompt_input import MAX_TEXT_SIZE, decode_text, find_size, make_too_large_error
from yarrow.errors import UsageError
from yarrow.platform import system

FIRST_BYTE_SECONDS = 0.5
"""With a prompt given, how long after the start of the process the first piped byte may come.

A program that pipes into us begins when we do, and most have said something by then; a pipe without a writer costs
this much and no more.
"""
IDLE_SECONDS = 30.0
"""With a prompt given, how long a pipe that has brought something may pause before we go on with what came."""
_CHUNK = 1 << 16


class PipedInput(NamedTuple):
    """What was piped in, and a sentence for the person when we stopped waiting for more."""

    text: str = ""
    notice: str = ""


class StdinTimeouts(NamedTuple):
    """How long to wait for input that need not come; all in seconds, `started` on the monotonic clock."""

    started: float
    first_byte: float = FIRST_BYTE_SECONDS
    idle: float = IDLE_SECONDS


def read_stdin(timeouts: StdinTimeouts | None, *, descriptor: int = 0) -> PipedInput:
    """Return what is piped in; empty for a terminal, for nothing and for a closed descriptor.

    Without `patience` what comes is the prompt itself, so the end is waited for. It blocks: call it before there is
    an event loop. Raises `UsageError` for what is no UTF-8 text, too large, or not readable.
    """
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        # Closed: there is nobody to read from.
        return PipedInput()
    if os.isatty(descriptor):
        return PipedInput()
    if stat.S_ISDIR(mode):
        raise UsageError("standard input is a directory; to speak of it, name it in the prompt")
    try:
        data, notice = _read_all(descriptor, timeouts)
    except OSError as error:
        raise UsageError(f"standard input cannot be read: {error.strerror}") from None
    return PipedInput(decode_text(data, "standard input"), notice)


def _read_all(descriptor: int, timeouts: StdinTimeouts | None) -> tuple[bytes, str]:
    data = bytearray()
    while _wait_readable(descriptor, timeouts, begun=bool(data)):
        chunk = os.read(descriptor, _CHUNK)
        if not chunk:
            return bytes(data), ""
        data += chunk
        if len(data) > MAX_TEXT_SIZE:
            raise make_too_large_error("standard input", find_size(descriptor))
    if data:
        return bytes(data), f"standard input paused after {len(data)} bytes and was not closed; going on with those"
    return b"", "standard input is open and brought nothing; going on without it"


def _wait_readable(descriptor: int, timeouts: StdinTimeouts | None, *, begun: bool) -> bool:
    """Wait for the next bytes or the end, as long as patience lasts."""
    timeout = None
    if timeouts and begun:
        timeout = timeouts.idle
    elif timeouts:
        timeout = max(0.0, timeouts.started + timeouts.first_byte - time.monotonic())
    return system.wait_readable(descriptor, timeout)
