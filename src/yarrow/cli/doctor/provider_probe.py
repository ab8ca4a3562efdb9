"""Probe of one provider: its key, its models and their capabilities."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from yarrow.cli.doctor.report import CheckContext
from yarrow.config.provider_adapter_table import ADAPTERS, VENDORS, get_provider_id
from yarrow.config.settings import BUILT_IN_PROVIDERS, ProviderSettings, Settings
from yarrow.errors import Code, ProviderError, YarrowError
from yarrow.policy.secret_names import is_secret_variable
from yarrow.provider.api_keys import VENDOR_URL_VARIABLES, find_server_variable, find_vendor_key, has_credential_header
from yarrow.provider.base import ListsModels, ModelEntry, Provider, ProviderInfo
from yarrow.provider.base_urls import is_vendor_url
from yarrow.provider.factory import ProviderContext, create_provider
from yarrow.provider.local.model_files import find_gguf, find_unavailable_reason

_NO_LIST = (Code.NOT_FOUND, Code.UNSUPPORTED_FEATURE, Code.INVALID_REQUEST)
"""Errors of a server that answers but does not list its models."""


class ProviderProbe(NamedTuple):
    """A provider to probe; `model` is the configured model, empty if the provider chooses."""

    context: CheckContext
    name: str
    model: str
    is_chosen: bool
    """True if a prompt would use it."""

    @property
    def settings(self) -> ProviderSettings:
        """Its configured settings, or the defaults."""
        return self.context.loaded.settings.providers.get(self.name, ProviderSettings())

    @property
    def type(self) -> str:
        """Type of its adapter; empty if unknown."""
        return self.settings.type or BUILT_IN_PROVIDERS.get(self.name, ProviderSettings()).type or ""

    @property
    def is_server(self) -> bool:
        """True if it is reached over a connection."""
        return self.type not in ADAPTERS or ADAPTERS[self.type].is_server

    @property
    def is_configured(self) -> bool:
        """True if it is chosen, a fallback, or configured."""
        settings = self.context.loaded.settings
        return self.is_chosen or self.name in (*list_fallback_providers(settings), *settings.providers)

    @property
    def base_url(self) -> str:
        """Configured address; empty if there is none."""
        configured = self.settings.base_url or BUILT_IN_PROVIDERS.get(self.name, ProviderSettings()).base_url
        follows = not configured and self.type in VENDORS and self.name == get_provider_id(self.type)
        return self.context.environment.get(ADAPTERS[self.type].url_variable, "").strip() if follows else configured

    @property
    def is_vendor(self) -> bool:
        """True if it is the vendor's own service, whose address need not be configured."""
        return self.type in VENDORS and not self.base_url

    @property
    def key_source(self) -> str:
        """Source of its key; empty if it has none."""
        return find_key_source(self.name, self.settings, self.context.environment)


def list_fallback_providers(settings: Settings) -> list[str]:
    """Return the provider of each fallback."""
    return [entry.partition("/")[0] for entry in settings.fallback]


def list_detectable(environment: Mapping[str, str]) -> list[str]:
    """Return the built-in providers that need no configuration if they answer; if they do not, they are not reported.

    These are those without a vendor, and those whose vendor's key or address is in the environment.
    """
    return [
        get_provider_id(kind)
        for kind, adapter in ADAPTERS.items()
        if adapter.is_detectable and (adapter.vendor is None or find_server_variable(environment, kind))
    ]


class ProbeResult(NamedTuple):
    """Result of a probe; `info` describes the chosen model, or is the error why there is none."""

    models: Sequence[ModelEntry]
    has_model_list: bool
    milliseconds: float
    info: ProviderInfo | YarrowError


async def run_probe(probe: ProviderProbe) -> ProbeResult:
    """Probe a provider. Raises `YarrowError` if it cannot be created or does not answer."""
    context = probe.context
    created = await create_provider(
        probe.name, probe.model, ProviderContext(context.loaded.settings, context.environment)
    )
    try:
        started = time.monotonic()
        models = await _fetch_models(created.provider)
        milliseconds = (time.monotonic() - started) * 1000
        info = await _fetch_info(probe, created.provider, models or ())
        return ProbeResult(models or (), models is not None, milliseconds, info)
    finally:
        await created.provider.close()


async def _fetch_models(provider: Provider) -> Sequence[ModelEntry] | None:
    """Return the models; None if the provider does not list them."""
    if not isinstance(provider, ListsModels):
        return None
    try:
        return await provider.list_models()
    except ProviderError as error:
        if error.status and error.code in _NO_LIST:
            return None
        raise


async def _fetch_info(
    probe: ProviderProbe, provider: Provider, models: Sequence[ModelEntry]
) -> ProviderInfo | YarrowError:
    try:
        # A model on this machine would have to be loaded to answer, which takes too long here.
        if probe.type == "local":
            return _find_local_model(probe, models)
        return await provider.info() if probe.is_chosen else ProviderInfo(probe.name, probe.model)
    except YarrowError as error:
        return error


def _find_local_model(probe: ProviderProbe, models: Sequence[ModelEntry]) -> ProviderInfo:
    if lacks := find_unavailable_reason():
        raise ProviderError(Code.PROVIDER_SETUP, lacks)
    names = [entry.name for entry in models]
    if not probe.model and not names:
        raise ProviderError(Code.PROVIDER_SETUP, "no local model: run `yarrow models pull`")
    model = probe.model or names[0]
    if model not in names:
        find_gguf(model, probe.context.environment)
    return ProviderInfo(probe.name, model, context_window=probe.settings.context_window)


MIN_SECRET_CHARACTERS = 8
"""Minimum characters of a hidden text; a shorter one may be part of any word, and hiding it would hide too much."""


def find_key_source(name: str, settings: ProviderSettings, environment: Mapping[str, str]) -> str:
    """Return the source of a provider's key; empty if it has none."""
    if settings.api_key_env:
        return settings.api_key_env
    if settings.api_key_command:
        return f"providers.{name}.apiKeyCommand"
    if has_credential_header(settings):
        return f"providers.{name}.headers"
    built_in = BUILT_IN_PROVIDERS.get(name, ProviderSettings())
    kind = settings.type or built_in.type or ""
    if kind not in VENDORS or not is_vendor_url(settings.base_url or built_in.base_url, kind):
        return ""
    return find_vendor_key(environment, kind)[1]


def list_secrets(context: CheckContext) -> list[str]:
    """Return every secret and part of a secret, longest first."""
    found = {text for text in _iterate_secrets(context) if len(text) >= MIN_SECRET_CHARACTERS}
    return sorted(found, key=len, reverse=True)


def _iterate_secrets(context: CheckContext) -> Iterator[str]:
    providers = context.loaded.settings.providers.values()
    named = {provider.api_key_env for provider in providers}
    for name, value in context.environment.items():
        if name in named or is_secret_variable(name, value):
            yield from {value, value.strip()}
    for provider in providers:
        if is_secret_variable("", provider.api_key_env):
            yield provider.api_key_env  # a key given in place of a variable's name
        yield from provider.headers.values()
        yield from _secrets_in_url(provider.base_url)
    for variable in VENDOR_URL_VARIABLES:
        yield from _secrets_in_url(context.environment.get(variable, ""))


def _secrets_in_url(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        yield url
        return
    yield from filter(None, [parts.password, parts.query, parts.netloc.rpartition("@")[0]])
