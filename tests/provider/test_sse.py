"""Any events, written with any line ends and cut anywhere, come out as the same list of data."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.errors import Code, ProviderError
from yarrow.provider import stream_framing
from yarrow.provider.stream_framing import SseDecoder

# Tokens that a splitter may trip over: other line separators, field names inside data, half a BOM, spaces, colons.
SEPARATORS = [b"\x0b", b"\x0c", b"\x1c", b"\xc2\x85", b"\xe2\x80\xa8", b"\xe2\x80\xa9"]
TOKENS = [
    *SEPARATORS,
    b"",
    b" ",
    b"  ",
    b":",
    b"data:",
    b"data: ",
    b"event",
    b"\xef\xbb\xbf",
    b"\xef",
    b"a",
    b'{"t":"x"}',
    b"\x00",
    b"[DONE]",
    b"\xf0\x9f\x8c\x8d",
    b"\xff",
]
NOISE = [
    b": keep-alive",
    b":",
    b"event: ping",
    b"id: 7",
    b"retry:1",
    b"datax: no",
    b"DATA: no",
    b" data: no",
    b"dat",
    b"x",
]

lines = st.lists(st.sampled_from(TOKENS), max_size=5).map(b"".join)
payloads = st.lists(lines, min_size=1, max_size=4).filter(lambda parts: parts != [b""])
ends = st.sampled_from([b"\n", b"\r", b"\r\n"])


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    """A stream and the data of its events; each line has a line end of its own choice."""
    written: list[bytes] = []
    expected = draw(st.lists(payloads, max_size=6))
    for payload in expected:
        for line in payload:
            written += draw(st.lists(st.sampled_from(NOISE), max_size=2))
            # Only one space belongs to the field, so data that begins with a space needs one.
            plain = not line.startswith(b" ") and draw(st.booleans())
            written.append(b"data" if plain and not line else b"data:" + line if plain else b"data: " + line)
        written += [b""] * draw(st.integers(1, 3))
    written += draw(st.lists(st.sampled_from(NOISE), max_size=2))
    raw = draw(st.sampled_from([b"", b"\xef\xbb\xbf"]))
    for line in written:
        end = draw(ends)
        # CR LF would be one end: an empty line after a CR must not be written as LF.
        raw += line + (b"\r" if raw.endswith(b"\r") and not line and end == b"\n" else end)
    return raw, [b"\n".join(payload) for payload in expected]


def decode(*chunks: bytes) -> list[bytes]:
    decoder = SseDecoder()
    return [event for chunk in chunks for event in decoder.feed(chunk)] + decoder.end()


@given(streams(), st.data())
def test_chunk_boundaries_do_not_matter(stream: tuple[bytes, list[bytes]], data: st.DataObject) -> None:
    raw, expected = stream
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    assert decode(raw) == expected
    assert decode(*(raw[a:b] for a, b in pairwise([0, *cuts, len(raw)]))) == expected
    assert decode(*(raw[i : i + 1] for i in range(len(raw)))) == expected


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_an_event_is_yielded_with_its_blank_line(end: bytes) -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: one" + end) == []
    assert decoder.feed(end) == [b"one"]
    assert decoder.feed(b"data: two" + end + end) == [b"two"]
    assert decoder.end() == []


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"data: a\n\ndata: b\n", [b"a", b"b"]),
        (b"data: a\n\ndata: b\r", [b"a", b"b"]),
        (b"data: a\ndata: b\n", [b"a\nb"]),
        (b"data: a\n\ndata: cut", [b"a"]),
        (b"data: a\ndata: cut", [b"a"]),
        (b"data", []),
        (b"", []),
    ],
)
def test_at_the_end_only_complete_lines_count(raw: bytes, expected: list[bytes]) -> None:
    assert decode(raw) == expected


@pytest.mark.parametrize("raw", [b"data:\n\n", b"data: \n\n", b"data\n\n", b"event: x\n\n", b"\n\n\n", b"id: 1\n"])
def test_an_event_without_data_is_ignored(raw: bytes) -> None:
    assert decode(raw) == []


def test_only_the_first_bom_is_dropped() -> None:
    assert decode(b"\xef\xbb\xbfdata: \xef\xbb\xbfa\n\n\xef\xbb\xbfdata: b\n\ndata: c\n\n") == [b"\xef\xbb\xbfa", b"c"]


@pytest.mark.parametrize(
    ("begin", "repeated", "end"),
    [(b"data: ", b"x", b"\n\n"), (b"", b"data: x\n", b"\n"), (b"data: ", b"x", b""), (b":", b"x", b"")],
    ids=["one line", "many lines", "unfinished line", "comment"],
)
@pytest.mark.parametrize("chunk", [64, 1000, 1 << 30])
def test_an_event_is_bounded(
    begin: bytes, repeated: bytes, end: bytes, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_framing, "MAX_EVENT_BYTES", 10_000)
    counted = 2 if b"\n" in repeated else 1  # a line counts as its data and a line end
    fits, too_large = (begin + repeated * (size // counted) + end for size in (9_900, 10_100))
    decode(*(fits[i : i + chunk] for i in range(0, len(fits), chunk)))
    with pytest.raises(ProviderError, match="10000 bytes") as caught:
        decode(*(too_large[i : i + chunk] for i in range(0, len(too_large), chunk)))
    assert (caught.value.code, caught.value.retryable) == (Code.MALFORMED_RESPONSE, False)


@pytest.mark.parametrize("line", [b"data\n", b"data:\n", b"data: x\n"])
def test_the_lines_of_an_event_are_bounded(line: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_framing, "MAX_EVENT_LINES", 100)
    decode(*[line] * 100, b"\n", *[line] * 100, b"\n")
    with pytest.raises(ProviderError, match="more than 100 lines") as caught:
        decode(*[line] * 101)
    assert (caught.value.code, caught.value.retryable) == (Code.MALFORMED_RESPONSE, False)


def test_each_event_of_a_chunk_is_bounded_separately(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_framing, "MAX_EVENT_BYTES", 100)
    assert len(decode(b"data: 123456\n\n" * 1000)) == 1000


@pytest.mark.parametrize(("size", "chunk"), [(15 << 20, 64), (1 << 19, 1)])
def test_a_huge_event_in_tiny_pieces_is_parsed_in_linear_time(size: int, chunk: int) -> None:
    """Scanning again from the start of the event for each piece would take minutes, more than a test is given."""
    raw = b"data: " + b"x" * size + b"\n\n"
    assert decode(*(raw[i : i + chunk] for i in range(0, len(raw), chunk))) == [b"x" * size]
