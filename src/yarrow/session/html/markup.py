"""Type-safe construction of HTML from untrusted text."""

import html
import re
from collections.abc import Iterable
from typing import NewType

Html = NewType("Html", str)
"""Text that is already HTML; a plain `str` becomes HTML only through `escape`."""

_TERMINAL_COLORS = r"\x1b\[[0-9;:]*m"
_INVISIBLE = "\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff"
"""Control characters, bidirectional overrides and unpaired surrogates."""
_UNWANTED = re.compile(f"{_TERMINAL_COLORS}|\\r\\n|[{_INVISIBLE}]")
_MAX_SHORT_CHARACTERS = 200


def reveal_controls(plain: str) -> str:
    """Return text with everything visible: terminal colours are removed, control characters become symbols."""
    return _UNWANTED.sub(_reveal, plain)


def escape(plain: str) -> Html:
    """Return text as HTML."""
    return Html(html.escape(reveal_controls(plain)))


def join_html(parts: Iterable[Html]) -> Html:
    """Return the concatenation of HTML fragments."""
    return Html("".join(parts))


def element(tag: str, *content: Html, **attributes: str | bool) -> Html:
    """Return an element; `class_` is the attribute class, `aria_label` is aria-label, and False omits an attribute."""
    return Html(f"<{tag}{_attributes(attributes)}>{join_html(content)}</{tag}>")


def void_element(tag: str, **attributes: str | bool) -> Html:
    """Return an element without content, such as img; attributes as for `element`."""
    return Html(f"<{tag}{_attributes(attributes)}>")


def details_element(summary: Html, *content: Html, class_: str, is_open: bool = False) -> Html:
    """Return a collapsible element that needs no script."""
    return element("details", element("summary", summary), *content, class_=class_, open=is_open)


def make_label(name: str, detail: str) -> Html:
    """Return the summary of a collapsed element: its name and a detail."""
    return join_html((element("span", escape(name)), element("span", escape(detail), class_="size")))


def format_size(plain: str) -> str:
    """Return the length of a text in words."""
    lines = plain.count("\n") + (not plain.endswith("\n") if plain else 0)
    return f"{_count(lines, 'line')}, {_count(len(plain), 'character')}"


def shorten(plain: str) -> str:
    """Return the start of a text on one line."""
    start = " ".join(plain[: 4 * _MAX_SHORT_CHARACTERS].split())
    return (
        start
        if len(start) <= _MAX_SHORT_CHARACTERS and len(plain) <= 4 * _MAX_SHORT_CHARACTERS
        else start[:_MAX_SHORT_CHARACTERS] + "…"
    )


def time_element(timestamp: str) -> Html:
    """Return the time of a record as HTML; an invalid timestamp is shown unchanged."""
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d)[Tt](\d\d:\d\d):\d\d[\d.]*[Zz]", timestamp)
    if found is None:
        return element("span", escape(shorten(timestamp)), class_="time")
    return element("time", escape(f"{found[1]} {found[2]} UTC"), datetime=timestamp, title=timestamp)


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _attributes(attributes: dict[str, str | bool]) -> str:
    return "".join(_attribute(name.rstrip("_").replace("_", "-"), value) for name, value in attributes.items())


def _attribute(name: str, value: str | bool) -> str:  # noqa: FBT001 (an attribute is a text or a switch)
    if isinstance(value, bool):
        return f" {name}" if value else ""
    return f' {name}="{escape(value)}"'


def _reveal(found: re.Match[str]) -> str:
    part = found.group()
    if len(part) > 1:
        return "\n" if part == "\r\n" else ""
    if part < " ":
        # The symbols for control characters have the same order.
        return chr(0x2400 + ord(part))
    return "\u2421" if part == "\x7f" else f"<U+{ord(part):04X}>"
