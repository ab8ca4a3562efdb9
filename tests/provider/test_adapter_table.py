"""The table of adapters: each row names what it says, and a vendor's key never travels in the clear."""

import subprocess
import sys
from importlib import import_module
from inspect import iscoroutinefunction

import pytest

from yarrow.config.provider_adapter_table import ADAPTERS
from yarrow.config.settings import BUILT_IN_PROVIDERS, ProviderSettings, Settings
from yarrow.errors import Code, ProviderError
from yarrow.provider.factory import ProviderContext, create_provider

KEYS = {"OPENAI_API_KEY": "sk-o", "ANTHROPIC_API_KEY": "sk-a", "GEMINI_API_KEY": "sk-g"}


@pytest.mark.parametrize("kind", ADAPTERS)
def test_each_row_names_a_builder(kind: str) -> None:
    assert iscoroutinefunction(import_module(ADAPTERS[kind].module).build)


def test_the_ids_that_need_no_configuration() -> None:
    assert {name: settings.type for name, settings in BUILT_IN_PROVIDERS.items()} == {
        "ollama": "ollama",
        "llamacpp": "llamacpp",
        "openai": "openai",
        "openai-responses": "responses",
        "anthropic": "messages",
        "gemini": "gemini",
        "local": "local",
        "scripted": "scripted",
    }


def test_creating_a_provider_imports_no_other() -> None:
    code = (
        "import asyncio, sys\nfrom yarrow.config.settings import Settings\n"
        "from yarrow.provider.factory import ProviderContext, create_provider\n"
        "asyncio.run(create_provider('llamacpp', 'm', ProviderContext(Settings(), {})))\n"
        "print(*(name for name in sys.modules if name.startswith('yarrow.provider.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = done.stdout.split()
    assert "yarrow.provider.llamacpp.adapter" in loaded
    others = {adapter.module for kind, adapter in ADAPTERS.items() if kind != "llamacpp"}
    assert not others & set(loaded)


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("openai", "http://api.openai.com/v1"),
        ("work", "http://api.openai.com/v1"),
    ],
)
async def test_a_vendors_key_is_not_used_over_plain_http(name: str, url: str) -> None:
    settings = Settings(providers={name: ProviderSettings(type="openai", base_url=url)})
    with pytest.raises(ProviderError) as caught:
        await create_provider(name, "m", ProviderContext(settings, KEYS))
    assert caught.value.code is Code.PROVIDER_SETUP
