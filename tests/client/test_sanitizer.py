"""Text that cannot steer a terminal."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.client.plain_mode import PlainWriter
from yarrow.client.terminal_text_sanitizer import sanitize, strip_controls

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


CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Paper:
    """A sink that keeps what is written."""

    def __init__(self, *, is_terminal: bool) -> None:
        self.is_terminal = is_terminal
        self.text = ""

    def write(self, text: str) -> None:
        self.text += text

    async def drain(self) -> None:
        """There is always room."""


@given(TEXTS)
def test_sanitizing_removes_everything_harmful_and_is_idempotent(text: str) -> None:
    clean = sanitize(text)
    assert not HARMFUL.search(clean)
    assert sanitize(clean) == clean


@given(TEXTS.filter(lambda text: not HARMFUL.search(text)))
def test_harmless_text_is_unchanged(text: str) -> None:
    assert sanitize(text) == text


@given(TEXTS)
def test_the_order_of_words_is_preserved(text: str) -> None:
    words = re.findall("[a-zé]", re.sub(r"\x1b\[[0-9;:]*m", "", text))
    left = iter(sanitize(text))
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
def test_replacements_of_control_characters(text: str, shown: str) -> None:
    assert sanitize(text) == shown


@given(TEXTS | st.lists(st.sampled_from(["\r", "\n", "\r\n", "\x1b[31m", "\x1b", "a"])).map("".join))
def test_a_pipe_gets_everything_but_control_characters(text: str) -> None:
    clean = strip_controls(text)
    assert not CONTROLS.search(clean.replace("\r\n", ""))
    assert strip_controls(clean) == clean
    if not CONTROLS.search(text.replace("\r\n", "")):
        assert clean == text


@given(st.lists(TEXTS | st.sampled_from(["\r", "\n", "\r\n", "\x1b", "["]), max_size=8), st.booleans(), st.booleans())
def test_case_rs_m5_a_split_control_sequence_is_removed(pieces: list[str], is_terminal: bool, raw: bool) -> None:
    out, err = Paper(is_terminal=is_terminal), Paper(is_terminal=False)
    page = PlainWriter(out, err, raw=raw)
    for piece in pieces:
        page.write_answer(piece)
    page.end_answer()
    said = "".join(pieces)
    if raw and not is_terminal:
        assert out.text.removesuffix("\n") == said.removesuffix("\n")
        return
    assert not CONTROLS.search(out.text.replace("\r\n", ""))
    if not CONTROLS.search(said.replace("\r\n", "")) and not is_terminal:
        assert out.text.removesuffix("\n") == said.removesuffix("\n")


@pytest.mark.parametrize("text", ["👩\u200d💻", "a\u200cb", "a\u200fb", "x\ufeff", "one\r\ntwo\r\n", "\ttab\n"])
def test_a_pipe_preserves_ordinary_text(text: str) -> None:
    assert strip_controls(text) == text
