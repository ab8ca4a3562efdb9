"""A line that is typed at a question: what is heard of it, and whether it is an answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.cli.terminal_permission_prompts import QUIET_SECONDS, TypedLine
from yarrow.client.permission_prompts import TypedAnswer


def typed(text: str, *keys: tuple[float, str]) -> tuple[list[TypedAnswer], TypedLine]:
    line = TypedLine(text, 10.0)
    return [one for at, key in keys for one in line.feed(key, at)], line


@pytest.mark.parametrize(
    ("begun", "keys", "expected"),
    [
        ("", [(11.0, "yes\n")], [TypedAnswer("yes", is_answer=True)]),
        ("", [(11.0, "y"), (11.1, "e"), (11.2, "s"), (11.3, "\r")], [TypedAnswer("yes", is_answer=True)]),
        ("", [(10.9, "yes\n")], [TypedAnswer("yes", is_answer=False)]),
        ("", [(10.9, "y"), (15.0, "es\n")], [TypedAnswer("yes", is_answer=False)]),
        ("y", [(15.0, "es\n")], [TypedAnswer("yes", is_answer=False)]),
        ("", [(15.0, "\n"), (15.9, "yes\n")], [TypedAnswer("", is_answer=True), TypedAnswer("yes", is_answer=False)]),
        ("", [(15.0, "\n"), (16.0, "yes\n")], [TypedAnswer("", is_answer=True), TypedAnswer("yes", is_answer=True)]),
        ("", [(15.0, "yes\nno\n")], [TypedAnswer("yes", is_answer=False), TypedAnswer("no", is_answer=False)]),
        ("", [(15.0, "x\x7f"), (15.1, "yes\n")], [TypedAnswer("yes", is_answer=False)]),
        ("x", [(15.0, "\x7f"), (16.0, "yes\n")], [TypedAnswer("yes", is_answer=True)]),
        ("", [(15.0, "\x1b[A\x1bOBno\x1b[3~\n")], [TypedAnswer("no", is_answer=True)]),
        ("", [(15.0, "\x04")], [TypedAnswer("", is_answer=True, is_end=True)]),
        ("", [(15.0, "a\x04b\n")], [TypedAnswer("ab", is_answer=True)]),
    ],
)
def test_a_line_counts_as_an_answer_only_after_a_pause(
    begun: str, keys: list[tuple[float, str]], expected: list[TypedAnswer]
) -> None:
    assert typed(begun, *keys)[0] == expected


@pytest.mark.parametrize(
    ("keys", "text", "echo"),
    [
        ("ab\x7f", "a", "ab\b \b"),
        ("\x7fa", "a", "a"),
        ("中\x7f", "", "中\b \b\b \b"),
        ("e\u0301\x7f\x7f", "", "e\u0301\b \b"),
        ("one two \x17", "one ", "one two " + "\b \b" * 4),
        ("one\x15", "", "one" + "\b \b" * 3),
        ("a\x01\x00b", "ab", "ab"),
    ],
)
def test_keys_are_echoed_and_erased(keys: str, text: str, echo: str) -> None:
    _, line = typed("", (11.0, keys))
    assert (line.text, line.echo) == (text, echo)


@given(st.lists(st.tuples(st.floats(0, 2), st.sampled_from([*"yes no", "\n", "\x7f", "\x15", "é"]))))
def test_no_character_is_lost_and_no_answer_comes_too_soon(steps: list[tuple[float, str]]) -> None:
    line = TypedLine("", 0.0)
    now = last = 0.0
    begun: float | None = None
    text = ""
    for pause, key in steps:
        last, now = now, now + pause
        found = line.feed(key, now)
        if key == "\n":
            assert [one.text for one in found] == [text]
            assert found[0].is_answer is (begun is None or begun >= QUIET_SECONDS)
            text, begun = "", None
        elif key in "\x7f\x15":
            text = text[:-1] if key == "\x7f" else ""
            begun = begun if text else None
        else:
            begun = min(now - last, now) if not text else begun
            text += key
        assert line.text == text
