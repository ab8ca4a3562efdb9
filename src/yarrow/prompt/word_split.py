"""Splits what follows a command into words, as a shell would and without its errors."""

import re

_PART = r"""(?xs)
      \\(?P<escaped>['"\s])                     # a quote or space that is meant
    | "(?P<double>(?:[^"\\]|\\"|\\(?!"))*+)"    # a group; within it \" is a quote
    | (?<!\w)'(?P<single>[^']*+)'               # not the apostrophe of don't
    | (?P<space>\s+)
    | (?P<other>.)                              # also a quote that nothing closes, and any other backslash
"""


def split_words(text: str) -> list[str]:
    """Return the words: white space parts them, closed quotes hold them together, and any text has some."""
    found: list[str] = []
    word: list[str] | None = None
    for part in re.finditer(_PART, text):
        if part["space"] is not None:
            if word is not None:
                found.append("".join(word))
            word = None
            continue
        word = [] if word is None else word
        if part["double"] is not None:
            word.append(part["double"].replace('\\"', '"'))
        else:
            word.append(part["escaped"] or part["single"] or part["other"] or "")
    return found if word is None else [*found, "".join(word)]
