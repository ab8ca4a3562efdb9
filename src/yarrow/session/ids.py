"""Ids and timestamps of session files: UUIDv7 ids that sort by creation, and RFC 3339 times."""

import os
import re
import threading
import time
from datetime import UTC, datetime

_VALID_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TICKS_PER_MILLISECOND = 4096
"""The 12 bits after the 48 time bits hold the fraction of a millisecond, so that ids sort by creation."""

_lock = threading.Lock()
_last_tick = 0


def new_id() -> str:
    """Return a UUIDv7; within a process, each is greater than all previous ones, even if the clock is set back."""
    global _last_tick  # noqa: PLW0603 (a process has one sequence of ids)
    with _lock:
        tick = max(time.time_ns() * _TICKS_PER_MILLISECOND // 1_000_000, _last_tick + 1)
        _last_tick = tick
    parse_milliseconds, fraction = divmod(tick, _TICKS_PER_MILLISECOND)
    random = int.from_bytes(os.urandom(8)) >> 2
    digits = f"{parse_milliseconds << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | random:032x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def is_valid_id(text: str) -> bool:
    """Return True if `text` is a valid session id and thus file name: `[A-Za-z0-9_-]{1,64}`."""
    return _VALID_ID.fullmatch(text) is not None


def format_timestamp(seconds: float) -> str:
    """Return a time in seconds since 1970 as RFC 3339 in UTC with milliseconds: `2026-11-28T00:38:13.123Z`."""
    whole, milliseconds = divmod(round(seconds * 1000), 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{milliseconds:03d}Z"


def parse_seconds(text: str) -> float:
    """Return an ISO 8601 time in seconds since 1970; a time without offset is UTC.

    Raises `ValueError` if it is not a time.
    """
    moment = datetime.fromisoformat(text.strip().upper())
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def milliseconds(text: str) -> int:
    """Return an untrusted timestamp in milliseconds since 1970; 0 if it is not a valid time."""
    try:
        return max(0, int(parse_seconds(text) * 1000))
    except (ValueError, OverflowError):
        return 0
