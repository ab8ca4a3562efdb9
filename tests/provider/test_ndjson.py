"""Any lines, cut anywhere, come out as the same list."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.errors import Code, ProviderError
from yarrow.provider import stream_framing
from yarrow.provider.stream_framing import NdjsonDecoder

# Tokens that a splitter may trip over: other line separators, escapes, half a character.
TOKENS = ["\u2028", "\u0085", "\x0b", "\x1c", "\\n", '"', "🌍", "{", " ", "a", "\r"]
values = st.lists(st.sampled_from(TOKENS), max_size=5).map("".join)
blanks = st.sampled_from([b"", b"\r", b"  ", b"\t\r"])


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """A stream, and its lines."""
    lines = [json.dumps({"v": value}, ensure_ascii=False).encode() for value in draw(st.lists(values, max_size=6))]
    raw = b""
    for line in lines:
        for blank in draw(st.lists(blanks, max_size=2)):
            raw += blank + b"\n"
        raw += draw(blanks) + line + draw(blanks) + b"\n"
    return raw[:-1] if draw(st.booleans()) else raw, lines


def decode(*chunks: bytes) -> list[bytes]:
    decoder = NdjsonDecoder()
    return [line for chunk in chunks for line in decoder.feed(chunk)] + decoder.end()


@given(streams(), st.data())
def test_chunk_boundaries_do_not_matter(stream: tuple[bytes, list[bytes]], data: st.DataObject) -> None:
    raw, expected = stream
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    assert decode(*(raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True))) == expected
    assert decode(*(raw[at : at + 1] for at in range(len(raw)))) == expected


def test_a_line_is_yielded_as_soon_as_it_ends() -> None:
    decoder = NdjsonDecoder()
    assert decoder.feed(b'{"a":1}') == []
    assert decoder.feed(b'\n{"b"') == [b'{"a":1}']
    assert decoder.feed(b":2}\r\n") == [b'{"b":2}']
    assert decoder.end() == []


@pytest.mark.parametrize("chunks", [[b"x" * 11], [b"x" * 6, b"x" * 6], [b"a\n" + b"x" * 11 + b"\n"]])
def test_a_too_long_line_is_rejected(chunks: list[bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_framing, "MAX_LINE_BYTES", 10)
    assert decode(b"x" * 10 + b"\n", b"y" * 10) == [b"x" * 10, b"y" * 10]
    with pytest.raises(ProviderError) as caught:
        decode(*chunks)
    assert caught.value.code is Code.MALFORMED_RESPONSE
