"""Split secrets: the redacted stream equals that of the whole text, and little is buffered."""

from typing import get_args

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from yarrow.config.settings import CompactionSettings
from yarrow.message import Block, Usage
from yarrow.redaction.redactor import RECORD_FIELDS, Redactor
from yarrow.redaction.stream import RedactingStream
from yarrow.session.record import Record

KEYS = ("sk-abcabcabd", "abcabca", "sk-abc\nsecond-line-of-it", "a/b c+d%e")
TOKENS = (
    *KEYS,
    "sk-",
    "s",
    "sk-abcabcab",
    "abc",
    "abcabc",
    "d",
    "\n",
    " ",
    "x",
    "second-line-of-it",
    "a%2Fb",
    "\\n",
    "é",
)


def told(pieces: list[str], keys: tuple[str, ...] = KEYS) -> str:
    stream = RedactingStream(Redactor(keys))
    return "".join([*map(stream.feed, pieces), stream.flush()])


@given(st.lists(st.sampled_from(TOKENS)).map("".join), st.data())
def test_any_chunks_yield_the_redacted_text(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert told(pieces) == Redactor(KEYS).redact_text(text)
    assert told(list(text)) == Redactor(KEYS).redact_text(text)


@example(text="sk-abcabcabd")
@example(text="xx sk-abcabcabdabcabca")
@given(text=st.lists(st.sampled_from(TOKENS)).map("".join))
def test_only_a_possible_start_of_a_secret_is_buffered(text: str) -> None:
    redactor = Redactor(KEYS)
    stream = RedactingStream(redactor)
    given_out = ""
    for at, letter in enumerate(text):
        given_out += stream.feed(letter)
        so_far = text[: at + 1]
        held = redactor.redact_text(so_far)[len(given_out) :]
        assert redactor.redact_text(so_far).startswith(given_out) or any(
            spelling.startswith(so_far[place:]) for spelling in redactor.spellings for place in range(len(so_far))
        )
        assert len(held) < max(map(len, redactor.spellings))


@pytest.mark.parametrize("text", ["nothing at all", "a word. ", "sk", ""])
def test_text_without_secrets_is_unchanged(text: str) -> None:
    stream = RedactingStream(Redactor(()))
    assert (stream.feed(text), stream.flush()) == (text, "")


def test_every_field_of_session_files_keeps_its_name() -> None:
    known = (*get_args(Record), *get_args(Block), Usage, CompactionSettings)
    assert {field.encode_name for one in known for field in msgspec.structs.fields(one)} <= RECORD_FIELDS
