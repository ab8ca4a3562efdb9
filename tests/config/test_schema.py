"""The JSON Schema of the configuration: it takes what the loader takes and refuses what it refuses."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from yarrow.config.schema import build_json_schema
from yarrow.config.settings import Settings

SCHEMA = build_json_schema()


def test_it_is_a_schema_of_every_key_with_descriptions() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    properties = SCHEMA["$defs"]["Settings"]["properties"]
    assert set(properties) == {"$schema", *Settings.__struct_encode_fields__}
    assert properties["maxTurns"]["description"] == "Maximum turns of a run; 0 means no limit."
    assert "prints the API key" in SCHEMA["$defs"]["ProviderSettings"]["properties"]["apiKeyCommand"]["description"]


@pytest.mark.parametrize(
    "content",
    [
        {},
        {"$schema": "https://example.org/x.json", "model": "m", "thinking": "high"},
        {
            "providers": {
                "work": {"type": "openai", "temperature": None, "extraBody": {"seed": -1}, "headers": {"a": ""}}
            }
        },
        {"compaction": {"enabled": False, "reserveTokens": 0}, "extensions": ["~/x.py"], "bash": {"timeout": 1.5}},
    ],
)
def test_right_files(content: dict[str, Any]) -> None:
    Draft202012Validator(SCHEMA).validate(content)


@pytest.mark.parametrize(
    "content",
    [
        [],
        {"modle": "m"},
        {"$schema": 1},
        {"thinking": "hihg"},
        {"maxTurns": -1},
        {"maxTurns": 1.5},
        {"dryRun": "yes"},
        {"compaction": {"reserveTokens": 2**31}},
        {"providers": {"work": {"baseURL": "http://h"}}},
        {"providers": {"work": {"temperature": -1}}},
        {"extensions": "x.py"},
    ],
)
def test_wrong_files(content: Any) -> None:
    assert not Draft202012Validator(SCHEMA).is_valid(content)
