"""A tool call on one line, for the list of permission decisions in figures and in the HTML export."""

from typing import Any

import msgspec

from yarrow.message import ToolCall

MAX_SUMMARY_CHARACTERS = 200
"""Maximum characters of a call on its line; the rest is cut."""
_KEY_ARGUMENTS = ("command", "path")


def summarize_tool_call(call: ToolCall) -> str:
    """Return the command of a call, its path, or else its arguments, on one line."""
    try:
        arguments = msgspec.json.decode(call.arguments, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        arguments = {}
    named = next((arguments[name] for name in _KEY_ARGUMENTS if isinstance(arguments.get(name), str)), call.arguments)
    return truncate_to_line(named)


def truncate_to_line(text: str) -> str:
    """Return the beginning of a text on one line, with a mark where it is cut."""
    text = text.strip()
    line = " ".join(text[: 8 * MAX_SUMMARY_CHARACTERS].split())
    return (
        line
        if len(line) <= MAX_SUMMARY_CHARACTERS and len(text) <= 8 * MAX_SUMMARY_CHARACTERS
        else f"{line[: MAX_SUMMARY_CHARACTERS - 1]}…"
    )
