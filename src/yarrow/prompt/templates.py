"""Templates: markdown files that become a prompt, with the words after their name in the place of `$1`, `$@` and such.

    $1 ... $9999        one word; nothing when there are fewer
    $@                  all words, with one space between them, as one value
    ${@:2} ${@:2:3}     the words from the second on; three of them at most
    $$1                 the text `$1`: a second dollar keeps a placeholder as it is

Any other `$` is a dollar. What users type is data to the model: each value stands between `<untrusted_input>` tags, and
is never read for placeholders again. What a template itself says is its author's, tags included, and stays as it is.
"""

import re

from yarrow.errors import Code, LimitExceeded
from yarrow.prompt.resources import ResourceKind
from yarrow.prompt.untrusted import wrap_untrusted
from yarrow.prompt.word_split import split_words

TEMPLATE_KIND = ResourceKind("template", (".yarrow/prompts",), ending=".md", file="", max_count=500)
MAX_EXPANDED_CHARACTERS = 1 << 20
"""Of an expanded text; a longer one is refused."""

_NUMBER = "[1-9][0-9]{0,3}"
_SLICE = rf"\{{@:(?P<first>{_NUMBER})(?::(?P<length>0|{_NUMBER}))?\}}"
_PLACEHOLDER = rf"(?P<kept>\$)?\$(?:(?P<all>@)|(?P<one>{_NUMBER})(?![0-9])|{_SLICE})"


def fill_template(body: str, arguments: str) -> str:
    """Return a template's body with the arguments in it; at its end when it names no place for them.

    Raises `LimitExceeded` when the result is longer than `MAX_EXPANDED_CHARACTERS`.
    """
    check_length(len(body) + len(arguments))
    values = split_words(arguments)
    parts: list[str] = []
    end = length = 0
    has_place = False
    for found in re.finditer(_PLACEHOLDER, body):
        parts += body[end : found.start()], _replace_placeholder(found, values)
        end = found.end()
        length += len(parts[-2]) + len(parts[-1])
        has_place = has_place or not found["kept"]
        check_length(length)
    parts.append(body[end:])
    if values and not has_place:
        parts.append(f"\n\n{wrap_untrusted(arguments.strip())}")
    whole = "".join(parts)
    check_length(len(whole))
    return whole


def check_length(length: int) -> None:
    """Raise `LimitExceeded` when a command becomes longer than `MAX_EXPANDED_CHARACTERS`."""
    if length > MAX_EXPANDED_CHARACTERS:
        raise LimitExceeded(
            f"the command becomes longer than {MAX_EXPANDED_CHARACTERS} characters with these arguments; shorten them",
            code=Code.TOO_LARGE,
        )


def _replace_placeholder(found: re.Match[str], values: list[str]) -> str:
    if found["kept"]:
        return found[0][1:]
    chosen = values
    if found["one"]:
        chosen = values[int(found["one"]) - 1 : int(found["one"])]
    elif found["first"]:
        chosen = values[int(found["first"]) - 1 :]
        if found["length"]:
            chosen = chosen[: int(found["length"])]
    return wrap_untrusted(" ".join(chosen)) if chosen else ""
