"""Settings in layers, through `load`: precedence, permitted keys, and messages about errors."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from yarrow.config.settings import BUILT_IN_PROVIDERS, CompactionSettings, Settings
from yarrow.config.settings_merge import LoadedSettings, load_settings
from yarrow.errors import Code, ConfigError
from yarrow.message import ThinkingLevel

IDS = "anthropic, gemini, llamacpp, local, ollama, openai, openai-responses, scripted"
"""Ids of providers that need no configuration."""


class Place:
    """A home directory with a project two directories below it."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.project = self.home / "code" / "project"
        self.cwd = self.project / "src" / "deep"
        self.cwd.mkdir(parents=True)
        self.environment: dict[str, str] = {}
        self.overrides: dict[str, Any] = {}

    def user(self, content: Any) -> Path:
        return self._write(self.home, content)

    def projects(self, content: Any, directory: Path | None = None) -> Path:
        return self._write(directory or self.project, content)

    def _write(self, directory: Path, content: Any) -> Path:
        path = directory / ".yarrow" / "config.json"
        path.parent.mkdir(exist_ok=True)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
        return path

    def load(self) -> LoadedSettings:
        return load_settings(home=self.home, cwd=self.cwd, environment=self.environment, overrides=self.overrides)

    def refusal(self) -> str:
        with pytest.raises(ConfigError) as caught:
            self.load().check_providers()
        assert caught.value.code is Code.CONFIG
        assert "\n" not in caught.value.message
        return caught.value.message


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# ---- what wins ----


def test_without_configuration_the_defaults_apply(place: Place) -> None:
    loaded = place.load()
    assert loaded.settings == Settings()
    assert loaded.notices == ()
    assert set(loaded.list_origins().values()) == {"default"}


def test_later_layers_win_and_objects_merge(place: Place) -> None:
    place.user(
        """{
  "provider": "openai", "model": "from-user", "thinking": "low",
  "providers": {
    "openai": {"baseUrl": "http://one/v1", "headers": {"a": "1", "b": "1"}},
    "work": {"type": "llamacpp"}
  },
  "compaction": {"reserveTokens": 10,
                 "keepRecentTokens": 20}
}"""
    )
    place.projects('{"thinking": "high",\n "compaction": {"keepRecentTokens": 30}}')
    place.environment = {"YARROW_MODEL": "from-variable", "YARROW_MAX_TURNS": "7", "YARROW_DRY_RUN": "true"}
    place.environment["YARROW_PROVIDER"] = "work"
    place.overrides = {"provider": "work"}
    loaded = place.load()
    settings = loaded.settings
    assert (settings.provider, settings.model, settings.thinking) == ("work", "from-variable", ThinkingLevel.HIGH)
    assert settings.compaction == CompactionSettings(reserve_tokens=10, keep_recent_tokens=30)
    assert (settings.max_turns, settings.dry_run) == (7, True)
    assert settings.providers["openai"].headers == {"a": "1", "b": "1"}
    origins = loaded.list_origins()
    users, projects = "~/.yarrow/config.json", "~/code/project/.yarrow/config.json"
    assert origins["provider"] == "--provider"
    assert origins["model"] == "YARROW_MODEL"
    assert origins["maxTurns"] == "YARROW_MAX_TURNS"
    assert origins["thinking"] == f"{projects}:1"
    assert origins["compaction.keepRecentTokens"] == f"{projects}:2"
    assert origins["compaction.reserveTokens"] == f"{users}:7"
    assert origins["compaction.enabled"] == "default"
    assert origins["providers.openai.baseUrl"] == f"{users}:4"
    assert origins["providers.openai.headers.b"] == f"{users}:4"
    assert origins["providers.work.type"] == f"{users}:5"
    assert origins["sessionDir"] == "default"


def test_a_list_replaces_a_list(place: Place) -> None:
    place.user({"workspace": {"extra": ["/a", "/b"]}})
    place.overrides = {"workspace": {"extra": ["/c"]}}
    assert place.load().settings.workspace.extra == ("/c",)


def test_the_last_of_duplicate_keys_counts_and_is_the_origin(place: Place) -> None:
    place.user('{"model": "first",\n\n"model": "last"}')
    loaded = place.load()
    assert loaded.settings.model == "last"
    assert loaded.list_origins()["model"] == "~/.yarrow/config.json:3"


