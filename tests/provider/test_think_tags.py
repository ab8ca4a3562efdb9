"""Thinking in tags is split from the answer, however the pieces are cut, and nothing gets lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.provider.think_tags import CLOSING_TAG, MAX_BLANK_CHARACTERS, OPENING_TAG, ThinkingSplit, ThinkTagSplitter

TOKENS = ["<think>", "</think>", "<th", "ink>", "</", "think>", "<", ">", " ", "\n", "a", "<thinking>", "🌍", "\u2028"]
texts = st.lists(st.sampled_from(TOKENS), max_size=8).map("".join)


def split(*pieces: str) -> ThinkingSplit:
    tags = ThinkTagSplitter()
    parts = [*(tags.feed(piece) for piece in pieces), tags.end()]
    return ThinkingSplit("".join(part.thinking for part in parts), "".join(part.answer for part in parts))


def expected(text: str) -> ThinkingSplit:
    """The definition, for a complete text."""
    begins = text.lstrip()
    if not begins.startswith(OPENING_TAG):
        return ThinkingSplit("", text)
    thinking, _, answer = begins.removeprefix(OPENING_TAG).lstrip().partition(CLOSING_TAG)
    return ThinkingSplit(thinking, answer.lstrip())


@given(texts, st.data())
def test_any_text_is_split_independently_of_chunk_boundaries(text: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    assert split(*pieces) == split(*text) == expected(text)


@given(texts)
def test_only_possible_tags_are_buffered(text: str) -> None:
    tags, given = ThinkTagSplitter(), 0
    for character in "x" + text:
        given += sum(map(len, tags.feed(character)))
    assert given == len(text) + 1
    tags, given = ThinkTagSplitter(), 0
    thought = "x" + text.replace("/", "")
    for character in OPENING_TAG + thought:
        given += sum(map(len, tags.feed(character)))
    assert len(thought) - given < len(CLOSING_TAG)


@pytest.mark.parametrize(
    ("pieces", "thinking", "answer"),
    [
        (["<think>secret</thi", "nk>ANSWER"], "secret", "ANSWER"),
        (["<th", "ink>a</think>b"], "a", "b"),
        (["a < b and x<", "y"], "", "a < b and x<y"),
    ],
)
def test_case_P_14_a_tag_across_two_deltas(pieces: list[str], thinking: str, answer: str) -> None:
    assert split(*pieces) == (thinking, answer)


def test_a_mentioned_tag_is_text() -> None:
    assert split("The tag <think>x</think> is") == ("", "The tag <think>x</think> is")
    assert split("<think>a</think>b <think>c</think>") == ("a", "b <think>c</think>")


def test_empty_thinking_is_omitted() -> None:
    assert split("<think>\n\n</think>\n\nHi") == ("", "Hi")
    assert split("<think>", " ") == split("") == ("", "")


def test_white_space_is_not_buffered_indefinitely() -> None:
    tags = ThinkTagSplitter()
    assert tags.feed(" " * MAX_BLANK_CHARACTERS) == ("", "")
    assert tags.feed(" ") == ("", " " * (MAX_BLANK_CHARACTERS + 1))
    assert split(" " * MAX_BLANK_CHARACTERS + "<think>a") == ("a", "")
    assert split(" " * MAX_BLANK_CHARACTERS + " <think>a").thinking == ""


def test_text_after_the_end_tag_is_the_answer() -> None:
    tags = ThinkTagSplitter()
    assert tags.feed("<thi") == ("", "")
    assert tags.end() == ("", "<thi")
    assert tags.feed("<think>") == ("", "<think>")
