"""Search for text that a model copied inexactly: trailing whitespace, Unicode forms, quotes and dashes."""

import unicodedata
from bisect import bisect_right
from itertools import accumulate

_EQUIVALENTS = str.maketrans(
    dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u02bc", "'")
    | dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"')
    | dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-")
    | dict.fromkeys("\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " ")
)
"""Characters that are equivalent in a fuzzy match."""


def find_fuzzy(text: str, wanted: str) -> tuple[int, int] | None:
    """Return the start and stop of `wanted` in `text` if there is exactly one match.

    Both must have LF line endings. The span refers to the original `text`; it includes no trailing whitespace
    except between its lines.
    """
    # The last line of `wanted` may be the start of a longer one and therefore keeps its trailing whitespace.
    head, separator, tail = wanted.rpartition("\n")
    plain = ("\n".join(map(_normalize_line, head.split("\n"))) + separator if separator else "") + _normalize(tail)
    if not plain.strip():
        return None
    lines = text.split("\n")
    folded = [_normalize_line(line) for line in lines]
    whole = "\n".join(folded)
    at = whole.find(plain)
    if at < 0 or whole.find(plain, at + 1) >= 0:
        return None
    starts = [0, *accumulate(len(line) + 1 for line in folded)]
    places = [0, *accumulate(len(line) + 1 for line in lines)]
    ends: list[int] = []
    for place in (at, at + len(plain)):
        line = bisect_right(starts, place) - 1
        column = _find_column(lines[line], place - starts[line])
        if column is None:
            return None
        ends.append(places[line] + column)
    return ends[0], ends[1]


def _normalize(line: str) -> str:
    """Return the line decomposed, with equivalent characters unified."""
    return unicodedata.normalize("NFD", line.translate(_EQUIVALENTS))


def _normalize_line(line: str) -> str:
    return _normalize(line).rstrip(" \t")


def _find_column(line: str, wanted: int) -> int | None:
    """Return the column of `line` at offset `wanted` of its normalized form; None within a character."""
    places = [0, *accumulate(len(_normalize(character)) for character in line)]
    return places.index(wanted) if wanted in places else None
