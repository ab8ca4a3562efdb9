"""Loading a file: good lines are salvaged, bad ones told, and nothing is rewritten (cases S-01, S-08, S-09)."""

import tracemalloc
from pathlib import Path

import pytest
from session_samples import NOW, header, message, moment, texts, write_session

from yarrow.errors import Code, NotFound, StorageError
from yarrow.message import Message
from yarrow.session.line_codec import UnknownRecord, encode_line
from yarrow.session.record import Change, Compaction, Header
from yarrow.session.session_file_reader import MAX_DESCRIBED_PROBLEMS, find_last_name, load_session

COMPACTION = Compaction(
    timestamp=NOW, summary="s", first_kept_message_id="", tokens_before=9, tokens_after=1, reason="auto"
)


def test_a_complete_session(tmp_path: Path) -> None:
    written = [message("one"), Change(timestamp=NOW, name="n"), message("two"), COMPACTION]
    path = write_session(tmp_path / "s1.jsonl", header(), *written)
    loaded = load_session(path)
    assert (loaded.path, loaded.header) == (path, header())
    assert [stored.value for stored in loaded.records] == written
    assert loaded.report.warnings() == ()
    assert loaded.size == path.stat().st_size


def test_case_S_01_300_good_lines_and_a_torn_one(tmp_path: Path) -> None:
    written = [header(), *(message(str(number)) for number in range(299))]
    path = write_session(tmp_path / "s1.jsonl", *written, tail=b'{"kind":"message","role":"assi')
    before = path.read_bytes()
    loaded = load_session(path)
    assert [stored.value for stored in loaded.records] == written[1:]
    assert loaded.report.warnings() == ("Line 301 of the session is truncated and was skipped.",)
    assert path.read_bytes() == before


def test_case_S_08_an_unknown_parent(tmp_path: Path) -> None:
    path = write_session(tmp_path / "s1.jsonl", header(parent_id="nowhere"), message("one"), message("two"))
    assert load_session(path).header.parent_id == "nowhere"
    assert texts(path) == ["one", "two"]


def test_case_S_09_the_header_is_on_another_line(tmp_path: Path) -> None:
    path = write_session(tmp_path / "s1.jsonl", COMPACTION, header(name="found"), message("one"))
    loaded = load_session(path)
    assert loaded.header.name == "found"
    assert [type(stored.value) for stored in loaded.records] == [Compaction, Message]
    assert loaded.report.warnings() == ("The header of the session is on line 2 instead of line 1.",)


def test_case_S_09_a_missing_header(tmp_path: Path) -> None:
    path = write_session(tmp_path / "s7.jsonl", message("one", at=moment(5)), message("two"))
    loaded = load_session(path)
    assert loaded.header == Header(id="s7", cwd="", created_at=moment(5), updated_at=moment(5))
    assert texts(path) == ["one", "two"]
    assert loaded.report.warnings() == ("The session has no header: its directory, model and settings are unknown.",)


def test_case_S_09_an_empty_file(tmp_path: Path) -> None:
    path = write_session(tmp_path / "s1.jsonl")
    with pytest.raises(StorageError, match=r"s1\.jsonl is empty and contains no session") as caught:
        load_session(path)
    assert caught.value.code is Code.STORAGE


def test_case_S_09_a_byte_order_mark_before_the_header(tmp_path: Path) -> None:
    path = write_session(tmp_path / "s1.jsonl", header(), message("one"))
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    loaded = load_session(path)
    assert (loaded.header, loaded.report.warnings()) == (header(), ())
    assert list(loaded.read_raw_lines()) == [
        encode_line(stored.value)[:-1] for stored in loaded.records if isinstance(stored.value, Message)
    ]


def test_a_file_without_a_valid_line_is_rejected_with_the_line(tmp_path: Path) -> None:
    path = write_session(tmp_path / "s1.jsonl", tail=b'\n{"kind":"header","id"')
    with pytest.raises(StorageError, match=r"s1\.jsonl, line 2 is truncated, and no other line can be read"):
        load_session(path)


def test_an_unreadable_header_is_replaced_by_defaults(tmp_path: Path) -> None:
    path = write_session(tmp_path / "s1.jsonl", tail=b'{"kind":"header","cwd":7}\n')
    loaded = load_session(path)
    assert loaded.header.id == "s1"
    assert [stored.value for stored in loaded.records] == [UnknownRecord("header")]


def test_a_second_header_is_preserved_but_ignored(tmp_path: Path) -> None:
    path = write_session(tmp_path / "s1.jsonl", header(name="first"), header(name="second"))
    loaded = load_session(path)
    assert loaded.header.name == "first"
    assert [stored.value for stored in loaded.records] == [header(name="second")]


def test_raw_lines_keep_fields_that_values_omit(tmp_path: Path) -> None:
    later = b'{"kind":"future","x":1}'
    more = encode_line(message("two"))[:-1].replace(b'"role"', b'"mood":"good","role"').replace(b',"crc32"', b',"crc"')
    path = write_session(tmp_path / "s1.jsonl", header(), message("one"), tail=later + b"\r\nbad\n" + more)
    loaded = load_session(path)
    assert list(loaded.read_raw_lines())[1:] == [later, more]
    assert len(loaded.records) == 3
    assert loaded.report.unsealed == 2
    assert loaded.report.warnings() == (
        "Line 4 of the session is not complete JSON and was skipped.",
        "2 lines of the session without a checksum: damage there cannot be detected.",
    )


def test_whole_records_of_a_damaged_line_are_loaded(tmp_path: Path) -> None:
    torn, whole = encode_line(message("torn"))[:60], encode_line(message("whole"))[:-1]
    name = encode_line(Change(timestamp=NOW, name="kept"))
    lines = torn + whole + name + b"\0" * 512 + whole + b"\n" + whole + name
    path = write_session(tmp_path / "s1.jsonl", header(), tail=lines)
    loaded = load_session(path)
    assert texts(path) == ["whole"] * 3
    assert list(loaded.read_raw_lines()) == [whole, name[:-1], whole, whole, name[:-1]]
    assert loaded.report.skipped_count == 2
    assert loaded.report.warnings() == (
        "Line 2 of the session contains a damaged record; its whole records were kept.",
        "Line 3 of the session contains NUL bytes, probably after a system crash; its whole records were kept.",
    )
    assert find_last_name(path) == "kept"


def test_many_invalid_lines_are_counted(tmp_path: Path) -> None:
    path = write_session(tmp_path / "s1.jsonl", header(), tail=b"bad\n" * (MAX_DESCRIBED_PROBLEMS + 7))
    report = load_session(path).report
    assert (len(report.skipped), report.skipped_count) == (MAX_DESCRIBED_PROBLEMS, MAX_DESCRIBED_PROBLEMS + 7)
    assert report.warnings()[-1] == "7 more lines of the session were skipped."


def test_missing_and_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        load_session(tmp_path / "s1.jsonl")
    (tmp_path / "s2.jsonl").mkdir()
    with pytest.raises(StorageError, match=r"cannot read .*s2\.jsonl: is a directory"):
        load_session(tmp_path / "s2.jsonl")


def test_case_S_06_memory_stays_below_three_times_the_file(tmp_path: Path) -> None:
    text = "def f():\n    return 'x'\n" * 60
    path = write_session(tmp_path / "s1.jsonl", header(), *(message(text) for _ in range(3000)))
    tracemalloc.start()
    loaded = load_session(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(loaded.records) == 3000
    assert peak < 3 * path.stat().st_size
