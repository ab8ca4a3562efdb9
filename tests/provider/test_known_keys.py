"""Provider keys that a process knows, from variables, headers and commands; too short ones are excluded."""

import pytest

from yarrow.config.settings import ProviderSettings, Settings
from yarrow.errors import ProviderError
from yarrow.provider import api_keys
from yarrow.provider.api_keys import MAX_REMEMBERED_KEYS, find_configured_key, list_known_keys


@pytest.fixture(autouse=True)
def _nothing_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_keys, "_remembered_keys", {})


def test_variables_and_headers() -> None:
    here = ProviderSettings(
        api_key_env="MINE", headers={"Authorization": "Bearer of-a-header", "X-Title": "no-secret-at-all"}
    )
    environment = {
        "MINE": " of-a-variable ",
        "OPENAI_API_KEY": "of-a-vendor",
        "GEMINI_API_KEY": "short",
        "HOME": "/home/me/x",
    }
    known = list_known_keys(Settings(providers={"here": here}), environment)
    assert known == {"of-a-variable", "of-a-vendor", "of-a-header", "Bearer of-a-header"}


def test_addresses_bodies_and_keys_in_the_wrong_place() -> None:
    there = ProviderSettings(
        base_url="https://me:of%2Dan-address@host/v1?api-version=2024-05-01&key=of-a-query",
        extra_body={
            "user": "no-secret-at-all",
            "prompt_cache_key": "the-name-of-a-project",
            "options": [{"proxyToken": "of-a-body", "max_tokens": 12345678, "stop_token": "<|end_of_text|>"}],
            "note": "sk-proj-0123456789abcdef",
        },
    )
    typed = ProviderSettings(api_key_env="sk-proj-in-place-of-a-name")
    other = ProviderSettings(base_url="https://developer@[::1]", api_key_env="PLAIN_NAME_OF_A_VARIABLE")
    broken = ProviderSettings(base_url="https://[broken")
    settings = Settings(providers={"there": there, "typed": typed, "other": other, "broken": broken})
    environment = {"OPENAI_BASE_URL": "http://of-a-variable-01:@host/v1", "OLLAMA_HOST": "http://x:last-one@h"}
    known = list_known_keys(settings, environment)
    assert known == {
        "of%2Dan-address", "of-an-address", "of-a-query", "of-a-body", "sk-proj-0123456789abcdef",
        "sk-proj-in-place-of-a-name", "of-a-variable-01", "last-one",
    }  # fmt: skip


async def test_output_of_key_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    one = ProviderSettings(api_key_command="echo printed-key")
    assert await find_configured_key("here", one, {"PATH": "/usr/bin:/bin"}) == "printed-key"
    assert list_known_keys(Settings(), {}) == {"printed-key"}
    monkeypatch.setattr(
        api_keys, "_remembered_keys", dict.fromkeys(f"earlier-{at}" for at in range(MAX_REMEMBERED_KEYS))
    )
    await find_configured_key("here", one, {"PATH": "/usr/bin:/bin"})
    known = list_known_keys(Settings(), {})
    assert len(known) == MAX_REMEMBERED_KEYS
    assert "printed-key" in known
    assert "earlier-0" not in known


@pytest.mark.parametrize("key", ["sk-12345", "sk-proj-in-place-of-a-name", "AIzaSyInPlaceOfTheName0123456789"])
async def test_a_key_in_the_wrong_place_is_not_repeated(key: str) -> None:
    with pytest.raises(ProviderError, match="must be the name of a variable") as caught:
        await find_configured_key("here", ProviderSettings(api_key_env=key), {})
    assert key not in str(caught.value)


async def test_errors_of_a_key_command_show_no_key() -> None:
    command = "echo 'no entry for' sk-proj-7Q2xF9hLw4-0123456789: locked >&2; exit 7"
    with pytest.raises(ProviderError) as caught:
        await find_configured_key("here", ProviderSettings(api_key_command=command), {"PATH": "/usr/bin:/bin"})
    assert caught.value.message == "providers.here.apiKeyCommand failed with exit status 7: no entry for [key] locked"
