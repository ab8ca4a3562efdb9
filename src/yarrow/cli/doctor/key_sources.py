"""Says where a provider's key comes from, by name, and which texts must never be shown."""

from collections.abc import Iterator, Mapping
from urllib.parse import urlsplit

from yarrow.cli.doctor.check import CheckContext
from yarrow.config.settings import BUILT_IN_PROVIDERS, ProviderSettings
from yarrow.policy.secrets import is_secret_variable
from yarrow.provider.api_keys import find_vendor_key
from yarrow.provider.gemini.address import is_official as gemini_is_official
from yarrow.provider.messages.address import is_official
from yarrow.provider.openai.address import parse_address

MIN_SECRET_CHARACTERS = 8
"""Characters; what is shorter may be part of any word, and hiding it would hide too much."""
CREDENTIAL_HEADERS = ("authorization", "api-key", "x-api-key")
"""Headers, in lower case, that bring a key."""


def find_key_source(name: str, settings: ProviderSettings, environment: Mapping[str, str]) -> str:
    """Return what a provider's key is taken from; empty when there is none."""
    if settings.api_key_env:
        return settings.api_key_env
    if settings.api_key_command:
        return f"providers.{name}.apiKeyCommand"
    if any(header.lower() in CREDENTIAL_HEADERS for header in settings.headers):
        return f"providers.{name}.headers"
    built_in = BUILT_IN_PROVIDERS.get(name, ProviderSettings())
    url = settings.base_url or built_in.base_url
    match settings.type or built_in.type:
        case "messages":
            return find_vendor_key(environment, "messages")[1] if is_official(url) else ""
        case "gemini":
            return find_vendor_key(environment, "gemini")[1] if gemini_is_official(url) else ""
        case "openai":
            pass
        case _:
            return ""
    follows = name == "openai" and not url and environment.get("OPENAI_BASE_URL", "").strip()
    return find_vendor_key(environment)[1] if follows or parse_address(url).is_trusted else ""


def list_secrets(context: CheckContext) -> list[str]:
    """Return every text that is a secret or part of one, the longest first."""
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
            yield provider.api_key_env  # a key in the place of a variable's name
        yield from provider.headers.values()
        yield from _secrets_in_url(provider.base_url)
    yield from _secrets_in_url(context.environment.get("OPENAI_BASE_URL", ""))


def _secrets_in_url(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        yield url
        return
    yield from filter(None, [parts.password, parts.query, parts.netloc.rpartition("@")[0]])