def test_a_byte_order_mark_is_accepted(place: Place) -> None:
    place.user(b'\xef\xbb\xbf{"model": "m"}')
    assert place.load().settings.model == "m"


@pytest.mark.parametrize(("text", "value"), [("1", True), ("true", True), ("0", False), ("False", False)])
def test_a_boolean_variable_is_parsed(place: Place, text: str, value: bool) -> None:
    place.user({"dryRun": not value})
    place.environment = {"YARROW_DRY_RUN": text}
    assert place.load().settings.dry_run is value


def test_every_top_level_scalar_setting_has_a_variable(place: Place) -> None:
    values = {
        "YARROW_PROVIDER": "local",
        "YARROW_MODEL": "m",
        "YARROW_THINKING": "max",
        "YARROW_DRY_RUN": "1",
        "YARROW_SANDBOX": "off",
        "YARROW_SESSION_DIR": "/s",
        "YARROW_SYNC": "none",
        "YARROW_MAX_TURNS": "3",
    }
    place.environment = values
    loaded = place.load()
    assert set(values) <= set(loaded.list_origins().values())
    assert loaded.notices == ()


def test_an_empty_variable_counts_as_unset(place: Place) -> None:
    place.user({"model": "m"})
    place.environment = {"YARROW_MODEL": "", "YARROW_CONFIG": "", "YARROW_HOME": ""}
    assert place.load().settings.model == "m"


def test_extra_body_may_contain_any_number(place: Place) -> None:
    place.user({"providers": {"openai": {"extraBody": {"seed": -1, "big": 2**40}}}})
    assert place.load().settings.providers["openai"].extra_body == {"seed": -1, "big": 2**40}


# ---- a model and its provider ----

WORK = {"provider": "work", "model": "big", "providers": {"work": {"type": "openai"}}, "compaction": {"model": "small"}}


@pytest.mark.parametrize(
    ("users", "variables", "flags", "provider", "model", "summariser"),
    [
        (WORK, {}, {"provider": "local"}, "local", "", ""),
        (WORK, {"YARROW_PROVIDER": "local"}, {}, "local", "", ""),
        (WORK, {"YARROW_PROVIDER": "local"}, {"provider": "work"}, "work", "", ""),
        (WORK, {"YARROW_MODEL": "other"}, {"provider": "local"}, "local", "", ""),
        (WORK, {"YARROW_PROVIDER": "local", "YARROW_MODEL": "tiny"}, {}, "local", "tiny", ""),
        (WORK, {}, {"model": "local/tiny"}, "local", "tiny", ""),
        (WORK, {}, {"provider": "work"}, "work", "big", "small"),
        (WORK, {}, {"model": "work/other"}, "work", "other", "small"),
        ({**WORK, "provider": ""}, {}, {"provider": "local"}, "local", "", ""),
        ({**WORK, "provider": ""}, {}, {"provider": "work"}, "work", "big", "small"),
        ({}, {"YARROW_MODEL": "other"}, {"provider": "local"}, "local", "other", ""),
    ],
)
def test_a_model_belongs_to_the_provider_it_was_configured_with(
    place: Place,
    users: dict[str, Any],
    variables: dict[str, str],
    flags: dict[str, str],
    provider: str,
    model: str,
    summariser: str,
) -> None:
    place.user(users)
    place.environment, place.overrides = variables, flags
    settings = place.load().settings
    assert (settings.provider, settings.model, settings.compaction.model) == (provider, model, summariser)


def test_a_dropped_models_origin_is_the_other_provider(place: Place) -> None:
    place.user(WORK)
    place.overrides = {"provider": "local"}
    assert place.load().list_origins()["model"] == "--provider"
    assert place.load().list_origins()["compaction.model"] == "--provider"
    place.overrides = {"provider": "work"}
    assert place.load().list_origins()["model"] == "~/.yarrow/config.json:1"


# ---- provider/model ----


