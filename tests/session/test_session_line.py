"""Lines: sealed, read back, and what is found when they are damaged (law 3, cases S-03 and S-05's files)."""

import io
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_samples import NOW, TOKENS, header, message, messages, nasty_text, patient

from yarrow.message import Message, Text
from yarrow.session import line_codec as line_module
from yarrow.session import record
from yarrow.session.line_codec import BadLine, SessionLine, UnknownRecord, encode_line, read_lines, seal
from yarrow.session.record import Change, Compaction, PermissionAnswered, PermissionAsked, Queued, Record, Undelivered

MESSAGE = b'{"kind":"message","id":"m","role":"user","content":[{"type":"text","text":"%s"}],"timestamp":"t"}'


def read(data: bytes) -> list[SessionLine]:
    return list(read_lines(io.BytesIO(data)))


def only(data: bytes) -> SessionLine:
    (line,) = read(data)
    return line


def text_of(line: SessionLine) -> str:
    assert isinstance(line.value, Message)
    return line.value.text


def clean(value: object) -> object:
    """The value with every lone surrogate replaced, by a way of its own."""
    if isinstance(value, str):
        joined = value.encode("utf-16-le", "surrogatepass")
        return joined.decode("utf-16-le", "replace")
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    if isinstance(value, list):
        return [clean(item) for item in value]
    return value


def test_a_checksum_is_the_crc_of_the_preceding_bytes() -> None:
    assert seal(b'{"kind":"x"}') == b'{"kind":"x","crc32":"%08x"}\n' % zlib.crc32(b'{"kind":"x"')


@patient
@given(st.lists(messages, max_size=4))
def test_messages_round_trip(written: list[Message]) -> None:
    data = b"".join(map(encode_line, written))
    assert data.count(b"\n") == len(written)
    lines = read(data)
    assert [line.number for line in lines] == list(range(1, len(written) + 1))
    for line, original in zip(lines, written, strict=True):
        assert line.sealed
        assert isinstance(line.value, Message)
        assert json.loads(record.encode(line.value)) == clean(json.loads(json.dumps(_plain(original))))
        assert data[line.offset :][: len(line.raw)] == line.raw


def _plain(value: Message) -> object:
    import msgspec

    return msgspec.to_builtins(value)


@pytest.mark.parametrize(
    "value",
    [
        header(),
        Change(timestamp=NOW, name="n", tools=None),
        Compaction(
            timestamp=NOW, summary="s", first_kept_message_id="m", tokens_before=2, tokens_after=1, reason="auto"
        ),
        Queued(id="q", timestamp=NOW, mode="steer", content=(Text("t"),)),
        Undelivered(id="q", timestamp=NOW),
        PermissionAsked(id="p", timestamp=NOW, tool_call_id="c", tool="bash", reason="r"),
        PermissionAnswered(id="p", timestamp=NOW, answer="no", by="person", text="use make"),
        message("x" * 1_000_000),
        message("".join(token for token in TOKENS if not "\ud800" <= token[0] <= "\udfff")),
    ],
)
def test_every_kind_of_record_round_trips(value: Record) -> None:
    found = only(encode_line(value))
    assert (found.value, found.sealed) == (value, True)


def test_case_S_03_separators_and_control_characters_raw_in_a_string() -> None:
    text = "a\u2028b\u2029c\u0085d\x0be\x0cf\x1cg"
    raw = MESSAGE % text.encode()
    assert text_of(only(raw + b"\n")) == text
    assert text_of(only(encode_line(message(text)))) == text


