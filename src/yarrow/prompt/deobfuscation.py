"""What a lenient reader may see in a text: openers of tags behind look-alikes, entities, escapes and unseen marks."""

import re
import unicodedata
from functools import lru_cache

LONG_VIEW_CHARACTERS = 512
"""Of those of a written form that many encodings made long."""
VIEW_CHARACTERS = 64
"""Characters from an opener on that are looked at; what is not clear within them counts as a tag."""

_FORMS = "\u226e\ufe64\uff1c"
_LOOK_ALIKES = "\u2039\u00ab\u3008\u2329\u27e8\u276e\u1438\u02c2\u227a\u300a\u2770\u27ea\u29fc\u226a"
_RARE_LOOK_ALIKES = (
    "\u22d8\u276c\u2991\u2989\u16b2\U0001d236\u22d6\u02f1\u140a\u25c1\u25c0\u25c2\u25c3\u22b2\u22b0\u2abb"
)
_CODES = "&\ufe60\uff06%\ufe6a\uff05\\\\\ufe68\uff3c"
OPENER = f"[<{_FORMS}{_LOOK_ALIKES}{_RARE_LOOK_ALIKES}{_CODES}]"
"""The pattern of a character that is an opener, or with which a written form of one begins: `&lt;`, `%3c`, `\\x3c`."""
LOOK_ALIKES = frozenset(_LOOK_ALIKES + _RARE_LOOK_ALIKES)
"""Openers to an eye, and to no program."""

_TO_OPENER = str.maketrans(dict.fromkeys(LOOK_ALIKES, "<"))
_UNSEEN_LETTERS = "\u115f\u1160\u3164\u17b4\u17b5\u2800"
_PERCENT = r"(?P<bytes>(?:%[0-9a-fA-F]{2})+)"
_ESCAPE = (
    r"\\U(?P<long>[0-9a-fA-F]{8})|[\\%]u+(?P<short>[0-9a-fA-F]{4})|\\x(?P<byte>[0-9a-fA-F]{2})"
    r"|\\[xu]\{(?P<braced>0{0,24}[0-9a-fA-F]{1,8})\}"
    r"|(?P<opener>\\0{0,8}(?:3[cC]|74)|\\o\{0{0,8}74\}|\\N\{(?i:less-than sign)\}|%[cC]0%[bB][cC])"
)
_ENTITY = r"&#?\w{1,40};"


def deobfuscate(text: str, at: int, sight: int = VIEW_CHARACTERS) -> str:
    """Return what a lenient reader sees from `at` on, in at most `sight` characters of the text.

    Look-alikes of `<` are it, entities and escapes are what they stand for, however often they were applied;
    compatibility forms and capitals are plain small letters, marks without width are gone. A character that is
    none of this and not ASCII stays.
    """
    window = text[at : at + sight]
    while (clearer := _simplify(window)) != window:
        window = clearer
    return window


def _simplify(text: str) -> str:
    """Return the text after the first reading that changes it; forms that end in `;` are read before those that do not.

    Each reading shortens the text or makes it plainer, so reading again and again comes to an end.
    """
    if not text.isascii() and (plain := _normalize(text)) != text:
        return plain
    if ("\\" in text or "%" in text) and (unescaped := _unescape(text)) != text:
        return unescaped
    if "&" in text and (decoded := _decode_entities(text)) != text:
        return decoded
    return _strip_controls(text.casefold())


def _normalize(text: str) -> str:
    apart = unicodedata.normalize("NFKD", text.translate(_TO_OPENER)).translate(_TO_OPENER)
    return "".join(" " if character.isspace() else character for character in apart if not _is_invisible(character))


@lru_cache(maxsize=4_096)
def _is_invisible(character: str) -> bool:
    if character.isascii():
        return False
    return character in _UNSEEN_LETTERS or unicodedata.category(character) in {"Mn", "Me", "Mc", "Cf", "Cc", "Co", "Cn"}


def _strip_controls(text: str) -> str:
    return text if text.isprintable() else re.sub(r"[\x00-\x08\x0e-\x1b\x7f]", "", text)


def _unescape(text: str) -> str:
    return re.sub(f"{_ESCAPE}|{_PERCENT}", _decode_character, text)


def _decode_character(found: re.Match[str]) -> str:
    if found["opener"]:
        return "<"
    if found["bytes"]:
        return bytes.fromhex(found["bytes"].replace("%", "")).decode("utf-8", "replace")
    number = int(found["long"] or found["short"] or found["byte"] or found["braced"], 16)
    return chr(number) if number < 0x110000 else ""


def _decode_entities(text: str) -> str:
    # Here, since its table of names is large and few texts hold an `&`.
    from html import unescape

    ended = re.sub(_ENTITY, lambda found: unescape(found.group()), text)
    return ended if ended != text else unescape(text)
