"""Configuration with comments and trailing commas: the same values, at the same places."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from yarrow.config.settings_source import to_strict_json

TRICKY = ["//", "/*", "*/", '",}"', ",]", ", }", "\\", "\\\\", '"', "// x\n", "#", "é", "\\u002f", "/", ","]
COMMENTS = ["", "", " ", "\n", "// a\n", '// "b,}\r\n', "/* c */", '/* "\n, } // */', "/**/", "/*/*/", "//\n"]
TEXTS = st.lists(st.sampled_from(TRICKY), max_size=4).map("".join)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=10,
)


def tokens(value: Any) -> list[str]:
    """The tokens of a value's JSON text; `,?` is where a trailing comma may be."""
    match value:
        case dict():
            pairs = [[json.dumps(key), ":", *tokens(item)] for key, item in value.items()]
            return ["{", *_joined(pairs), "}"]
        case list():
            return ["[", *_joined([tokens(item) for item in value]), "]"]
        case _:
            return [json.dumps(value)]


def _joined(groups: list[list[str]]) -> list[str]:
    found: list[str] = []
    for number, group in enumerate(groups, 1):
        found += [*group, "," if number < len(groups) else ",?"]
    return found


@given(value=VALUES, data=st.data())
def test_comments_and_trailing_commas_change_no_value_or_position(value: Any, data: st.DataObject) -> None:
    parts: list[str] = []
    for token in tokens(value):
        comma = data.draw(st.sampled_from(["", ","])) if token == ",?" else token
        parts += [data.draw(st.sampled_from(COMMENTS)), comma]
    text = "".join([*parts, data.draw(st.sampled_from(COMMENTS))])
    cleaned = to_strict_json(text)
    assert json.loads(cleaned) == value
    assert [len(line) for line in cleaned.split("\n")] == [len(line) for line in text.split("\n")]


@given(value=VALUES, indent=st.sampled_from([None, 0, 2]))
def test_text_without_comments_is_unchanged(value: Any, indent: int | None) -> None:
    text = json.dumps(value, indent=indent)
    assert to_strict_json(text) == text


def test_a_comma_without_a_value_stays_an_error() -> None:
    for text in ("[,]", "{,}", "[1,,]", '{"a":,}', "[ ,\n]", "[1,,2]"):
        assert to_strict_json(text) == text
    assert to_strict_json("[,/**/]") == "[,    ]"


def test_hostile_texts_are_parsed_in_linear_time() -> None:
    for piece in ('"', '\\"', "/*", ",", "[,", "//", " ,"):
        text = '"' * (piece == '\\"') + piece * 200_000
        assert len(to_strict_json(text)) == len(text)