@pytest.mark.parametrize(
    ("flags", "provider", "model"),
    [
        ({"model": "openai/gpt"}, "openai", "gpt"),
        ({"model": "work/a/b:7b"}, "work", "a/b:7b"),
        ({"model": "Qwen/Qwen3"}, "work", "Qwen/Qwen3"),
        ({"model": "openai/gpt", "provider": "work"}, "work", "openai/gpt"),
        ({"model": "plain"}, "work", "plain"),
        ({"model": "local/"}, "local", ""),
    ],
)
def test_a_flag_may_name_provider_and_model(place: Place, flags: dict[str, str], provider: str, model: str) -> None:
    place.user({"provider": "work", "model": "m", "providers": {"work": {"type": "openai"}}})
    place.overrides = flags
    loaded = place.load()
    assert (loaded.settings.provider, loaded.settings.model) == (provider, model)
    assert loaded.list_origins()["model"] == "--model"


def test_a_variable_may_name_provider_and_model(place: Place) -> None:
    place.environment = {"YARROW_MODEL": "local/tiny"}
    loaded = place.load()
    assert (loaded.settings.provider, loaded.settings.model) == ("local", "tiny")
    assert loaded.list_origins()["provider"] == "YARROW_MODEL"


def test_a_file_names_provider_and_model_separately(place: Place) -> None:
    place.user({"provider": "work", "model": "openai/gpt", "providers": {"work": {"type": "openai"}}})
    settings = place.load().settings
    assert (settings.provider, settings.model) == ("work", "openai/gpt")


def test_text_before_a_slash_is_the_provider_unless_one_is_named(place: Place) -> None:
    place.overrides = {"model": "nope/x"}
    assert place.refusal() == (
        f"--model: 'nope' in 'nope/x' is not a provider; the choices are {IDS}. "
        "If the model's own name contains the slash, add --provider ID"
    )
    place.overrides = {"model": "nope/x", "provider": "ollama"}
    place.load().check_providers()
    place.overrides = {}
    place.environment = {"YARROW_MODEL": "nope/x"}
    assert place.refusal().startswith("YARROW_MODEL: 'nope' in 'nope/x' is not a provider")
    place.user({"providers": {"work": {"type": "openai"}}})
    place.load().check_providers()
    place.user({"model": "nope/x"})
    place.environment = {}
    place.load().check_providers()


def test_an_added_provider_may_be_named_before_its_model(place: Place) -> None:
    place.overrides = {"model": "theirs/a/b"}
    loaded = place.load()
    assert (loaded.settings.provider, loaded.settings.model) == ("", "theirs/a/b")
    added = loaded.add_providers(["theirs"])
    assert (added.settings.provider, added.settings.model) == ("theirs", "a/b")
    assert added.list_origins()["provider"] == "--model"
    assert added.add_providers(["a"]) == added


# ---- where files are ----


def test_only_the_nearest_project_file_counts(place: Place) -> None:
    place.projects({"thinking": "low", "compaction": {"enabled": False}})
    place.projects({"thinking": "high"}, place.cwd)
    settings = place.load().settings
    assert settings.thinking is ThinkingLevel.HIGH
    assert settings.compaction.enabled


def test_the_search_stops_below_home(place: Place) -> None:
    place.projects({"thinking": "high"}, place.home.parent)
    assert place.load().settings.thinking is ThinkingLevel.OFF


def test_outside_the_home_the_search_continues_to_the_root(place: Place) -> None:
    elsewhere = place.home.parent / "elsewhere" / "deep"
    elsewhere.mkdir(parents=True)
    place.projects({"thinking": "high"}, place.home.parent)
    place.cwd = elsewhere
    assert place.load().settings.thinking is ThinkingLevel.HIGH


def test_in_the_home_the_users_file_has_full_effect(place: Place) -> None:
    place.user({"model": "m"})
    place.cwd = place.home
    loaded = place.load()
    assert loaded.settings.model == "m"
    assert loaded.notices == ()


def test_a_home_reached_through_a_symlink_is_the_users(place: Place) -> None:
    place.user({"model": "m"})
    link = place.home.parent / "link"
    link.symlink_to(place.home)
    place.home = link
    loaded = place.load()
    assert loaded.settings.model == "m"
    assert loaded.notices == ()


def test_variables_select_another_user_directory_or_file(place: Place) -> None:
    place.user({"model": "at home"})
    other = place.home.parent / "other"
    other.mkdir()
    (other / "config.json").write_text('{"model": "elsewhere"}')
    place.environment = {"YARROW_HOME": str(other)}
    assert place.load().settings.model == "elsewhere"
    named = other / "named.json"
    named.write_text('{"model": "named"}')
    place.environment["YARROW_CONFIG"] = str(named)
    loaded = place.load()
    assert loaded.settings.model == "named"
    assert loaded.list_origins()["model"] == f"{named}:1"