@pytest.mark.parametrize(
    ("escape", "text"),
    [
        (rb"\ud800", "\ufffd"),
        (rb"a\udc00b", "a\ufffdb"),
        (rb"\ude00\ud83d", "\ufffd\ufffd"),
        (rb"\ud83d\ude00", "😀"),
        (rb"\\ud800", r"\ud800"),
        (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
        (b"caf\xe9", "caf\ufffd"),
    ],
)
def test_invalid_unicode_is_replaced(escape: bytes, text: str) -> None:
    for data in (MESSAGE % escape + b"\n", seal(MESSAGE % escape)):
        found = only(data)
        assert text_of(found) == text
        assert found.raw == data[:-1]


def test_a_line_without_a_checksum_is_accepted_and_marked() -> None:
    found = only(MESSAGE % b"x" + b"\n")
    assert (text_of(found), found.sealed) == ("x", False)


def test_line_ends_blank_lines_and_a_byte_order_mark() -> None:
    one, two = encode_line(message("1"))[:-1], encode_line(message("2"))[:-1]
    data = b"\xef\xbb\xbf" + one + b"\r\n\n \t\n" + two
    lines = read(data)
    assert [text_of(line) for line in lines] == ["1", "2"]
    assert [line.number for line in lines] == [1, 4]
    assert [data[line.offset :][: len(line.raw)] for line in lines] == [one, two] == [line.raw for line in lines]
    assert all(line.sealed for line in lines)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b'{"kind":"future","x":[1,{}]}', "future"),
        (b'{"x":{"kind":"message"},"kind":"future"}', "future"),
        (MESSAGE.replace(b'"user"', b'"narrator"') % b"x", "message"),
        (MESSAGE.replace(b'"text",', b'"video",') % b"x", "message"),
        (b'{"kind":"message","id":"m"}', "message"),
        (b'{"kind":"queued","id":"q","timestamp":"t","mode":"later","content":[]}', "queued"),
    ],
)
def test_records_of_a_later_version_are_preserved(data: bytes, kind: str) -> None:
    for block in (data + b"\n", seal(data)):
        found = only(block)
        assert found.value == UnknownRecord(kind)
        assert found.raw == block[:-1]


def test_unknown_fields_are_ignored_in_the_value_and_kept_in_the_raw_line() -> None:
    data = MESSAGE.replace(b'"id"', b'"mood":{"a":[1]},"id"') % b"x"
    found = only(seal(data))
    assert text_of(found) == "x"
    assert b'"mood":{"a":[1]}' in found.raw


def test_an_unknown_optional_value_loses_only_its_field() -> None:
    found = only(seal(MESSAGE.replace(b'"id"', b'"stopReason":"bored","model":"m1","id"') % b"x"))
    assert isinstance(found.value, Message)
    assert (found.value.text, found.value.stop_reason, found.value.model) == ("x", None, "m1")
    later = b'{"kind":"header","id":"s","cwd":"/t","createdAt":"t","updatedAt":"t","name":"n","thinking":"ultra"}'
    assert only(later).value == record.decode(later.replace(b"ultra", b"off"))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b'{"kind":"message","role":"assi', "is truncated"),
        (b'{"kind":"future","x', "is truncated"),
        (b'{"kind":"message","role":"assi\n', "is not complete JSON"),
        (b"\0" * 700 + b"\n", "contains NUL bytes"),
        (b"\0" * 700, "contains NUL bytes"),
        (MESSAGE % b"a\0b", "contains NUL bytes"),
        (encode_line(message("1"))[:50] + encode_line(message("2"))[:60] + b"\n", "contains several damaged records"),
        (encode_line(message("1")).replace(b'"user"', b'"tool"'), "does not match its checksum"),
        (b"hello\n", "is not complete JSON"),
        (b'["kind"]\n', "is not a JSON object"),
        (b'{"id":"m"}\n', "has no kind"),
        (b'{"kind":7}\n', "has no kind"),
        (b"[" * 200_000 + b"\n", "is nested too deeply"),
        (b'{"kind":"message","x":' + b"[" * 200_000 + b"\n", "is nested too deeply"),
    ],
)
def test_bad_lines(data: bytes, reason: str) -> None:
    good = encode_line(message("good"))
    before, bad, *after = read(good + data + (good if data.endswith(b"\n") else b""))
    assert [text_of(line) for line in (before, *after)] == ["good"] * (1 + len(after))
    assert isinstance(bad.value, BadLine)
    assert reason in bad.value.reason
    assert (bad.number, bad.sealed) == (2, False)


UNSEALED = MESSAGE % b"unsealed"
WHOLE = [encode_line(message("one"))[:-1], encode_line(message('{"kind":"message"} \0 é'))[:-1], UNSEALED]


def kept(data: bytes) -> list[bytes]:
    return [line.raw.strip() for line in read(data) if not isinstance(line.value, BadLine)]


