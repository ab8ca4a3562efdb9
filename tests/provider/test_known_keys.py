"""Which keys of providers a process knows: of variables, headers and commands, and none too short to look for."""

import pytest

from yarrow.config.settings import ProviderSettings, Settings
from yarrow.provider import keys
from yarrow.provider.keys import MOST_USED, configured_key, known_keys


@pytest.fixture(autouse=True)
def _nothing_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "_used", {})


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
    known = known_keys(Settings(providers={"here": here}), environment)
    assert known == {"of-a-variable", "of-a-vendor", "of-a-header", "Bearer of-a-header"}


async def test_what_commands_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    one = ProviderSettings(api_key_command="echo printed-key")
    assert await configured_key("here", one, {"PATH": "/usr/bin:/bin"}) == "printed-key"
    assert known_keys(Settings(), {}) == {"printed-key"}
    monkeypatch.setattr(keys, "_used", dict.fromkeys(f"earlier-{at}" for at in range(MOST_USED)))
    await configured_key("here", one, {"PATH": "/usr/bin:/bin"})
    known = known_keys(Settings(), {})
    assert len(known) == MOST_USED
    assert "printed-key" in known
    assert "earlier-0" not in known