def test_a_named_file_must_exist(place: Place) -> None:
    missing = place.home / "missing.json"
    place.environment = {"YARROW_CONFIG": str(missing)}
    assert place.refusal() == "~/missing.json: no such file; correct or unset YARROW_CONFIG"


# ---- trust ----


def test_a_projects_file_sets_only_harmless_keys(place: Place) -> None:
    place.user({"model": "mine", "providers": {"openai": {"baseUrl": "https://mine/v1"}}})
    place.projects(
        {
            "thinking": "low",
            "provider": "openai",
            "model": "theirs",
            "compaction": {"enabled": False},
            "providers": {"openai": {"baseUrl": "https://evil/v1", "apiKeyCommand": "touch /tmp/x"}},
            "dryRun": True,
            "sessionDir": "/tmp",
            "maxTurns": 0,
        }
    )
    loaded = place.load()
    assert loaded.settings == Settings(
        model="mine",
        thinking=ThinkingLevel.LOW,
        providers=loaded.settings.providers,
        compaction=CompactionSettings(enabled=False),
        dry_run=True,
    )
    assert loaded.settings.providers["openai"].base_url == "https://mine/v1"
    assert loaded.settings.providers["openai"].api_key_command == ""
    (notice,) = loaded.notices
    assert notice == (
        "~/code/project/.yarrow/config.json is not trusted, so provider, model, providers, sessionDir, maxTurns "
        "are ignored there; run `yarrow trust` to review and trust it"
    )


def test_a_project_may_turn_dry_run_on_but_not_off(place: Place) -> None:
    place.user({"dryRun": True})
    place.projects({"dryRun": False})
    loaded = place.load()
    assert loaded.settings.dry_run
    (notice,) = loaded.notices
    assert notice.startswith("~/code/project/.yarrow/config.json is not trusted, so dryRun is ignored there; ")
    assert loaded.list_origins()["dryRun"] == "~/.yarrow/config.json:1"


def test_every_other_setting_is_refused_to_a_project(place: Place) -> None:
    allowed = {"thinking", "compaction", "dryRun", "permissions"}
    examples: dict[str, Any] = {
        "provider": "local",
        "model": "x",
        "fallback": ["local/x"],
        "providers": {"local": {}},
        "sandbox": "off",
        "sandboxNetwork": "off",
        "workspace": {},
        "secretFiles": {},
        "bash": {},
        "sessionDir": "x",
        "sync": "run",
        "maxTurns": 1,
        "prices": {},
        "retry": {},
        "service": {},
        "telemetry": {},
        "extensions": [],
    }
    # A new setting must be put here, or among the harmless.
    assert {*allowed, *examples} == set(Settings.__struct_encode_fields__)
    for key, value in examples.items():
        place.projects({key: value})
        assert f"so {key} is ignored" in place.load().notices[0]


