"""The setting `fallback` and its flag: entries that are refused at the start, and who may set it."""

import json
from pathlib import Path
from typing import Any

import pytest

from yarrow.cli.arguments import parse_arguments
from yarrow.config.project_trust import compute_hash, get_trust_key, grant
from yarrow.config.settings_merge import LoadedSettings, load_settings
from yarrow.errors import ConfigError, UsageError

OWN = {"provider": "ollama", "model": "qwen3"}


class Place:
    """A home with a project in it."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = self.home / "project"
        self.project.mkdir(parents=True)

    def write(self, folder: Path, settings: Any) -> Path:
        path = folder / ".yarrow" / "config.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(settings if isinstance(settings, str) else json.dumps(settings))
        return path

    def load(self, *flags: str, **environment: str) -> LoadedSettings:
        overrides = parse_arguments(flags).overrides()
        loaded = load_settings(home=self.home, cwd=self.project, environment=environment, overrides=overrides)
        loaded.check_providers()
        return loaded


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_entries_are_in_order_and_a_model_may_contain_slashes(place: Place) -> None:
    work = {"type": "openai", "baseUrl": "http://127.0.0.1:9/v1"}
    names = ["work/Qwen/Qwen3", "openai/gpt-5"]
    place.write(place.home, {**OWN, "providers": {"work": work}, "fallback": names})
    assert place.load().settings.fallback == tuple(names)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (["qwen3"], "fallback[0] must be PROVIDER/MODEL, not 'qwen3'"),
        (["openai/gpt-5", "openai/"], "fallback[1] must be PROVIDER/MODEL, not 'openai/'"),
        (["/gpt-5"], "fallback[0] must be PROVIDER/MODEL, not '/gpt-5'"),
        ([" /gpt-5"], "fallback[0] must be PROVIDER/MODEL, not ' /gpt-5'"),
        (["openai/gpt-5 "], "fallback[0] must be PROVIDER/MODEL, not 'openai/gpt-5 '"),
        (["openai/ "], "fallback[0] must be PROVIDER/MODEL, not 'openai/ '"),
        ([""], "fallback[0] must be PROVIDER/MODEL, not ''"),
        (["openai/a", "openai/b", "openai/a"], "fallback[2]: 'openai/a' is listed twice; remove one"),
        (["ollama/qwen3"], "fallback[0]: 'ollama/qwen3' is the model that it would replace; name another"),
        (["opnai/gpt-5"], "fallback[0]: 'opnai' in 'opnai/gpt-5' is not a provider; the choices are anthropic, "),
        ("openai/gpt-5", "fallback: expected a list, found a string"),
        ([1], "fallback[0]: expected a string, found the number 1"),
    ],
)
def test_a_wrong_entry_is_refused_with_its_place(place: Place, entries: Any, message: str) -> None:
    place.write(place.home, {**OWN, "fallback": entries})
    with pytest.raises(ConfigError) as caught:
        place.load()
    assert caught.value.message.startswith(f"~/.yarrow/config.json:1: {message}")


def test_the_only_configured_provider_counts_as_the_selected_one(place: Place) -> None:
    place.write(place.home, {"model": "qwen3", "providers": {"ollama": {}}, "fallback": ["ollama/qwen3"]})
    with pytest.raises(ConfigError, match="is the model that it would replace"):
        place.load()


@pytest.mark.parametrize("chosen", [{"flags": ("-m", "openai/gpt-5")}, {"YARROW_MODEL": "openai/gpt-5"}])
def test_a_fallback_may_be_chosen_as_the_model(place: Place, chosen: Any) -> None:
    place.write(place.home, {**OWN, "fallback": ["openai/gpt-5"]})
    loaded = place.load(*chosen.pop("flags", ()), **chosen)
    assert (loaded.settings.model, loaded.settings.fallback) == ("gpt-5", ("openai/gpt-5",))


def test_the_flag_turns_it_off(place: Place) -> None:
    place.write(place.home, {**OWN, "fallback": ["openai/gpt-5"]})
    loaded = place.load("--fallback", "none")
    assert loaded.settings.fallback == ()
    assert loaded.list_origins()["fallback"] == "--fallback"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--fallback", "openai/gpt-5"), "--fallback must be one of: none"),
        (("--fallback", "none", "--attach", "unix:/x"), "--attach and --fallback can't be used together"),
        (("models", "--fallback", "none"), "yarrow models does not accept --fallback"),
    ],
)
def test_the_flag_accepts_nothing_else(flags: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_arguments(flags)
    assert message in caught.value.message


def test_a_list_of_a_project_applies_once_it_is_trusted(place: Place) -> None:
    place.write(place.home, {**OWN, "fallback": ["openai/gpt-5"]})
    path = place.write(place.project, {"fallback": ["gemini/flash"]})
    loaded = place.load()
    assert loaded.settings.fallback == ("openai/gpt-5",)
    assert "so fallback is ignored there" in loaded.notices[0]
    grant(place.home / ".yarrow", get_trust_key(path), compute_hash(path.read_bytes()))
    assert place.load().settings.fallback == ("gemini/flash",)
