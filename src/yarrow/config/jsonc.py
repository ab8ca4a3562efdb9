"""JSON with comments: stripping comments, and the line of each value."""

import re
from functools import lru_cache

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


_SPACE = re.compile(r"[ \t\r\n]*")
_MAX_CACHED = 64
"""Objects and lists of which it is known where everything stands; the one not asked for longest is forgotten."""


def find_line(text: str, path: tuple[str | int, ...]) -> int:
    """Return the line, from 1, of the key or list item that `path` ends in. `text` must be valid JSON that holds it.

    Of a key written twice it is the last, which is the one that counts.
    """
    place = value = skip_space(text, 0)
    for step in path:
        place, value = find_members(text, value)[step]
    return text.count("\n", 0, place) + 1


def skip_space(text: str, index: int) -> int:
    """Return where white space at `index` ends."""
    found = _SPACE.match(text, index)
    return found.end() if found else index


# Whoever asks for one line mostly asks for those beside it, of thousands too.
@lru_cache(_MAX_CACHED)
def find_members(text: str, index: int) -> dict[str | int, tuple[int, int]]:
    """Return where each member of the object or list at `index` stands, and where its value does."""
    # Here, since only an error or `yarrow config` needs it and most runs have neither.
    from json import JSONDecoder

    decoder = JSONDecoder()
    found: dict[str | int, tuple[int, int]] = {}
    is_object = text[index] == "{"
    index = skip_space(text, index + 1)
    while text[index] not in "}]":
        start = index
        key: str | int = len(found)
        if is_object:
            key, index = decoder.raw_decode(text, index)
            index = skip_space(text, skip_space(text, index) + 1)
        found[key] = start, index
        _, index = decoder.raw_decode(text, index)
        index = skip_space(text, index)
        if text[index] == ",":
            index = skip_space(text, index + 1)
    return found
