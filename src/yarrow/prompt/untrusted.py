"""Fences around untrusted text, and tags in it that are neutralized."""

import re
import unicodedata
from functools import cache, lru_cache

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


OPENING_TAG = "<untrusted_input>"
CLOSING_TAG = "</untrusted_input>"
NEUTRAL_OPENER = "("
"""What an opener becomes: a text still reads as it did, and no tag begins with it."""
MAX_TAG_CHARACTERS = 1_000
"""Of a tag of a value, up to its `>`; a longer one is taken for one that is not closed."""

_GAP = r"(?:[\s/\\_|-]|\\[abfnrtv0])*"
"""What a lenient reader passes over within a name: also escapes, as `\\n` is a line end to some."""
_CUT_CODE = r"[&%\\][#a-z0-9{]*\Z"
"""A written form whose end is not seen."""
_NAMESPACE = r"(?:[a-z][a-z0-9]{0,15}:)?"
"""What may stand before a name, as in `<x:name>`."""
_CLEAR_CHARACTERS = VIEW_CHARACTERS * 3 // 4
"""Characters that are seen of a text in which little is a written form of something else."""
_FEW_CHARACTERS = 4
"""Characters that much was read to; percent signs of another script make at least five of `VIEW_CHARACTERS`."""
_KANA = "\u3041-\u3096\u30a1-\u30bc\u30be-\u30cd\u30cf-\u30fa"
_HAN_AND_HANGUL = "\u4e00-\u4e35\u4e37-\u4e3e\u4e40-\u51f4\u51f6-\u9fff\u1100-\u11ff"
"""Letters that are no look-alikes of ASCII; the few that look like a slash, a backslash or a U are left out."""
_RAW_TEXT = r"<(?:script|style|textarea|title|xmp|iframe|noembed|noframes|noscript|plaintext)(?![a-z0-9:-])"
"""After these tags an HTML reader looks for no other tag, ours included."""
_QUOTE = r"[\"'\uff02\uff07\\]|&(?:#|quot|apos|amp)|%2"
"""A quote or the beginning of a written form of one."""
_SPACE = r"[ \t\n\r\f]"
"""What HTML takes for white space; of other spaces two readers can think differently."""
_VALUE = r"\"[^\"<>&%\\]*+\"|'[^'<>&%\\]*+'|[^\s\"'=<>`&%\\]++"
_WELL_FORMED = rf"</?[a-z][a-z0-9:.-]*+(?:{_SPACE}++[a-z@:_][a-z0-9:.@_-]*+(?:=(?:{_VALUE}))?)*+{_SPACE}*+/?>"
"""A tag whose quotes every reader takes for the same pairs."""


@cache
def _compile_tag(name: str) -> re.Pattern[str]:
    """Return the pattern of what a lenient reader may take for the begin of a tag whose name starts with `name`.

    It matches what `deobfuscate` returns: the whole name, or so much of it that the rest might follow elsewhere; and
    what is no plain tag: a declaration, or a letter that is not ASCII.
    """
    rest = ""
    for letter in reversed(name[1:]):
        rest = rf"{_GAP}(?:\Z|[^\x00-\x7f]|{_CUT_CODE}|{letter}{rest})"
    return re.compile(
        rf"<{_GAP}(?:\Z|[!?]|[^\x00-\x7f{_KANA}{_HAN_AND_HANGUL}]|{_CUT_CODE}|{_NAMESPACE}{_GAP}{name[0]}{rest})"
    )


def wrap_untrusted(value: str) -> str:
    """Return the value between one opening and one closing tag; the result can always be encoded as UTF-8."""
    text = neutralize(value)
    # A backslash before our closing tag would make plain text of it to some readers.
    apart = " " if text.endswith("\\") else ""
    return f"{OPENING_TAG}{text}{apart}{CLOSING_TAG}"


def neutralize(value: str) -> str:
    """Return the value with `NEUTRAL_OPENER` for each opener that could begin our tag, or hide ours behind it.

    The result is as long as the value. A NUL and half of a surrogate pair become the replacement character.
    """
    text = re.sub("[\x00\ud800-\udfff]", "\ufffd", value)
    return re.sub(
        OPENER,
        lambda lead: NEUTRAL_OPENER if _is_threat(text, lead.start(), "untrusted", hides=True) else lead[0],
        text,
    )


def neutralize_tag(text: str, name: str) -> str:
    """Return a text with `NEUTRAL_OPENER` for each opener that could begin a tag of this name; all else stays.

    The name is given in small letters alone: dashes and underscores in it are passed over.
    """
    return re.sub(
        OPENER, lambda lead: NEUTRAL_OPENER if _is_threat(text, lead.start(), name, hides=False) else lead[0], text
    )


def _is_threat(text: str, at: int, name: str, *, hides: bool) -> bool:
    view = deobfuscate(text, at)
    if view[:1] in ("&", "%", "\\") and len(view) < _CLEAR_CHARACTERS < len(text) - at:
        view = deobfuscate(text, at, LONG_VIEW_CHARACTERS)
    if not view.startswith("<"):
        # A written form may be longer than we look: `&amp;amp;amp;...lt;`, `&#0000...60;`. Then little is seen of it.
        if len(text) <= at + VIEW_CHARACTERS:
            return False
        unclear = view[:1] in ("&", "%", "\\") and len(view) < _CLEAR_CHARACTERS
        return unclear or len(view) <= _FEW_CHARACTERS or bool(re.fullmatch(_CUT_CODE, view))
    return bool(_compile_tag(name).match(view)) or (hides and _hides(view, text, at=at))


def _hides(view: str, text: str, *, at: int) -> bool:
    """Whether an HTML reader that begins a tag here could pass over our closing tag."""
    if text[at] in LOOK_ALIKES or not re.match(r"<[a-z/]", view):
        return False
    if re.match(_RAW_TEXT, view):
        return True
    if re.match(_WELL_FORMED, text[at : at + MAX_TAG_CHARACTERS], re.IGNORECASE):
        return False
    end = text.find(">", at, at + MAX_TAG_CHARACTERS)
    # Without quotes every reader ends the tag at its first `>`.
    return end < 0 or bool(re.search(_QUOTE, text[at + 1 : end], re.IGNORECASE))
