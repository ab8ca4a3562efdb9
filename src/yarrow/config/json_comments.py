"""Takes comments and trailing commas out of a JSON text without moving anything that remains."""

import re

_TOKENS = re.compile(r'(?P<comment>//[^\r\n]*|/\*.*?\*/)|"(?:[^"\\]|\\.)*+"?|/\*.*', re.DOTALL)
"""A comment, or what a comment cannot begin in: a text, or a comment without an end."""
_COMMAS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{,:]\s*,|(?P<trailing>,)(?=\s*[\]}])', re.DOTALL)
"""A trailing comma, or what looks like one: part of a text, or a comma that follows no value."""
_VISIBLE = re.compile(r"[^\r\n]")


def to_strict_json(text: str) -> str:
    """Return `text` with spaces for comments (`//`, `/* */`) and trailing commas.

    Length, lines and columns stay, so that whatever is wrong with the rest is told at its place.
    """
    return _COMMAS.sub(_blank, blank_comments(text))


def blank_comments(text: str) -> str:
    """Return `text` with spaces for comments; trailing commas stay."""
    return _TOKENS.sub(_blank, text)


def _blank(found: re.Match[str]) -> str:
    return _VISIBLE.sub(" ", found.group()) if found.lastgroup else found.group()
