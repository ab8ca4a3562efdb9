"""Ids and timestamps."""

import re
import time
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_samples import patient

from yarrow.session.ids import format_timestamp, is_valid_id, new_id, parse_seconds


def test_ids_are_sortable_uuids_of_version_7() -> None:
    before = time.time_ns() // 1_000_000
    made = [new_id() for _ in range(5000)]
    after = time.time_ns() // 1_000_000
    assert made == sorted(set(made))
    for text in made:
        value = uuid.UUID(text)
        assert str(value) == text
        assert (value.version, value.variant) == (7, uuid.RFC_4122)
        assert before <= value.int >> 80 <= after + 2
    assert len({text[-8:] for text in made}) > 4990


def test_ids_increase_when_the_clock_steps_back(monkeypatch: pytest.MonkeyPatch) -> None:
    first = new_id()
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000_000_000_000)
    made = [first, *(new_id() for _ in range(10))]
    assert made == sorted(set(made))


@pytest.mark.parametrize("text", ["a", "A-z_09", "x" * 64, "0193aaaa-0000-7000-8000-000000000000", "-", "_"])
def test_valid_ids(text: str) -> None:
    assert is_valid_id(text)


@pytest.mark.parametrize("text", ["", "x" * 65, "../x", "a/b", "a\\b", ".", "..", "a.b", "a\n", "a b", "é", "a\0", "٣"])
def test_hostile_ids(text: str) -> None:
    assert not is_valid_id(text)


def test_timestamp() -> None:
    assert format_timestamp(1795826293.123) == "2026-11-28T00:38:13.123Z"
    assert format_timestamp(0) == "1970-01-01T00:00:00.000Z"
    assert parse_seconds("2026-11-28T00:38:13.123Z") == pytest.approx(1795826293.123, abs=1e-6)


@patient
@given(st.floats(0, 4e9))
def test_timestamps_round_trip(at: float) -> None:
    text = format_timestamp(at)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", text)
    assert abs(parse_seconds(text) - at) <= 0.001
    assert format_timestamp(parse_seconds(text)) == text


@pytest.mark.parametrize(
    "text",
    ["2026-11-28t00:38:13z", " 2026-11-28 00:38:13 ", "2026-11-28T01:38:13+01:00", "20261128T003813Z"],
)
def test_other_timestamp_formats(text: str) -> None:
    assert parse_seconds(text) == 1795826293


@pytest.mark.parametrize("text", ["", "yesterday", "1795826293", "2026-13-01"])
def test_invalid_timestamps(text: str) -> None:
    with pytest.raises(ValueError, match=r"isoformat|month"):
        parse_seconds(text)
