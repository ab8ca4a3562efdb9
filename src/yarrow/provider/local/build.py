"""Makes the provider of the `local` type: a server of our own around a model file, and an adapter that speaks to it."""

from pathlib import Path

from msgspec.structs import replace

from yarrow.errors import Code, ProviderError
from yarrow.provider.adapter_config import AdapterConfig
from yarrow.provider.base import Provider
from yarrow.provider.http.client import HttpClient
from yarrow.provider.llamacpp.adapter import LlamaCppProvider
from yarrow.provider.local.availability import find_unavailable_reason
from yarrow.provider.local.model_files import STARTER_MAX_TOKENS, find_gguf, is_starter, list_installed
from yarrow.provider.local.provider import LocalProvider
from yarrow.provider.local.server import LocalServer, LocalSettings


async def build(config: AdapterConfig) -> Provider:
    """Return the provider; the model is looked for and loaded when it is first asked."""
    settings = config.settings

    async def start() -> LocalServer:
        if lacks := find_unavailable_reason():
            # Before a model is asked for, which could not be run.
            raise ProviderError(Code.PROVIDER_SETUP, lacks)
        path = _find_model(config)
        return await LocalServer.start(LocalSettings(str(path), settings.context_window, settings.chat_template))

    def speak(base_url: str, key: str) -> Provider:
        # The library lowers a window that is larger than the model was trained for: only the server knows it.
        model = _find_model(config).name
        limit = settings.max_tokens or (STARTER_MAX_TOKENS if is_starter(model) else 0)
        there = replace(settings, base_url=base_url, context_window=0, max_tokens=limit)
        return LlamaCppProvider(config.name, model, settings=there, key=key, http=HttpClient())

    names = (*(Path(path).name for path in settings.models), *list_installed(config.environment))
    return LocalProvider(start, speak, names)


def _find_model(config: AdapterConfig) -> Path:
    """Return the file of the model that is named, else of the first that is configured or installed."""
    wanted = (config.model, f"{config.model}.gguf")
    named = [path for path in config.settings.models if config.model and Path(path).name in wanted]
    names = named or (
        [config.model] if config.model else [*config.settings.models, *list_installed(config.environment)]
    )
    if not names:
        sentence = "there is no local model: run `yarrow models pull`, or set providers.local.models to GGUF files"
        raise ProviderError(Code.PROVIDER_SETUP, sentence)
    return find_gguf(names[0], config.environment)
