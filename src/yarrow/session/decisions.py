"""A tool call on one line, for the list of permission decisions in figures and in the HTML export."""

from typing import Any

import msgspec

from yarrow.message import ToolCall

LONGEST = 200
"""Maximum characters of a call on its line; the rest is cut."""
_TELLING = ("command", "path")


def telling(call: ToolCall) -> str:
    """Return the command of a call, its path, or else its arguments, on one line."""
    try:
        arguments = msgspec.json.decode(call.arguments, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        arguments = {}
    named = next((arguments[name] for name in _TELLING if isinstance(arguments.get(name), str)), call.arguments)
    return one_line(named)


def one_line(text: str) -> str:
    """Return the beginning of a text on one line, with a mark where it is cut."""
    text = text.strip()
    line = " ".join(text[: 8 * LONGEST].split())
    return line if len(line) <= LONGEST and len(text) <= 8 * LONGEST else f"{line[: LONGEST - 1]}…"
