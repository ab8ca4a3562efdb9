"""A session at a glance."""

from pathlib import Path

import pytest
from msgspec.structs import replace
from session_samples import header, message, moment, write_session

from yarrow.errors import NotFound, StorageError
from yarrow.message import Role
from yarrow.session.ids import parse_seconds
from yarrow.session.record import Change
from yarrow.session.session_file_reader import MAX_TITLE_CHARACTERS, TAIL_WINDOWS, find_last_name, read_head

FILLER = [message("x" * 1000, role=Role.TOOL, at=moment(2)) for _ in range(30)]


def rename(name: str, at: float) -> Change:
    return Change(timestamp=moment(at), name=name)


def test_header_title_and_time_of_the_last_record(tmp_path: Path) -> None:
    first = message("  fix \n the\tparser  " + "x" * 1000, at=moment(1))
    path = write_session(tmp_path / "s1.jsonl", header(name="n"), first, *FILLER, message("end", at=moment(9)))
    found = read_head(path)
    assert (found.id, found.path, found.header, found.name) == ("s1", path, header(name="n"), "n")
    assert found.title.startswith("fix the parser xxx")
    assert len(found.title) == MAX_TITLE_CHARACTERS
    assert found.updated == parse_seconds(moment(9))


def test_a_copy_is_dated_by_its_creation(tmp_path: Path) -> None:
    copied = replace(header(), updated_at=moment(5))
    assert read_head(write_session(tmp_path / "s1.jsonl", copied, message("x", at=moment(1)))).updated == parse_seconds(
        moment(5)
    )
    assert read_head(write_session(tmp_path / "s2.jsonl", copied, message("x", at=moment(7)))).updated == parse_seconds(
        moment(7)
    )


def test_only_a_header(tmp_path: Path) -> None:
    found = read_head(write_session(tmp_path / "s1.jsonl", header()))
    assert (found.title, found.updated) == ("", parse_seconds(header().updated_at))


def test_the_title_is_the_first_text_of_the_user(tmp_path: Path) -> None:
    others = [message("no", role=Role.ASSISTANT), message(" \n"), message("yes"), message("late")]
    assert read_head(write_session(tmp_path / "s1.jsonl", header(), *others)).title == "yes"


@pytest.mark.parametrize(
    ("text", "typed", "title"),
    [
        ("Review <untrusted_input>shop.py</untrusted_input>", "/review shop.py", "/review shop.py"),
        ("review this\n\n<stdin>\ndiff --git\n</stdin>", "", "review this"),
        ('look\n\n<file path="a b.txt">\nx\n</file>\n\n<stdin>\ny\n</stdin>', "", "look"),
        ('<file path="notes.txt">\nx\n</file>', "", "@notes.txt"),
        ("I ran the tool bash with x", 'bash {"command":"x"}', "I ran the tool bash with x"),
        ("what does <stdin> mean", "", "what does <stdin> mean"),
    ],
)
def test_the_title_is_what_the_user_typed(tmp_path: Path, text: str, typed: str, title: str) -> None:
    first = replace(message(text), typed=typed)
    assert read_head(write_session(tmp_path / "s1.jsonl", header(), first)).title == title


def test_names_set_later(tmp_path: Path) -> None:
    early = write_session(tmp_path / "s1.jsonl", header(), rename("early", 1), message("x"), *FILLER)
    late = write_session(tmp_path / "s2.jsonl", header(), message("x"), *FILLER, rename("late", 3), rename("latest", 4))
    middle = write_session(tmp_path / "s3.jsonl", header(name="old"), message("x"), *FILLER, rename("deep", 1), *FILLER)
    assert [read_head(path).name for path in (early, late, middle)] == ["early", "latest", "old"]
    assert [find_last_name(path) for path in (early, late, middle)] == ["early", "latest", "deep"]


def test_the_last_name_is_found_among_other_changes_and_lookalikes(tmp_path: Path) -> None:
    other = Change(timestamp=moment(2), model="m")
    path = write_session(tmp_path / "s1.jsonl", header(), rename("real", 1), other, tail=b'{"kind":"change","name":"to')
    assert find_last_name(path) == "real"
    assert find_last_name(write_session(tmp_path / "s2.jsonl", header(name="h"), other)) is None
    assert find_last_name(write_session(tmp_path / "s3.jsonl")) is None


@pytest.mark.parametrize("size", [10, TAIL_WINDOWS[0] * 2])
def test_the_last_record_is_found_before_a_torn_line_and_when_it_is_long(tmp_path: Path, size: int) -> None:
    end = message("y" * size, at=moment(7))
    path = write_session(tmp_path / "s1.jsonl", header(), *FILLER, end, tail=b'{"kind":"mess')
    assert read_head(path).updated == parse_seconds(moment(7))


def test_without_a_recent_timestamp_the_files_time_is_used(tmp_path: Path) -> None:
    beyond = write_session(tmp_path / "s1.jsonl", header(), message("x"), tail=b"y" * (TAIL_WINDOWS[1] + 10))
    wrong = write_session(tmp_path / "s2.jsonl", header(), tail=b'{"kind":"undelivered","id":"","timestamp":"soon"}')
    assert read_head(beyond).updated == beyond.stat().st_mtime
    assert read_head(wrong).updated == parse_seconds(header().updated_at)


def test_a_file_without_a_header(tmp_path: Path) -> None:
    found = read_head(write_session(tmp_path / "s4.jsonl", message("hello", at=moment(3)), tail=b"bad\n"))
    assert (found.id, found.header.id, found.header.created_at, found.title) == ("s4", "s4", moment(3), "hello")


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_head(tmp_path / "s1.jsonl")
    with pytest.raises(StorageError, match=r"s2\.jsonl is empty and contains no session"):
        read_head(write_session(tmp_path / "s2.jsonl"))
    (tmp_path / "s3.jsonl").mkdir()
    with pytest.raises(StorageError, match="is a directory"):
        read_head(tmp_path / "s3.jsonl")
