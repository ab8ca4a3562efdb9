"""Fences around untrusted text, and neutralization of tags in it."""

import re
import unicodedata
from functools import cache, lru_cache

LONG_VIEW_CHARACTERS = 512
"""Characters inspected of an encoded form that is long because of repeated encoding."""
VIEW_CHARACTERS = 64
"""Characters inspected from an opener on; anything still ambiguous within them counts as a tag."""

_FORMS = "\u226e\ufe64\uff1c"
_LOOK_ALIKES = "\u2039\u00ab\u3008\u2329\u27e8\u276e\u1438\u02c2\u227a\u300a\u2770\u27ea\u29fc\u226a"
_RARE_LOOK_ALIKES = (
    "\u22d8\u276c\u2991\u2989\u16b2\U0001d236\u22d6\u02f1\u140a\u25c1\u25c0\u25c2\u25c3\u22b2\u22b0\u2abb"
)
_CODES = "&\ufe60\uff06%\ufe6a\uff05\\\\\ufe68\uff3c"
OPENER = f"[<{_FORMS}{_LOOK_ALIKES}{_RARE_LOOK_ALIKES}{_CODES}]"
"""Pattern of a character that is an opener, or that starts an encoded one: `&lt;`, `%3c`, `\\x3c`."""
LOOK_ALIKES = frozenset(_LOOK_ALIKES + _RARE_LOOK_ALIKES)
"""Characters that look like an opener to humans but not to programs."""

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
    """Return what a lenient reader sees in `sight` characters of the text from `at` on.

    Look-alikes of `<` become `<`; entities and escapes are decoded, even if nested; compatibility forms and capitals
    become plain lower-case letters, and zero-width marks are removed. Other non-ASCII characters are kept.
    """
    window = text[at : at + sight]
    while (clearer := _simplify(window)) != window:
        window = clearer
    return window