# ---- mistakes ----


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{\n\n  "modle": "x"}', ":3: unknown key 'modle'; did you mean 'model'?"),
        ('{"MaxTurns": 1}', ":1: unknown key 'MaxTurns'; did you mean 'maxTurns'?"),
        (
            '{"bash": {\n"shell": 1}}',
            ":2: unknown key 'shell' in bash; valid keys are passEnvironment, timeout",
        ),
        (
            '{"providers": {"a": {},\n "work": {"type":"openai",\n "baseURL": ""}}}',
            ":3: unknown key 'baseURL' in providers.work; did you mean 'baseUrl'?",
        ),
        (
            '{"thinking":\n"hihg"}',
            ":1: thinking cannot be 'hihg'; the choices are off, minimal, low, medium, high, xhigh, max",
        ),
        (
            '{"thinking": 5}',
            ":1: thinking: expected one of off, minimal, low, medium, high, xhigh, max, found the number 5",
        ),
        ('{"sandbox": "tight"}', ":1: sandbox cannot be 'tight'; the choices are off, strict, workspace"),
        (
            '{"providers": {"x": {"type": "olama"}}}',
            (
                ":1: providers.x.type cannot be 'olama'; the choices are gemini, llamacpp, local, messages, ollama, "
                "openai, responses, scripted"
            ),
        ),
        ('{"maxTurns": "200"}', ":1: maxTurns: expected an integer, found the string '200'"),
        ('{"maxTurns": 1.5}', ":1: maxTurns: expected an integer, found the number 1.5"),
        ('{"maxTurns": true}', ":1: maxTurns: expected an integer, found true"),
        ('{"dryRun": null}', ":1: dryRun: expected true or false, found null"),
        ('{"dryRun": false, "bash": {"timeout": false}}', ":1: bash.timeout: expected a number, found false"),
        ('{"model": ["a"]}', ":1: model: expected a string, found a list"),
        ('{"model": {}}', ":1: model: expected a string, found an object"),
        ('{"compaction": true}', ":1: compaction: expected an object, found true"),
        (
            '{"workspace": {"extra": ["/a",\n\n "/b", 7]}}',
            ":3: workspace.extra[2]: expected a string, found the number 7",
        ),
        ('{"workspace": {"extra": "/a"}}', ":1: workspace.extra: expected a list, found a string"),
        (
            '{"providers": {"openai": {"temperature": "hot"}}}',
            ":1: providers.openai.temperature: expected a number, found the string 'hot'",
        ),
        (
            '{"compaction":\n {"reserveTokens": -1}}',
            ":2: compaction.reserveTokens must be between 0 and 2147483647, not -1",
        ),
        ('{"service": {"streams": 0}}', ":1: service.streams must be between 1 and 2147483647, not 0"),
        ('{"service": {"idleSeconds": 0}}', ":1: service.idleSeconds must be between 1 and 2147483647, not 0"),
        ('{"maxTurns": 2147483648}', ":1: maxTurns must be between 0 and 2147483647, not 2147483648"),
        ('{"bash": {"timeout": 1' + "0" * 400 + "}}", ":1: bash.timeout must be between 0 and 2147483647"),
        (
            '{"providers": {"openai": {"baseUrl": "localhost:8080"}}}',
            ":1: providers.openai.baseUrl must be an http:// or https:// URL with a host, not 'localhost:8080'",
        ),
        (
            '{"providers": {"openai": {"baseUrl": "file:///etc"}}}',
            ":1: providers.openai.baseUrl must be an http:// or https:// URL with a host, not 'file:///etc'",
        ),
        (
            '{"providers": {"openai": {"baseUrl": "http://"}}}',
            ":1: providers.openai.baseUrl must be an http:// or https:// URL with a host, not 'http://'",
        ),
        (
            '{"providers": {"openai": {"baseUrl": "http://a b"}}}',
            ":1: providers.openai.baseUrl must be an http:// or https:// URL with a host, not 'http://a b'",
        ),
        (
            '{"providers": {"ollama": {"baseUrl": "http://h/v1?api-version=1"}}}',
            ":1: providers.ollama.baseUrl is 'http://h/v1?(set)': remove the query or fragment",
        ),
        (
            '{"providers": {"openai": {"baseUrl": "http://h/v1#x"}}}',
            ":1: providers.openai.baseUrl is 'http://h/v1#(set)': remove the query or fragment",
        ),
        (
            '{"model": "x",\n"provider": "opnai"}',
            f":2: provider 'opnai' is not configured; the choices are {IDS}",
        ),
        (
            '{"provider": "zzz", "providers": {"mine": {"type": "local"}}}',
            f":1: provider 'zzz' is not configured; the choices are {IDS.replace('local, ', 'local, mine, ')}",
        ),
        (
            '{"providers": {\n"mine": {}}}',
            (
                ":2: providers.mine needs a type, one of "
                "ollama, llamacpp, openai, responses, messages, gemini, local, scripted"
            ),
        ),
        ("[" * 100_000, ": nested too deeply"),
        ("[]", ":1: must contain one JSON object, such as {}"),
    ],
)
def test_an_error_names_its_position_and_the_valid_value(place: Place, text: str, message: str) -> None:
    place.user(text)
    assert place.refusal() == "~/.yarrow/config.json" + message


@pytest.mark.parametrize(
    ("text", "place_in_file"),
    [
        ('{"maxTurns": 1,,}', ":1:16:"),
        ('{ // a comment\n  "model" "m"}', ":2:11:"),
        ("{\n  # a comment\n}", ":2:3:"),
        ('{"model": "m"} /* a comment', ":1:16:"),
        ('{"model": "x"', ":1:14:"),
    ],
)
def test_invalid_json_is_reported_with_line_and_column(place: Place, text: str, place_in_file: str) -> None:
    place.user(text)
    message = place.refusal()
    assert message.startswith(f"~/.yarrow/config.json{place_in_file}")
    assert ": invalid JSON: " in message
    assert message.endswith("; start comments with //") == ("#" in text)
    assert message.endswith("; unterminated comment") == ("/*" in text)


