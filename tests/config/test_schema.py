"""The JSON Schema of the configuration: it accepts and rejects the same files as the loader.

The descriptions in `docs/settings.md` and in the file of `yarrow init` are the docstrings, as in the schema.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from yarrow.cli.settings_template import format_user_settings
from yarrow.config.files import decode_settings
from yarrow.config.project_trust import ProjectFile, TrustState, apply_project
from yarrow.config.schema import USER_ONLY_NOTE, build_json_schema
from yarrow.config.settings import ProviderSettings, Settings
from yarrow.config.settings_source import KeyPath, format_path, get_value, list_leaves

SCHEMA = build_json_schema()
FIELDS = dict(zip(ProviderSettings.__struct_encode_fields__, ProviderSettings.__struct_fields__, strict=True))
"""Attribute of each key of a provider."""
PAGE = (Path(__file__).parents[2] / "docs" / "settings.md").read_text()


def described(kind: str = "Settings", path: KeyPath = (), *, note: str = "") -> Iterator[tuple[KeyPath, str, bool]]:
    """Every setting of a struct: its path, its description, and whether that or those around it say user only."""
    for key, each in SCHEMA["$defs"][kind]["properties"].items():
        text, inner = each.get("description", ""), each.get("$ref", "").rpartition("/")[2]
        if "properties" in SCHEMA["$defs"].get(inner, {}):
            yield from described(inner, (*path, key), note=text + SCHEMA["$defs"][inner]["description"])
        elif key != "$schema":
            yield (*path, key), text.replace(USER_ONLY_NOTE, "").strip(), USER_ONLY_NOTE in note + text


def is_accepted(path: KeyPath, value: Any) -> bool:
    """True if a trusted project's file may set a value."""
    values: Any = value
    for key in reversed(path):
        values = {key: values}
    layer = decode_settings(json.dumps(values).encode(), "file")
    applied = apply_project(ProjectFile("key", b"", layer, TrustState.TRUSTED), {})
    return path in list_leaves(applied.layer.values)


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
def test_valid_files_match_the_schema(content: dict[str, Any]) -> None:
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
def test_invalid_files_do_not_match_the_schema(content: Any) -> None:
    assert not Draft202012Validator(SCHEMA).is_valid(content)


def test_choices_have_the_order_of_their_declaration() -> None:
    kinds = SCHEMA["$defs"]
    assert kinds["ThinkingLevel"]["enum"][:3] == ["off", "minimal", "low"]
    assert kinds["Settings"]["properties"]["sandbox"]["enum"] == ["off", "workspace", "strict"]
    assert kinds["PermissionSettings"]["properties"]["rules"]["additionalProperties"]["enum"] == ["auto", "ask", "deny"]
    assert kinds["ProviderSettings"]["properties"]["thinkingStyle"]["anyOf"][0]["enum"] == ["budget", "adaptive"]


def test_a_number_that_must_be_positive() -> None:
    assert SCHEMA["$defs"]["ServiceSettings"]["properties"]["idleSeconds"]["minimum"] == 1
    assert not Draft202012Validator(SCHEMA).is_valid({"service": {"sessions": 0}})


def test_every_setting_is_described_alike_in_the_page_and_in_the_file_of_init() -> None:
    rows = dict(re.findall(r"^\| `(\S+)` \|.*\| ([^|]+) \|$", PAGE.split("## Providers")[0], re.MULTILINE))
    file = " ".join(re.sub(r"^ *// (?: *// )?", "", format_user_settings(), flags=re.MULTILINE).split())
    for path, text, is_user_only in described():
        assert text, path
        assert rows[format_path(path)] == (f"{text} {USER_ONLY_NOTE}" if is_user_only else text)
        assert text in file


def test_the_note_on_who_may_set_a_key_is_true() -> None:
    values = msgspec.to_builtins(Settings())
    for path, _, is_user_only in described():
        assert is_accepted(path, get_value(values, path)) != is_user_only, path
    for (key,), _, is_user_only in described("ProviderSettings"):
        default = msgspec.to_builtins({"key": getattr(ProviderSettings(), FIELDS[str(key)])})["key"]
        assert is_accepted(("providers", "openai", key), default) != is_user_only, key