def _simplify(text: str) -> str:
    """Return the text after the first decoding step that changes it; entities ending in `;` are decoded first.

    Each step shortens or simplifies the text, so repetition terminates.
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
    # Imported here because its table of names is large and few texts contain an `&`.
    from html import unescape

    ended = re.sub(_ENTITY, lambda found: unescape(found.group()), text)
    return ended if ended != text else unescape(text)


OPENING_TAG = "<untrusted_input>"
CLOSING_TAG = "</untrusted_input>"
NEUTRAL_OPENER = "("
"""Replacement for an opener: the text stays readable, and no tag starts with it."""
MAX_TAG_CHARACTERS = 1_000
"""Maximum characters of a tag in a value up to its `>`; a longer one counts as unclosed."""

_GAP = r"(?:[\s/\\_|-]|\\[abfnrtv0])*"
"""Characters that a lenient reader skips within a name; includes escapes, since some read `\\n` as a line break."""
_CUT_CODE = r"[&%\\][#a-z0-9{]*\Z"
"""Encoded form that is cut off."""
_NAMESPACE = r"(?:[a-z][a-z0-9]{0,15}:)?"
"""Optional prefix of a name, as in `<x:name>`."""
_CLEAR_CHARACTERS = VIEW_CHARACTERS * 3 // 4
"""Minimum decoded characters of a text that contains few encoded forms."""
_FEW_CHARACTERS = 4
"""Maximum decoded characters of a mostly encoded text; percent-encoded text of other scripts has five or more."""
_KANA = "\u3041-\u3096\u30a1-\u30bc\u30be-\u30cd\u30cf-\u30fa"
_HAN_AND_HANGUL = "\u4e00-\u4e35\u4e37-\u4e3e\u4e40-\u51f4\u51f6-\u9fff\u1100-\u11ff"
"""Letters that do not resemble ASCII; excludes the few that look like a slash, a backslash or a U."""
_RAW_TEXT = r"<(?:script|style|textarea|title|xmp|iframe|noembed|noframes|noscript|plaintext)(?![a-z0-9:-])"
"""Tags after which an HTML parser recognizes no other tag, including ours."""
_QUOTE = r"[\"'\uff02\uff07\\]|&(?:#|quot|apos|amp)|%2"
"""A quote, or the start of an encoded one."""
_SPACE = r"[ \t\n\r\f]"
"""White space in HTML; readers may disagree on other spaces."""
_VALUE = r"\"[^\"<>&%\\]*+\"|'[^'<>&%\\]*+'|[^\s\"'=<>`&%\\]++"
_WELL_FORMED = rf"</?[a-z][a-z0-9:.-]*+(?:{_SPACE}++[a-z@:_][a-z0-9:.@_-]*+(?:=(?:{_VALUE}))?)*+{_SPACE}*+/?>"
"""Tag whose quotes every reader pairs in the same way."""


@cache
def _compile_tag(name: str) -> re.Pattern[str]:
    """Return the pattern of what a lenient reader may take for the start of a tag whose name starts with `name`.

    Matches output of `deobfuscate`: the complete name, or a prefix of it whose rest may follow elsewhere; also anything
    that is not a plain tag, such as a declaration or a non-ASCII letter.
    """
    rest = ""
    for letter in reversed(name[1:]):
        rest = rf"{_GAP}(?:\Z|[^\x00-\x7f]|{_CUT_CODE}|{letter}{rest})"
    return re.compile(
        rf"<{_GAP}(?:\Z|[!?]|[^\x00-\x7f{_KANA}{_HAN_AND_HANGUL}]|{_CUT_CODE}|{_NAMESPACE}{_GAP}{name[0]}{rest})"
    )


def wrap_untrusted(value: str) -> str:
    """Return the value between exactly one opening and one closing tag; the result is always encodable as UTF-8."""
    text = neutralize(value)
    # A backslash before our closing tag would make some readers treat it as plain text.
    apart = " " if text.endswith("\\") else ""
    return f"{OPENING_TAG}{text}{apart}{CLOSING_TAG}"


def neutralize(value: str) -> str:
    """Return the value with `NEUTRAL_OPENER` for each opener that could start our tag or hide our closing tag.

    The result is as long as the value. NUL and unpaired surrogates become the replacement character.
    """
    text = re.sub("[\x00\ud800-\udfff]", "\ufffd", value)
    return re.sub(
        OPENER,
        lambda lead: NEUTRAL_OPENER if _is_threat(text, lead.start(), "untrusted", hides=True) else lead[0],
        text,
    )


def neutralize_tag(text: str, name: str) -> str:
    """Return a text with `NEUTRAL_OPENER` for each opener that could start a tag of this name; the rest is unchanged.

    The name must contain only lower-case letters; dashes and underscores in the text are ignored.
    """
    return re.sub(
        OPENER, lambda lead: NEUTRAL_OPENER if _is_threat(text, lead.start(), name, hides=False) else lead[0], text
    )


def _is_threat(text: str, at: int, name: str, *, hides: bool) -> bool:
    view = deobfuscate(text, at)
    if view[:1] in ("&", "%", "\\") and len(view) < _CLEAR_CHARACTERS < len(text) - at:
        view = deobfuscate(text, at, LONG_VIEW_CHARACTERS)
    if not view.startswith("<"):
        # An encoded form may be longer than the inspected part, such as `&amp;amp;amp;...lt;` or `&#0000...60;`; few
        # characters are decoded then.
        if len(text) <= at + VIEW_CHARACTERS:
            return False
        unclear = view[:1] in ("&", "%", "\\") and len(view) < _CLEAR_CHARACTERS
        return unclear or len(view) <= _FEW_CHARACTERS or bool(re.fullmatch(_CUT_CODE, view))
    return bool(_compile_tag(name).match(view)) or (hides and _hides(view, text, at=at))


def _hides(view: str, text: str, *, at: int) -> bool:
    """Return True if an HTML parser that starts a tag here could skip our closing tag."""
    if text[at] in LOOK_ALIKES or not re.match(r"<[a-z/]", view):
        return False
    if re.match(_RAW_TEXT, view):
        return True
    if re.match(_WELL_FORMED, text[at : at + MAX_TAG_CHARACTERS], re.IGNORECASE):
        return False
    end = text.find(">", at, at + MAX_TAG_CHARACTERS)
    # Without quotes, every reader ends the tag at its first `>`.
    return end < 0 or bool(re.search(_QUOTE, text[at + 1 : end], re.IGNORECASE))