@pytest.mark.parametrize("text", [b"", b" \n", b"\xef\xbb\xbf", b"// nothing yet\n"])
def test_an_empty_file_sets_nothing(place: Place, text: bytes) -> None:
    place.user(text)
    assert place.load().settings == Settings()
    place.projects(text)
    assert place.load().notices == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"maxTurns": 1,,}', ":1:16: invalid JSON: expected a key in double quotes or }"),
        ('{"model" "m"}', ":1:10: invalid JSON: expected :"),
        ('{"model": }', ":1:11: invalid JSON: expected a value"),
        ('{"model": "x"', ":1:14: invalid JSON: expected , or the end of the object or list"),
        ('{"model": "m"} {', ":1:16: invalid JSON: unexpected text after the end"),
        ('{"model": "x', ":1:11: invalid JSON: unterminated string"),
        ('{"model": "a\tb"}', ":1:13: invalid JSON: write a line feed or tab in a string as \\n or \\t"),
        ('{"model": "\\x"}', ":1:12: invalid JSON: invalid escape sequence; write a \\ as \\\\"),
        ("{'model': 1}", ":1:2: invalid JSON: expected a key in double quotes or }"),
    ],
)
def test_json_errors_use_yarrows_own_wording(place: Place, text: str, message: str) -> None:
    place.user(text)
    assert place.refusal() == f"~/.yarrow/config.json{message}"


def test_json_extensions_of_some_parsers_are_rejected(place: Place) -> None:
    place.user('{"maxTurns": NaN}')
    assert place.refusal().startswith("~/.yarrow/config.json: invalid JSON: ")


def test_an_error_in_a_projects_file_is_reported_too(place: Place) -> None:
    place.projects('{"compaction": 1}')
    assert place.refusal() == (
        "~/code/project/.yarrow/config.json:1: compaction: expected an object, found the number 1"
    )
    place.projects('{"providers": ')
    assert place.refusal().startswith("~/code/project/.yarrow/config.json:1:15: invalid JSON: ")


def test_an_error_in_an_ignored_file_does_not_stop_a_prompt(place: Place) -> None:
    place.projects('{"providers": {"x": 1}, "modle": "m", "maxTurns": -1, "dryRun": "yes"}')
    (notice,) = place.load().notices
    assert "so providers, modle, maxTurns, dryRun are ignored there" in notice


def test_an_extension_may_add_the_provider(place: Place) -> None:
    place.user({"provider": "theirs", "providers": {"theirs": {"baseUrl": "http://h"}}})
    loaded = place.load()
    loaded.check_providers(["theirs"])
    with pytest.raises(ConfigError, match=r"providers\.theirs needs a type"):
        loaded.check_providers()


def test_a_password_in_an_invalid_address_is_not_shown(place: Place) -> None:
    for url in ("me:hush@host:80", "ftp://me:hush@host", "http://h?key=hush"):
        place.user({"providers": {"work": {"type": "messages", "baseUrl": url}}})
        assert "hush" not in place.refusal()


def test_a_long_text_in_place_of_a_number_is_not_shown(place: Place) -> None:
    place.user({"maxTurns": "sk-verysecretkey0123456789"})
    assert place.refusal().endswith("maxTurns: expected an integer, found a string")


def test_invalid_utf_8_is_handled(place: Place) -> None:
    place.user(b'{\n"model": "\xff"}')
    assert place.refusal() == "~/.yarrow/config.json:2: not valid UTF-8: unexpected byte 0xff"


def test_a_directory_in_place_of_the_file_is_reported(place: Place) -> None:
    (place.home / ".yarrow" / "config.json").mkdir(parents=True)
    assert place.refusal() == "~/.yarrow/config.json: must be a regular file, not a directory"


def test_a_fifo_in_place_of_a_projects_file_does_not_hang(place: Place) -> None:
    (place.project / ".yarrow").mkdir()
    os.mkfifo(place.project / ".yarrow" / "config.json")
    assert place.refusal() == "~/code/project/.yarrow/config.json: must be a regular file, not a special file"


