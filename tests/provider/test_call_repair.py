"""Tool calls that were written nearly right: what has one reading is repaired, what was cut or is ambiguous is not."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.message import ToolCall
from yarrow.provider.tool_calls import repair_arguments, repair_call

OFFERED = frozenset({"read", "write", "bash", "grep"})
TOKENS = st.sampled_from(
    ("{", "}", "[", "]", ",", '"', "\\", "\n", "\t", "\r", ",}", ",]", '{"a":1}', "</s>", "é", "a")
)
TEXT = st.lists(TOKENS, max_size=8).map("".join)
VALUES = st.recursive(
    st.one_of(TEXT, st.integers(-(10**20), 10**20), st.booleans(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=6,
)
OBJECTS = st.dictionaries(TEXT, VALUES, min_size=1, max_size=4)


def with_raw_controls(text: str) -> str:
    return text.replace("\\n", "\n").replace("\\t", "\t").replace("\\r", "\r")


@given(OBJECTS)
def test_damage_with_a_single_reading_is_repaired(value: dict[str, Any]) -> None:
    text = json.dumps(value, ensure_ascii=False)
    damaged = [
        text[:-1] + ",}",
        text[:-1] + " ,\n }",
        json.dumps(text),
        "{}" + text,
        "{} \n" + text,
        text + text,
        text + "\n" + text,
        text + "</s>",
        text + "<|im_end|>\n",
        text + "<|tool_call_end|><|eot_id|>",
    ]
    # A backslash before the escape makes it two characters of the text, not a control character.
    if "\\\\" not in text:
        damaged.append(with_raw_controls(text))
    for one in damaged:
        assert json.loads(repair_arguments(one)) == value, one


@given(OBJECTS, st.data())
def test_truncated_text_is_never_repaired(value: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(value)
    end = data.draw(st.integers(0, len(text) - 1))
    assert repair_arguments(text[:end]) == ""
    assert repair_arguments(json.dumps(text)[: end + 1]) == ""
    assert repair_arguments(text + text[:end]) == "" or not text[:end].strip()


@given(OBJECTS, OBJECTS)
def test_two_different_objects_have_no_single_reading(first: dict[str, Any], second: dict[str, Any]) -> None:
    if first != second:
        assert repair_arguments(json.dumps(first) + json.dumps(second)) == ""


def test_numbers_and_order_are_preserved() -> None:
    assert repair_arguments('{"b": 1.10, "a": 12345678901234567890,}') == '{"b": 1.10, "a": 12345678901234567890}'


@pytest.mark.parametrize(
    "text",
    ["", "[]", "[1,]", '"text"', "null", "1", "{'a': 1}", "{a: 1}", '{"a": 1} and more', '{"a" 1}', '{"a": 1,,}'],
)
def test_case_RA_03_ambiguous_or_non_object_arguments_stay_invalid(text: str) -> None:
    assert repair_arguments(text) == ""
    call = ToolCall("c", "read", invalid_arguments=text)
    assert repair_call(call, OFFERED) == call


@pytest.mark.parametrize(
    "name",
    [
        *(
            "read<|channel|>commentary",
            "functions.read",
            "Read",
            "read\n",
            " read ",
            "READ",
            "tools.read",
            "function:read",
        ),
        *("<|channel|>read", "functions.Read<|message|>", "default_api.read", "<|start|> read <|end|> json"),
    ],
)
def test_case_RA_04_a_misspelt_tool_name_is_corrected(name: str) -> None:
    assert repair_call(ToolCall("c", name), OFFERED).name == "read"


@pytest.mark.parametrize(
    "name", ["reader", "no_such_tool", "", "functions.", "rea", "read write", "read.write", "<|x|>"]
)
def test_an_unknown_name_is_unchanged(name: str) -> None:
    assert repair_call(ToolCall("c", name), OFFERED).name == name


def test_an_exact_name_wins_and_similar_ones_are_ambiguous() -> None:
    offered = frozenset({"Read", "read", "functions.x"})
    assert repair_call(ToolCall("c", "Read"), offered).name == "Read"
    assert repair_call(ToolCall("c", "READ"), offered).name == "READ"
    assert repair_call(ToolCall("c", "functions.x"), offered).name == "functions.x"
