"""Configuration files of `yarrow init`: every setting commented out, generated from the JSON Schema of the settings."""

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, cast

from yarrow.config.project_trust import HARMLESS_KEYS
from yarrow.config.schema import USER_ONLY_NOTE, build_json_schema

MAX_LINE_WIDTH = 120
"""Maximum characters of a line."""
_WORK = {"type": "openai", "baseUrl": "https://llm.example.com/v1", "apiKeyEnv": "WORK_KEY"}
PROJECT_EXAMPLES: Mapping[str, Any] = {"providers": {"work": _WORK}, "dryRun": True}
"""Values in a project's file in place of defaults that it cannot set, or that show too little."""
USER_EXAMPLES: Mapping[str, Any] = {
    "providers": {
        "work": _WORK,
        "home": {"type": "llamacpp", "baseUrl": "http://192.168.1.5:8080", "apiKeyCommand": "pass show home"},
        "ollama": {"contextWindow": 32768},
    }
}
"""Values in the user's file in place of defaults that show too little."""


def format_user_settings() -> str:
    """Return the text of a new `config.json` of a user."""
    head = (
        "Your settings for all projects. All are commented out and show the default or an example. A project's "
        ".yarrow/config.json, YARROW_* variables and flags override them."
    )
    writer = _TemplateWriter(USER_EXAMPLES, has_user_only=True)
    return _join([*_comment(head), "", *writer.write(writer.list_keys())])


def format_project_settings() -> str:
    """Return the text of a new `.yarrow/config.json` of a project, without the settings that only users may make."""
    head = (
        "Settings of this project. All are commented out and show the default or an example. Settings that are missing "
        "here come from ~/.yarrow/config.json. YARROW_* variables and flags override both."
    )
    writer = _TemplateWriter(PROJECT_EXAMPLES, has_user_only=False)
    harmless = [key for key in writer.list_keys() if key in HARMLESS_KEYS or key == "dryRun"]
    others = [key for key in writer.list_keys() if key not in harmless]
    lines = [*_comment(head), "", *_comment("---- Apply to everyone who works in this project ----"), ""]
    lines += writer.write(harmless)
    lines += _comment("---- Apply only to users who trust this file (`yarrow trust`), ignored for others ----")
    return _join([*lines, "", *writer.write(others)])


class _TemplateWriter:
    """Writes settings as commented lines."""

    def __init__(self, examples: Mapping[str, Any], *, has_user_only: bool) -> None:
        self._definitions: dict[str, dict[str, Any]] = build_json_schema()["$defs"]
        self._examples = examples
        self._has_user_only = has_user_only

    def list_keys(self) -> list[str]:
        """Return the top-level keys that belong into the file, in the order of their declaration."""
        return list(self._select(self._definitions["Settings"]))

    def write(self, keys: list[str]) -> Iterator[str]:
        """Yield the lines of top-level settings, with an empty line after each."""
        properties = self._definitions["Settings"]["properties"]
        for key in keys:
            yield from _comment(self._describe(properties[key]))
            yield from (f"  // {line}" for line in self._format_setting(key, properties[key]))
            yield ""

    def _format_setting(self, key: str, schema: dict[str, Any]) -> Iterator[str]:
        parts = self._get_definition(schema).get("properties")
        if parts is None:
            yield from _format_value(key, self._examples.get(key, schema["default"]))
            return
        yield f'"{key}": {{'
        for name, part in self._select(self._get_definition(schema)).items():
            for line in (*_wrap(self._describe(part), 2), *self._format_setting(name, part)):
                yield f"  {line}"
        yield "},"

    def _select(self, definition: dict[str, Any]) -> dict[str, dict[str, Any]]:
        return {
            key: schema
            for key, schema in definition["properties"].items()
            if "default" in schema and (self._has_user_only or USER_ONLY_NOTE not in self._get_text(schema))
        }

    def _describe(self, schema: dict[str, Any]) -> str:
        """Return the comment of a setting: its docstrings without the note on who may set it, and its choices."""
        text = self._get_text(schema).replace(USER_ONLY_NOTE, "").strip()
        items = schema.get("additionalProperties", {})
        choices = next(filter(None, (each.get("enum") for each in (schema, items, self._get_definition(schema)))), None)
        return f"{text} Choices: {', '.join(choices)}." if choices else text

    def _get_text(self, schema: dict[str, Any]) -> str:
        definition = self._get_definition(schema)
        texts = (definition.get("description", "") if "properties" in definition else "", schema.get("description", ""))
        return " ".join(filter(None, texts))

    def _get_definition(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the definition that a schema refers to; empty for a schema without a reference."""
        return self._definitions.get(schema.get("$ref", "").rpartition("/")[2], {})


def _format_value(key: str, value: Any) -> Iterator[str]:
    """Yield a setting with its value; each member of an object of objects has a line."""
    members: dict[str, Any] = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    if any(isinstance(each, dict) for each in members.values()):
        yield f'"{key}": {{'
        yield from (f"  {json.dumps(name)}: {json.dumps(each)}," for name, each in members.items())
        yield "},"
    else:
        yield f'"{key}": {json.dumps(value)},'


def _comment(text: str) -> list[str]:
    return [f"  {line}" for line in _wrap(text, 0)]


def _wrap(text: str, indent: int) -> list[str]:
    """Return a text as comment lines that still fit when they are indented and commented out again."""
    width = MAX_LINE_WIDTH - len("  // // ") - indent
    return [f"// {line}" for line in textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)]


def _join(lines: list[str]) -> str:
    """Return the text of a file; the empty line after the last setting is dropped."""
    return "\n".join(["{", *lines[:-1], "}", ""])
