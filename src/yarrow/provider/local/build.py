"""Makes the provider of the `local` type: a server of our own around a model file, and an adapter that speaks to it."""

from pathlib import Path

from msgspec.structs import replace

from yarrow.errors import Code, ProviderError
from yarrow.provider.base import Provider
from yarrow.provider.http.client import HttpClient
from yarrow.provider.llamacpp.adapter import LlamaCppProvider
from yarrow.provider.local.lacking import lacking
from yarrow.provider.local.models import STARTER_ANSWER, find_gguf, installed, is_starter
from yarrow.provider.local.provider import LocalProvider
from yarrow.provider.local.server import LocalServer, LocalSettings
from yarrow.provider.plan import Plan


async def build(plan: Plan) -> Provider:
    """Return the provider; the model is looked for and loaded when it is first asked."""
    settings = plan.settings

    async def start() -> LocalServer:
        if lacks := lacking():
            # Before a model is asked for, which could not be run.
            raise ProviderError(Code.PROVIDER_SETUP, lacks)
        path = _model(plan)
        return await LocalServer.start(LocalSettings(str(path), settings.context_window, settings.chat_template))

    def speak(base_url: str, key: str) -> Provider:
        # The library lowers a window that is larger than the model was trained for: only the server knows it.
        model = _model(plan).name
        limit = settings.max_tokens or (STARTER_ANSWER if is_starter(model) else 0)
        there = replace(settings, base_url=base_url, context_window=0, max_tokens=limit)
        return LlamaCppProvider(plan.name, model, settings=there, key=key, http=HttpClient())

    names = (*(Path(path).name for path in settings.models), *installed(plan.environment))
    return LocalProvider(start, speak, names)


def _model(plan: Plan) -> Path:
    """Return the file of the model that is named, else of the first that is configured or installed."""
    wanted = (plan.model, f"{plan.model}.gguf")
    named = [path for path in plan.settings.models if plan.model and Path(path).name in wanted]
    names = named or ([plan.model] if plan.model else [*plan.settings.models, *installed(plan.environment)])
    if not names:
        sentence = "there is no local model: run `yarrow models pull`, or set providers.local.models to GGUF files"
        raise ProviderError(Code.PROVIDER_SETUP, sentence)
    return find_gguf(names[0], plan.environment)
