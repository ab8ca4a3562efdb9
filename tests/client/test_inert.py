"""Text that cannot steer a terminal."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.client.inert import inert

_PLAIN = ["a", "é", "\n", "\t", "[", "31m", "]52;"]
_STEERING = [
    "\r",
    "\x1b",
    "\x07",
    "\x9b",
    "\u061c",
    "\u200b",
    "\u200d",
    "\u2028",
    "\u202e",
    "\u2066",
    "\ufeff",
    "\ufff9",
]
_PIECES = st.sampled_from([*_PLAIN, *_STEERING, "\U000e0041"]) | st.characters()
TEXTS = st.lists(_PIECES, max_size=12).map("".join)
HARMFUL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


@given(TEXTS)
def test_nothing_harmful_is_left_and_nothing_is_done_twice(text: str) -> None:
    clean = inert(text)
    assert not HARMFUL.search(clean)
    assert inert(clean) == clean


@given(TEXTS.filter(lambda text: not HARMFUL.search(text)))
def test_what_is_harmless_stays_as_it_is(text: str) -> None:
    assert inert(text) == text


@given(TEXTS)
def test_the_words_are_kept_in_order(text: str) -> None:
    words = re.findall("[a-zé]", re.sub(r"\x1b\[[0-9;:]*m", "", text))
    left = iter(inert(text))
    assert all(word in left for word in words)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]52;c;cm0gLXJmIH4=\x07", "␛]52;c;cm0gLXJmIH4=␇"),
        ("\x1b[2J", "␛[2J"),
        ("\x1b\x1b[31m[2J", "␛[2J"),
        ("one\r\ntwo\rthree", "one\ntwo␍three"),
        ("\x00\x7f", "␀␡"),
        ("\x9b2J", "<U+009B>2J"),
        ("a\u202eb", "a<U+202E>b"),
        ("rm\u200b -r", "rm<U+200B> -r"),
        ("\U000e0041", "<U+E0041>"),
        ("👩\u200d👧", "👩👧"),
    ],
)
def test_what_is_shown_instead(text: str, shown: str) -> None:
    assert inert(text) == shown
