"""Comparable content of a session."""

import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from session_samples import NOW, header, message, moment, patient

from yarrow.config.settings import CompactionSettings
from yarrow.message import Message, Text, ThinkingLevel
from yarrow.session.line_codec import UnknownRecord
from yarrow.session.record import Change, Compaction, Queued, Record, Undelivered
from yarrow.session.state import Messages, SessionState, apply_record, fold_records

START = SessionState(header=header())


def queued(text_id: str) -> Queued:
    return Queued(id=text_id, timestamp=NOW, mode="steer", content=(Text("t"),))


def compaction(summary: str) -> Compaction:
    return Compaction(
        timestamp=NOW, summary=summary, first_kept_message_id="", tokens_before=2, tokens_after=1, reason="auto"
    )


def test_settings_are_the_header_with_every_change() -> None:
    state = fold_records(
        START,
        [
            Change(timestamp=NOW, model="m1", thinking=ThinkingLevel.HIGH, tools=("read",)),
            Change(timestamp=NOW, model="m2", dry_run=True, compaction=CompactionSettings(enabled=False)),
            Change(timestamp=moment(1), tools=None, name="n", provider="p", system_prompt="s"),
        ],
    )
    assert state.header == replace(
        header(),
        model="m2",
        thinking=ThinkingLevel.HIGH,
        tools=None,
        dry_run=True,
        compaction=CompactionSettings(enabled=False),
        name="n",
        provider="p",
        system_prompt="s",
        updated_at=moment(1),
    )


def test_messages_in_order_and_the_last_compaction() -> None:
    one, two = message("one"), message("two", at=moment(4))
    state = fold_records(
        START, [one, compaction("first"), UnknownRecord("future"), header("other"), compaction("last"), two]
    )
    assert list(state.messages) == [one, two]
    assert state.compaction == compaction("last")
    assert (state.header.id, state.header.updated_at) == ("s1", moment(4))


def test_a_copy_is_dated_by_its_creation() -> None:
    copied = SessionState(replace(header(), updated_at=moment(5)))
    assert fold_records(copied, [message("x", at=moment(1))]).header.updated_at == moment(5)
    assert fold_records(copied, [message("x", at=moment(7))]).header.updated_at == moment(7)


def test_a_text_is_queued_until_delivered_or_returned() -> None:
    state = fold_records(START, [queued("a"), queued("b"), queued("c")])
    assert [text.id for text in state.queued] == ["a", "b", "c"]
    state = apply_record(state, message("t", message_id="a"))
    state = apply_record(state, Undelivered(id="c", timestamp=NOW))
    assert [text.id for text in state.queued] == ["b"]
    assert [text.id for text in apply_record(state, queued("d")).queued] == ["b", "d"]
    assert [text.id for text in state.queued] == ["b"]


RECORDS = st.lists(
    st.sampled_from(
        [
            *(queued(name) for name in "ab"),
            *(Undelivered(id=name, timestamp=NOW) for name in "ab"),
            *(message("t", message_id=name) for name in "abc"),
            compaction("s"),
            Change(timestamp=moment(1), model="m"),
            UnknownRecord("future"),
        ]
    ),
    max_size=20,
)


@patient
@given(RECORDS, RECORDS)
def test_records_apply_one_by_one_or_together_from_any_state(
    first: list[Record | UnknownRecord], more: list[Record | UnknownRecord]
) -> None:
    state = START
    states = [state]
    for record in first:
        state = apply_record(state, record)
        states.append(state)
    for length, earlier in enumerate(states):
        assert fold_records(earlier, first[length:]) == fold_records(START, first)
        assert list(earlier.messages) == [record for record in first[:length] if isinstance(record, Message)]
        assert fold_records(earlier, more) == fold_records(START, [*first[:length], *more])


def test_messages_have_the_sequence_interface() -> None:
    items = [message(str(number)) for number in range(5)]
    short = Messages(items[:3])
    long = short.concat(items[3:])
    other = short.concat(items[:1])
    assert isinstance(short, Sequence)
    assert (list(short), list(long), list(other)) == (items[:3], items, [*items[:3], items[0]])
    assert (short[-1], long[-1], short[1:], short[::-1]) == (items[2], items[4], items[1:3], items[2::-1])
    assert (len(short), items[3] in short, items[3] in long) == (3, False, True)
    assert (short == Messages(items[:3]), short == long, short == items[:3]) == (True, False, False)
    with pytest.raises(IndexError):
        short[3]


def test_extending_a_state_does_not_copy() -> None:
    """States of 1 to 2,000 messages would hold two million entries, 16 MB, if each had its own list."""
    one = message("x")
    states = [START]
    tracemalloc.start()
    for _ in range(2000):
        states.append(apply_record(states[-1], one))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4_000_000
    assert [len(state.messages) for state in states] == list(range(2001))
