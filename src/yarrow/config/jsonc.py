"""JSON with comments: removal of comments, and the line of each value."""

import re
from functools import lru_cache

_TOKENS = re.compile(r'(?P<comment>//[^\r\n]*|/\*.*?\*/)|"(?:[^"\\]|\\.)*+"?|/\*.*', re.DOTALL)
"""A comment, or a token in which none can begin: a string, or an unterminated comment."""
_COMMAS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{,:]\s*,|(?P<trailing>,)(?=\s*[\]}])', re.DOTALL)
"""A trailing comma, or what resembles one: part of a string, or a comma that follows no value."""
_VISIBLE = re.compile(r"[^\r\n]")


def to_strict_json(text: str) -> str:
    """Return `text` with comments (`//`, `/* */`) and trailing commas replaced by spaces.

    Length, lines and columns stay the same, so that errors are reported at the right position.
    """
    return _COMMAS.sub(_blank, blank_comments(text))


def blank_comments(text: str) -> str:
    """Return `text` with comments replaced by spaces; trailing commas are kept."""
    return _TOKENS.sub(_blank, text)


def _blank(found: re.Match[str]) -> str:
    return _VISIBLE.sub(" ", found.group()) if found.lastgroup else found.group()


_SPACE = re.compile(r"[ \t\r\n]*")
_MAX_CACHED = 64
"""Maximum objects and lists with cached positions; the least recently used are evicted."""


def find_line(text: str, path: tuple[str | int, ...]) -> int:
    """Return the line, from 1, of the key or list item that `path` ends in. `text` must be valid JSON that contains it.

    For a duplicate key it is the last occurrence, which takes effect.
    """
    place = value = skip_space(text, 0)
    for step in path:
        place, value = find_members(text, value)[step]
    return text.count("\n", 0, place) + 1


def skip_space(text: str, index: int) -> int:
    """Return the index of the first character at or after `index` that is not white space."""
    found = _SPACE.match(text, index)
    return found.end() if found else index


# A caller that needs one line usually needs those of its neighbors too, even thousands.
@lru_cache(_MAX_CACHED)
def find_members(text: str, index: int) -> dict[str | int, tuple[int, int]]:
    """Return the start of each member of the object or list at `index`, and the start of its value."""
    # Imported here because only errors and `yarrow config` need it, and most runs have neither.
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