@pytest.mark.parametrize("first", WHOLE)
@pytest.mark.parametrize("second", WHOLE)
@pytest.mark.parametrize("gap", [b"", b"\0", b"\0" * 700, b" ", b"\r"])
def test_a_torn_record_costs_no_record_that_follows_on_its_line(first: bytes, second: bytes, gap: bytes) -> None:
    """Whatever byte the first record ends at; the lines around it are read as ever."""
    around = encode_line(message("around"))
    for cut in range(len(first) + 1):
        torn = first[:cut]
        data = around + torn + gap + second + b"\n" + around
        expected = [second] if cut < len(first) else [first, second]
        assert kept(data) == [around[:-1], *expected, around[:-1]], torn
        damage = [line.value for line in read(data) if isinstance(line.value, BadLine)]
        lost = (torn if cut < len(first) else b"") + gap
        assert len(damage) == bool(lost.strip(b" \r")), torn
        assert all(isinstance(one, BadLine) and one.partly for one in damage)
        for line in read(data):
            assert data[line.offset :][: len(line.raw)] == line.raw


@pytest.mark.parametrize("second", WHOLE)
def test_a_record_before_a_torn_one_is_kept(second: bytes) -> None:
    first = WHOLE[0]
    for cut in range(len(second)):
        assert kept(first + second[:cut] + b"\n") == [first]
        assert kept(first + b"\0" * 9 + second[:cut]) == [first]


def test_a_record_whose_checksum_is_wrong_is_never_recovered() -> None:
    changed = WHOLE[0].replace(b'"one"', b'"two"')
    for data in (b"\0" + changed, changed + WHOLE[1], WHOLE[1] + changed, WHOLE[1][:40] + changed):
        assert changed not in kept(data)


def test_a_line_of_many_starts_and_checksums_is_read_in_linear_time() -> None:
    for piece in (b'{"kind":"', b',"crc32":"00000000"}', b'{"kind":"x","crc32":"00000000"}'):
        assert kept(piece * (4_000_000 // len(piece)) + WHOLE[0]) == [WHOLE[0]]


@pytest.mark.parametrize("strange", [b"narrator", b"user"])
def test_no_depth_of_nesting_breaks_the_reader(strange: bytes) -> None:
    """Just below the limit of one step of the decoding, another step may be over it."""
    for depth in range(1, 1200, 7):
        line = MESSAGE.replace(b'"user"', b'"%b"' % strange) % b"x"
        nested = line.replace(b'"id"', b'"deep":' + b"[" * depth + b"]" * depth + b',"id"')
        found = only(nested)
        assert isinstance(found.value, Message | UnknownRecord | BadLine)
        assert depth > 300 or not isinstance(found.value, BadLine)


def test_every_flipped_bit_of_a_line_is_detected() -> None:
    whole = [message("one"), message('say "two", 2\\', message_id="m2"), message("three")]
    first, line, last = map(encode_line, whole)
    for bit in range(len(line) * 8):
        flipped = bytearray(line)
        flipped[bit // 8] ^= 1 << bit % 8
        found = read(first + bytes(flipped) + last)
        good = [entry.value for entry in found if not isinstance(entry.value, BadLine)]
        assert all(value in whole for value in good), bit  # nothing changed is believed
        assert not all(entry.sealed for entry in found), bit


def test_a_line_over_the_limit_is_skipped_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_module, "MAX_LINE_BYTES", 1000)
    long, last = encode_line(message("x" * 5000)), encode_line(message("last"))
    found = read(encode_line(message("first")) + long + last)
    assert [type(entry.value) for entry in found] == [Message, BadLine, Message]
    assert found[2].offset == len(encode_line(message("first"))) + len(long)
    assert [type(entry.value) for entry in read(long[:-1])] == [BadLine]
    exact = encode_line(message("x" * (1000 - len(encode_line(message(""))))))
    assert len(exact) == 1000
    assert isinstance(only(exact).value, Message)


@patient
@given(st.lists(nasty_text.map(lambda text: text.encode(errors="replace")), max_size=5), st.binary(max_size=50))
def test_reading_never_fails(pieces: list[bytes], tail: bytes) -> None:
    data = b"\n".join(pieces) + tail
    assert all(data[line.offset :][: len(line.raw)] == line.raw for line in read(data))
    assert [line.number for line in read(data)] == sorted({line.number for line in read(data)})