def test_a_symlink_loop_is_reported(place: Place) -> None:
    path = place.user({})
    path.unlink()
    path.symlink_to(path)
    assert place.refusal().startswith("~/.yarrow/config.json: cannot read the file: ")


def test_a_too_large_file_is_rejected(place: Place) -> None:
    place.user('{"model": "' + "x" * (1 << 20) + '"}')
    assert place.refusal() == "~/.yarrow/config.json: 1048589 bytes exceed the limit of 1048576"


def test_an_invalid_variable_is_reported_by_its_name(place: Place) -> None:
    place.environment = {"YARROW_MAX_TURNS": "many"}
    assert place.refusal() == "YARROW_MAX_TURNS: maxTurns: expected an integer, found the string 'many'"
    place.environment = {"YARROW_DRY_RUN": "perhaps"}
    assert place.refusal() == "YARROW_DRY_RUN: dryRun: expected true or false, found the string 'perhaps'"
    place.environment = {"YARROW_THINKING": "hi"}
    assert place.refusal().startswith("YARROW_THINKING: thinking cannot be 'hi'; ")
    place.environment = {"YARROW_PROVIDER": "opnai"}
    assert place.refusal() == f"YARROW_PROVIDER: provider 'opnai' is not configured; the choices are {IDS}"


def test_an_invalid_flag_is_reported_by_its_name(place: Place) -> None:
    place.overrides = {"provider": "opnai"}
    assert place.refusal() == f"--provider: provider 'opnai' is not configured; the choices are {IDS}"
    place.overrides = {"sessionDir": 5}
    assert place.refusal() == "--session-dir: sessionDir: expected a string, found the number 5"


def test_a_misspelt_variable_causes_a_notice_and_others_do_not(place: Place) -> None:
    place.user({"providers": {"work": {"type": "openai", "apiKeyEnv": "YARROW_MODELS"}}})
    place.environment = {
        "YARROW_MODLE": "x",
        "YARROW_MODELS": "a key",
        "YARROW_LOG": "debug",
        "YARROW_OPENAI_API_KEY": "k",
        "YARROW_PROVIDER_API_KEY": "k",
        "YARROW_UNRELATED_THING": "x",
        "PROVIDER": "x",
    }
    assert place.load().notices == ("YARROW_MODLE is not a setting and was ignored; did you mean YARROW_MODEL?",)


def test_a_text_in_the_wrong_place_is_not_shown(place: Place) -> None:
    place.user({"providers": {"openai": {"headers": "Bearer hunter2", "apiKeyEnv": "K"}}})
    assert "hunter2" not in place.refusal()


# ---- laws ----

# Each example makes directories, which a busy machine may do slowly.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

_KEYS = st.sampled_from(
    [
        *Settings.__struct_encode_fields__,
        "reserveTokens",
        "timeout",
        "extra",
        "type",
        "baseUrl",
        "headers",
        "extraBody",
        "?",
    ]
)
_LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(max_size=3),
    st.sampled_from(["high", "off", "openai", "local", "run", "http://h"]),
)  # fmt: skip
_VALUES = st.recursive(
    _LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_KEYS, inner, max_size=3), max_leaves=6
)


@unhurried
@given(content=st.dictionaries(_KEYS, _VALUES, max_size=3))
def test_any_object_yields_settings_or_a_one_line_error(
    tmp_path_factory: pytest.TempPathFactory, content: dict[str, Any]
) -> None:
    place = Place(tmp_path_factory.mktemp("any"))
    place.user(json.dumps(content, indent=1))
    try:
        loaded = place.load()
    except ConfigError as error:
        line = int(error.message.removeprefix("~/.yarrow/config.json:").partition(":")[0])
        assert 1 < line <= json.dumps(content, indent=1).count("\n") + 1
    else:
        for key, origin in loaded.list_origins().items():
            top = key.partition(".")[0]
            assert (top in content) or origin == "default"


