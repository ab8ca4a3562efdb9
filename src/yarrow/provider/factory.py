"""Builds the provider that is configured, named or found; the only place that names an adapter."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from yarrow.config.settings import BUILT_IN, ProviderSettings, ProviderType, Settings
from yarrow.errors import Code, ConfigError, ProviderError
from yarrow.provider.base import Provider, ProviderInfo


class Built(NamedTuple):
    """A provider that is ready, what it can do, and one sentence on why it was chosen; empty when it was named."""

    provider: Provider
    info: ProviderInfo
    reason: str


class Created(NamedTuple):
    """A provider that was asked nothing yet, its id, and why it was chosen; empty when it was named."""

    provider: Provider
    name: str
    reason: str


class Plan(Struct, frozen=True):
    """What an adapter is built from."""

    name: str
    model: str
    settings: ProviderSettings
    environment: Mapping[str, str]


Builder = Callable[[Plan], Awaitable[Provider]]
"""Makes a provider that was asked nothing yet; raises ProviderError and ConfigError."""


class Ground(Struct, frozen=True):
    """What providers are built on."""

    settings: Settings
    environment: Mapping[str, str]
    added: Mapping[str, Builder] = {}
    """What extensions add, by provider id; each id is also one that needs no configuration."""


async def build(name: str, model: str, ground: Ground) -> Built:
    """Return the provider `name` for `model`; an empty name looks for one, an empty model takes its first.

    Raises ProviderError (PROVIDER_SETUP says what to do) and ConfigError.
    """
    created = await create(name, model, ground)
    try:
        info = await created.provider.info()
    except BaseException:  # also a cancellation: a child process may have been started
        await created.provider.close()
        raise
    return Built(created.provider, info, created.reason)


async def create(name: str, model: str, ground: Ground) -> Created:
    """Return the provider without asking it what it can do, as listing its models needs it."""
    reason = ""
    if not name:
        from yarrow.provider.detection import detect

        found = await detect(ground.environment, ground.settings)
        name, model, reason = found.name, model or found.model, found.reason
    configured = ground.settings.providers.get(name)
    added = ground.added.get(name) if configured is None or configured.type is None else None
    if added is not None:
        plan = Plan(name, model, configured or ProviderSettings(), ground.environment)
        return Created(await added(plan), name, reason)
    plan = Plan(name, model, _settings(name, ground), ground.environment)
    return Created(await _BUILDERS[plan.settings.type or "openai"](plan), name, reason)


def _settings(name: str, ground: Ground) -> ProviderSettings:
    """Return a provider's settings, with what its id alone means filled in."""
    built_in = BUILT_IN.get(name)
    configured = ground.settings.providers.get(name)
    if configured is None and built_in is None:
        known = ", ".join(sorted({*BUILT_IN, *ground.settings.providers, *ground.added}))
        sentence = f"there is no provider {name!r}: name one of {known}, or configure providers.{name} with a type"
        raise ProviderError(Code.PROVIDER_SETUP, sentence)
    if configured is None:
        configured = ProviderSettings()
    if built_in is None and configured.type is None:
        raise ConfigError(f"providers.{name} has no type; one of {', '.join(_BUILDERS)}")
    if built_in is None or configured.type not in (None, built_in.type):
        return configured
    return replace(configured, type=built_in.type, base_url=configured.base_url or built_in.base_url)


async def _openai(plan: Plan) -> Provider:
    from yarrow.provider.http.client import HttpClient
    from yarrow.provider.keys import configured_key, vendor_key
    from yarrow.provider.openai.adapter import OpenAiProvider
    from yarrow.provider.openai.address import address_of

    settings = plan.settings
    key = await configured_key(plan.name, settings, plan.environment)
    # The variable names a server and the key beside it is for that server: a convention of many programs.
    elsewhere = plan.environment.get("OPENAI_BASE_URL", "").strip()
    follows = bool(elsewhere) and plan.name == "openai" and not settings.base_url
    if follows:
        settings = replace(settings, base_url=elsewhere)
    address = address_of(settings.base_url)
    if not key and (follows or address.trusted):
        key, _ = vendor_key(plan.environment)
    if not key and address.official and not _brings_credentials(settings):
        sentence = f"{plan.name} needs a key: export OPENAI_API_KEY=..., or set providers.{plan.name}.apiKeyEnv"
        raise ProviderError(Code.PROVIDER_SETUP, f"{sentence} or apiKeyCommand")
    return OpenAiProvider(plan.name, plan.model, settings=settings, key=key, http=HttpClient(plan.environment))


def _brings_credentials(settings: ProviderSettings) -> bool:
    return any(name.lower() in ("authorization", "api-key", "x-api-key", "x-goog-api-key") for name in settings.headers)


async def _messages(plan: Plan) -> Provider:
    from yarrow.provider.http.client import HttpClient
    from yarrow.provider.keys import configured_key
    from yarrow.provider.messages.adapter import MessagesProvider
    from yarrow.provider.messages.address import is_official

    settings = plan.settings
    key = await configured_key(plan.name, settings, plan.environment)
    if not key and is_official(settings.base_url):
        key = _vendors_key(plan, "messages", "ANTHROPIC_API_KEY")
    http = HttpClient(plan.environment)
    provider = MessagesProvider(plan.name, plan.model, settings=settings, key=key, http=http)
    provider.thinking_style = settings.thinking_style
    return provider


