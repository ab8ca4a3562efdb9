"""Construction of the configured, named or detected provider; the only module that imports adapters."""

from collections.abc import Mapping
from importlib import import_module
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from yarrow.config.provider_adapter_table import ADAPTERS
from yarrow.config.settings import BUILT_IN_PROVIDERS, ProviderSettings, Settings
from yarrow.errors import Code, ConfigError, ProviderError
from yarrow.provider.base import AdapterConfig, Provider, ProviderBuilder, ProviderInfo


class ReadyProvider(NamedTuple):
    """A ready provider, its capabilities, and the reason for choosing it (empty if it was named)."""

    provider: Provider
    info: ProviderInfo
    reason: str


class NewProvider(NamedTuple):
    """A provider before its first request, its id, and the reason for choosing it (empty if it was named)."""

    provider: Provider
    name: str
    reason: str


class ProviderContext(Struct, frozen=True):
    """Settings, environment and extensions that providers are built from."""

    settings: Settings
    environment: Mapping[str, str]
    contributed: Mapping[str, ProviderBuilder] = {}
    """Builders added by extensions, by provider id; such an id needs no configuration."""


async def build_provider(name: str, model: str, context: ProviderContext) -> ReadyProvider:
    """Return the provider `name` for `model`; an empty name detects one, an empty model uses its first.

    Raises ProviderError (PROVIDER_SETUP says what to do) and ConfigError.
    """
    created = await create_provider(name, model, context)
    try:
        info = await created.provider.info()
    except BaseException:  # also on cancellation: a child process may have been started
        await created.provider.close()
        raise
    return ReadyProvider(created.provider, info, created.reason)


async def create_provider(name: str, model: str, context: ProviderContext) -> NewProvider:
    """Return the provider without querying its capabilities; listing its models needs no more."""
    reason = ""
    if not name:
        from yarrow.provider.backend_detection import detect

        found = await detect(context.environment, context.settings)
        name, model, reason = found.name, model or found.model, found.reason
    configured = context.settings.providers.get(name)
    added = context.contributed.get(name) if configured is None or configured.type is None else None
    if added is not None:
        config = AdapterConfig(name, model, configured or ProviderSettings(), context.environment)
        return NewProvider(await added(config), name, reason)
    config = AdapterConfig(name, model, _find_settings(name, context), context.environment)
    _check_slash(config, context)
    return NewProvider(await _import_builder(config.settings.type or "openai")(config), name, reason)


def _import_builder(kind: str) -> ProviderBuilder:
    """Import the module that the table of adapters names."""
    return import_module(ADAPTERS[kind].module).build


def _list_known(context: ProviderContext) -> str:
    return ", ".join(sorted({*BUILT_IN_PROVIDERS, *context.settings.providers, *context.contributed}))


def _check_slash(config: AdapterConfig, context: ProviderContext) -> None:
    """Raise PROVIDER_SETUP if a model has a slash that its provider never uses: a provider was meant."""
    kind, (before, slash, _) = config.settings.type or "openai", config.model.partition("/")
    if slash and not ADAPTERS[kind].has_slashes:
        sentence = f"unknown provider {before!r}: use one of {_list_known(context)} (-m ID/MODEL); models of "
        raise ProviderError(Code.PROVIDER_SETUP, f"{sentence}{config.name} have no slash in their names")


def _find_settings(name: str, context: ProviderContext) -> ProviderSettings:
    """Return a provider's settings, with the defaults of its id filled in."""
    built_in = BUILT_IN_PROVIDERS.get(name)
    configured = context.settings.providers.get(name)
    if configured is None and built_in is None:
        sentence = (
            f"unknown provider {name!r}: use one of {_list_known(context)} (-m ID/MODEL), or configure providers.{name}"
        )
        raise ProviderError(Code.PROVIDER_SETUP, sentence)
    if configured is None:
        configured = ProviderSettings()
    if built_in is None and configured.type is None:
        raise ConfigError(f"providers.{name} has no type; set one of {', '.join(ADAPTERS)}")
    if built_in is None or configured.type not in (None, built_in.type):
        return configured
    return replace(configured, type=built_in.type, base_url=configured.base_url or built_in.base_url)