@unhurried
@given(data=st.data())
def test_the_reported_line_is_that_of_the_key(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    lines = ['"model": "x"', '"sync": "run"', '"bash": {"timeout": 1}', '"workspace": {"read": ["a,}]", "\\"{"]}']
    order = data.draw(st.permutations(lines))
    gaps = data.draw(st.lists(st.sampled_from(["\n", " \r\n", "\n\t\n"]), min_size=4, max_size=4))
    text = "{" + ",".join(gap + line for gap, line in zip(gaps, order, strict=True)) + "}"
    place = Place(tmp_path_factory.mktemp("lines"))
    place.user(text.encode())
    origins = place.load().list_origins()
    for key in ("model", "sync", "bash.timeout", "workspace.read"):
        written = text[: text.index(f'"{key.partition(".")[0]}"')].count("\n") + 1
        assert origins[key] == f"~/.yarrow/config.json:{written}"


# ---- texts ----


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"sessionDir": "~nouser/x"}, "sessionDir"),
        ({"providers": {"scripted": {"script": "~nouser/x"}}}, "providers.scripted.script"),
        ({"providers": {"local": {"models": ["/m.gguf", "~nouser/x"]}}}, "providers.local.models[1]"),
        ({"providers": {"local": {"chatTemplate": "~nouser/x"}}}, "providers.local.chatTemplate"),
        ({"workspace": {"extra": ["~nouser/x"]}}, "workspace.extra[0]"),
        ({"workspace": {"read": ["~nouser/x"]}}, "workspace.read[0]"),
        ({"extensions": ["a.py", "~nouser/x"]}, "extensions[1]"),
    ],
)
def test_a_path_below_an_unknown_users_home_is_reported(place: Place, settings: dict[str, Any], key: str) -> None:
    place.user(settings)
    told = "is '~nouser/x': no home directory ~nouser; use the full path or ./~nouser/x"
    assert place.refusal() == f"~/.yarrow/config.json:1: {key} {told}"


def test_a_tilde_that_is_not_a_home_is_unchanged(place: Place) -> None:
    place.user({"sessionDir": "~/x", "model": "~nouser/x", "providers": {"mine": {"type": "openai"}}})
    assert place.load().settings.model == "~nouser/x"


def test_invalid_utf8_is_reported(place: Place) -> None:
    place.environment = {"YARROW_MODEL": "caf\udce9"}
    assert place.refusal() == r"YARROW_MODEL: model: 'caf\udce9' is not valid UTF-8; save it as UTF-8"
    place.environment = {}
    place.overrides = {"sessionDir": "caf\udce9"}
    assert place.refusal().startswith("--session-dir: sessionDir: ")


def test_a_built_in_id_before_a_model_is_the_provider(tmp_path: Path) -> None:
    """Above all that of a local server: a prompt meant for it must not go to whatever else is configured."""
    for name in BUILT_IN_PROVIDERS:
        loaded = load_settings(home=tmp_path, cwd=tmp_path, environment={}, overrides={"model": f"{name}/qwen3:8b"})
        assert (loaded.settings.provider, loaded.settings.model) == (name, "qwen3:8b")


# ---- permissions ----


def test_a_project_can_only_tighten_permissions(place: Place) -> None:
    place.user({"permissions": {"mode": "deny", "rules": {"bash": "ask", "write": "deny", "edit": "auto"}}})
    rules = {"bash": "deny", "write": "ask", "edit": "auto", "read": "auto", "grep": "ask"}
    always = [{"tool": "bash", "subject": "x", "cwd": "/"}]
    place.projects({"permissions": {"mode": "ask", "rules": rules, "always": always, "timeout": 9}})
    loaded = place.load()
    permissions = loaded.settings.permissions
    assert permissions.rules == {"bash": "deny", "write": "deny", "edit": "auto", "grep": "ask"}
    assert (permissions.mode, permissions.always, permissions.timeout) == ("deny", (), 600.0)
    (notice,) = loaded.notices
    assert "can only restrict" in notice
    for ignored in ("always", "timeout", "mode", "rules.write", "rules.read"):
        assert f"permissions.{ignored}" in notice


@pytest.mark.parametrize("rule", ["bash(ls", "(ls)", "ba)sh", "", "bash(ls) x"])
def test_a_rule_that_cannot_match_is_rejected(place: Place, rule: str) -> None:
    place.user({"permissions": {"rules": {rule: "deny"}}})
    with pytest.raises(ConfigError, match="use tool or"):
        place.load()


def test_no_file_can_set_the_mode_auto(place: Place) -> None:
    place.user({"permissions": {"mode": "auto"}})
    with pytest.raises(ConfigError, match="the choices are ask, deny, plan"):
        place.load()
