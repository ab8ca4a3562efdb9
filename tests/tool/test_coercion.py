"""Arguments of another type than the schema's: converted where there is one reading, else refused as before."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct

from yarrow.tool.arguments import InvalidArguments, decode_arguments


class Edit(Struct, forbid_unknown_fields=True):
    """One replacement."""

    old: str
    new: str = ""
    count: int = 1


class Arguments(Struct, forbid_unknown_fields=True):
    """One of each type."""

    path: str = ""
    limit: int = 0
    seconds: float = 0
    deep: bool = False
    edits: list[Edit] = []
    names: list[str] = []
    content: str = ""
    maybe: int | None = None


def decoded(**given: Any) -> Arguments | InvalidArguments:
    return decode_arguments(json.dumps(given), Arguments)  # pyright: ignore[reportReturnType]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"limit": "5"}, Arguments(limit=5)),
        ({"limit": " -5 "}, Arguments(limit=-5)),
        ({"limit": 1.0}, Arguments(limit=1)),
        ({"seconds": "2.5"}, Arguments(seconds=2.5)),
        ({"seconds": "1e3"}, Arguments(seconds=1000)),
        ({"deep": "true"}, Arguments(deep=True)),
        ({"deep": "False"}, Arguments(deep=False)),
        ({"maybe": "7"}, Arguments(maybe=7)),
        ({"edits": '[{"old": "a", "count": "2"}]'}, Arguments(edits=[Edit("a", count=2)])),
        ({"edits": '{"old": "a"}'}, Arguments(edits=[Edit("a")])),
        ({"edits": {"old": "a"}}, Arguments(edits=[Edit("a")])),
        ({"edits": ['{"old": "a"}']}, Arguments(edits=[Edit("a")])),
        ({"names": "a b"}, Arguments(names=["a b"])),
        ({"names": '["a", "b"]'}, Arguments(names=["a", "b"])),
        ({"names": "[draft"}, Arguments(names=["[draft"])),
    ],
)
def test_case_RA_02_a_value_with_one_reading_is_converted(given: dict[str, Any], expected: Arguments) -> None:
    assert decoded(**given) == expected


def test_an_object_as_file_text_becomes_json() -> None:
    arguments = decoded(content={"name": "x", "list": [1, 2]})
    assert isinstance(arguments, Arguments)
    assert json.loads(arguments.content) == {"name": "x", "list": [1, 2]}


@pytest.mark.parametrize(
    "given",
    [
        *({"limit": word} for word in ("five", "", "1.5", "0x5", "1_000", "1\u0665", "5 lines", "1" * 30, True, 1.5)),
        *({"deep": word} for word in ("yes", "1", "on", "", 1, 0)),
        *({"seconds": word} for word in ("nan", "inf", "soon", True)),
        *({"edits": word} for word in ("a", "[{", 5, ["a"], {"ol": "a"}, "[1]")),
        *({"path": word} for word in (5, True, {"a": 1}, ["a"])),
        *({"names": word} for word in (5, {"a": 1}, [5])),
    ],
)
def test_ambiguous_values_are_rejected(given: dict[str, Any]) -> None:
    assert isinstance(decoded(**given), InvalidArguments)


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "path": st.text(max_size=5),
            "limit": st.integers(-(2**40), 2**40),
            "deep": st.booleans(),
            "names": st.lists(st.sampled_from(("a", "[1]", '{"a":1}', "true", "5")), max_size=3),
            "content": st.sampled_from(("x", '{"a": 1}', "[1]", "5", "true", "")),
        },
    )
)
def test_valid_arguments_are_unchanged(given: dict[str, Any]) -> None:
    assert decoded(**given) == msgspec.convert(given, Arguments)