async def _ollama(plan: Plan) -> Provider:
    from yarrow.provider.http.client import HttpClient
    from yarrow.provider.keys import configured_key
    from yarrow.provider.ollama.adapter import OllamaProvider
    from yarrow.provider.ollama.address import is_hosted, root_of

    settings = plan.settings
    if not settings.base_url and plan.name == "ollama":
        settings = replace(settings, base_url=plan.environment.get("OLLAMA_HOST", "").strip())
    key = await configured_key(plan.name, settings, plan.environment)
    root = root_of(settings.base_url)
    if not key and is_hosted(root) and root.startswith("https://"):
        key = plan.environment.get("OLLAMA_API_KEY", "").strip()
    return OllamaProvider(plan.name, plan.model, settings=settings, key=key, http=HttpClient(plan.environment))


async def _gemini(plan: Plan) -> Provider:
    from yarrow.provider.gemini.adapter import GeminiProvider
    from yarrow.provider.gemini.address import is_official
    from yarrow.provider.http.client import HttpClient
    from yarrow.provider.keys import configured_key

    settings = plan.settings
    key = await configured_key(plan.name, settings, plan.environment)
    if not key and is_official(settings.base_url):
        key = _vendors_key(plan, "gemini", "GEMINI_API_KEY")
    http = HttpClient(plan.environment)
    return GeminiProvider(plan.name, plan.model, settings=settings, key=key, http=http)


def _vendors_key(plan: Plan, provider_type: ProviderType, variable: str) -> str:
    """Return the vendor's key; empty when the configured headers bring one. Raises PROVIDER_SETUP without either."""
    from yarrow.provider.keys import vendor_key

    key, _ = vendor_key(plan.environment, provider_type)
    if not key and not _brings_credentials(plan.settings):
        sentence = f"{plan.name} needs a key: export {variable}=..., or set providers.{plan.name}.apiKeyEnv"
        raise ProviderError(Code.PROVIDER_SETUP, f"{sentence} or apiKeyCommand")
    return key


async def _llamacpp(plan: Plan) -> Provider:
    from yarrow.provider.http.client import HttpClient
    from yarrow.provider.keys import configured_key
    from yarrow.provider.llamacpp.adapter import LlamaCppProvider

    key = await configured_key(plan.name, plan.settings, plan.environment)
    http = HttpClient(plan.environment)
    return LlamaCppProvider(plan.name, plan.model, settings=plan.settings, key=key, http=http)


async def _local(plan: Plan) -> Provider:
    from yarrow.provider.http.client import HttpClient
    from yarrow.provider.llamacpp.adapter import LlamaCppProvider
    from yarrow.provider.local.models import STARTER_ANSWER, installed, is_starter
    from yarrow.provider.local.provider import LocalProvider
    from yarrow.provider.local.server import LocalServer, LocalSettings

    settings = plan.settings

    async def start() -> LocalServer:
        path = _local_model(plan)
        return await LocalServer.start(LocalSettings(str(path), settings.context_window, settings.chat_template))

    def speak(base_url: str, key: str) -> Provider:
        # The library lowers a window that is larger than the model was trained for: only the server knows it.
        model = _local_model(plan).name
        limit = settings.max_tokens or (STARTER_ANSWER if is_starter(model) else 0)
        there = replace(settings, base_url=base_url, context_window=0, max_tokens=limit)
        return LlamaCppProvider(plan.name, model, settings=there, key=key, http=HttpClient())

    names = (*(Path(path).name for path in settings.models), *installed(plan.environment))
    return LocalProvider(start, speak, names)


def _local_model(plan: Plan) -> Path:
    """Return the file of the model that is named, else of the first that is configured or installed."""
    from yarrow.provider.local.models import find_gguf, installed

    wanted = (plan.model, f"{plan.model}.gguf")
    named = [path for path in plan.settings.models if plan.model and Path(path).name in wanted]
    names = named or ([plan.model] if plan.model else [*plan.settings.models, *installed(plan.environment)])
    if not names:
        sentence = "there is no local model: run `yarrow models pull`, or set providers.local.models to GGUF files"
        raise ProviderError(Code.PROVIDER_SETUP, sentence)
    return find_gguf(names[0], plan.environment)


async def _scripted(plan: Plan) -> Provider:
    from yarrow.provider.script import load
    from yarrow.provider.scripted import ScriptedProvider

    if not plan.settings.script:
        raise ConfigError(f"providers.{plan.name}.script is not set; it is the path of the script to play")
    script = load(Path(plan.settings.script).expanduser())
    return ScriptedProvider(plan.name, plan.model, script=script)


_BUILDERS: dict[ProviderType, Builder] = {
    "ollama": _ollama,
    "messages": _messages,
    "gemini": _gemini,
    "openai": _openai,
    "llamacpp": _llamacpp,
    "local": _local,
    "scripted": _scripted,
}
"""Each imports its adapter when it is asked for, so that no run pays for the others."""
