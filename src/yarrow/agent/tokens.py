"""Token estimates of texts and messages, for use where no server has counted them."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import ceil
from string import ascii_letters, digits, punctuation
from typing import assert_never

import msgspec

from yarrow.message import Block, Image, Message, Opaque, Text, Thinking, ToolCall, ToolSpec

IMAGE_TOKENS = 1600
"""Tokens of an image of any size: the most that hosted backends count for one of usual size."""
FRAME_TOKENS = 4
"""Tokens that a chat template adds around a message or a call."""
SHARED_TEXTS = 16
"""Maximum cached estimates of system prompts and schemas, which sessions share; the least recently used is dropped."""
_LEAST_DENSE = 24
_DENSE = re.compile(rb"(?<![A-Za-z0-9])(?=[A-Za-z]*+[0-9])[A-Za-z0-9]{%d,}+" % _LEAST_DENSE)
"""Hashes and base64. A match only starts at the beginning of a run, so the cost stays linear in its length."""
_MARKS = punctuation.encode() + bytes(code for code in (*range(32), 127) if code not in b"\t\n\r")


def _telling(members: bytes) -> bytes:
    """Return a translation table that maps `members` to a letter and all other bytes to a space.

    Splitting at spaces is several times faster than a regex search, and a session has millions of words.
    """
    return bytes(b"x"[0] if code in members else b" "[0] for code in range(256))


_WORD, _NUMBER = _telling(ascii_letters.encode()), _telling(digits.encode())
_WORD_OR_NUMBER = _telling(f"{ascii_letters}{digits}".encode())
_LINE_ENDS, _GAP = _telling(b"\r\n"), _telling(b" \t")


def text_tokens(text: str) -> int:
    """Estimate the tokens of a text by character class; works for prose, code and tool output."""
    data = text.encode("ascii", "replace")
    wide = 0 if text.isascii() else len(text) - len(text.encode("ascii", "ignore"))
    sparse, dense_runs = data, 0
    if b"x" * _LEAST_DENSE in data.translate(_WORD_OR_NUMBER):
        sparse, dense_runs = _DENSE.subn(b" ", data)
    dense = len(data) - len(sparse) + dense_runs
    marks = len(sparse) - len(sparse.translate(None, _MARKS)) - wide  # each wide character became a question mark
    return ceil(
        _runs(_WORD, sparse, lambda length: 1 if length <= 7 else length / 5)
        + _runs(_NUMBER, sparse, lambda length: ceil(length / 3))
        + _runs(_LINE_ENDS, sparse, lambda length: max(0.6, length / 32))
        + (_runs(_GAP, sparse, lambda length: max(0.7, length / 32) if length > 1 else 0) if _has_gap(sparse) else 0)
        + 0.7 * dense
        + 0.65 * marks
        + 0.75 * wide
    )


def _has_gap(data: bytes) -> bool:
    return b"  " in data or b"\t" in data


def _runs(table: bytes, data: bytes, cost: Callable[[int], float]) -> float:
    """Return the total cost of all runs of the table's bytes; equal lengths are counted together."""
    return sum(times * cost(length) for length, times in Counter(map(len, data.translate(table).split())).items())


def message_tokens(message: Message) -> int:
    """Estimate the tokens of a message; 0 if it is never sent."""
    return 0 if message.incomplete else FRAME_TOKENS + sum(map(_block_tokens, message.content))


def fixed_tokens(system: str, tools: Sequence[ToolSpec]) -> int:
    """Estimate the tokens of the parts sent with every request: the system prompt and the tool schemas."""
    return _shared_tokens(system) + _shared_tokens(msgspec.json.encode(tools).decode())


@lru_cache(maxsize=SHARED_TEXTS)
def _shared_tokens(text: str) -> int:
    return text_tokens(text)


def _block_tokens(block: Block) -> int:
    match block:
        case Text(text) | Thinking(text):
            return text_tokens(text)
        case ToolCall():
            return FRAME_TOKENS + text_tokens(block.name) + text_tokens(block.arguments)
        case Image():
            return IMAGE_TOKENS
        case Opaque(data):
            return text_tokens(data)
        case _:
            assert_never(block)
