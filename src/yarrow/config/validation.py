"""Checks that every key of one source of settings is known and that every value can stand where it does."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from yarrow.config.adapters import ADAPTERS
from yarrow.config.layer import KeyPath, Layer, NamedLayer, format_path
from yarrow.config.model_provider import find_model_provider
from yarrow.config.secret_mask import mask_secrets
from yarrow.config.settings import BUILT_IN_PROVIDERS, Settings
from yarrow.config.text_validation import check_texts
from yarrow.config.type_validation import InvalidValueError, check_types
from yarrow.errors import ConfigError

MAX_NUMBER = 2**31 - 1
"""Of any number that is configured: what every counter on the wire can hold."""

MAX_SHOWN_NUMBER = 10**18
"""A number that is further from 0 is not told: it may have any number of digits."""

POSITIVE_NUMBERS = {
    ("service", name)
    for name in (
        "sessions", "runs", "subscribers", "connections", "idleSeconds", "streams",
        "messageBytesIn", "messageBytesOut", "metadataBytes",
    )
}  # fmt: skip
"""Numbers that must be 1 at least: with none a service answers nobody, and clients wait for ever."""


def check_layer(layer: Layer) -> None:
    """Raise `ConfigError` for the first thing in a source that is wrong, with its place and what is right."""
    try:
        try:
            msgspec.convert(layer.values, Settings)
        except msgspec.ValidationError:
            # It raises, unless nothing is wrong but the size of a number, which comes next.
            check_types(layer.values, Settings)
        _check_numbers(layer.values, ())
        _check_urls(layer.values)
        _check_rules(layer.values)
        check_texts(layer.values)
    except InvalidValueError as fault:
        raise ConfigError(f"{layer.get_origin(fault.path)}: {fault}") from None


def check_directories(layers: Sequence[Layer], home: Path, cwd: Path) -> None:
    """Raise `ConfigError` for an entry of `workspace.extra` that exists and is not a directory."""
    for layer in layers:
        extra = layer.values.get("workspace", {}).get("extra", ())
        for number, text in enumerate(extra):
            path = cwd / (home / text[2:] if text.startswith("~/") else text)
            try:
                is_other = path.exists() and not path.is_dir()
            except (OSError, ValueError):  # what is no path is refused when a workspace is made of it
                continue
            if is_other:
                place = layer.get_origin(("workspace", "extra", number))
                raise ConfigError(
                    f"{place}: workspace.extra holds {text!r}, which is not a directory: name its directory"
                )


def check_providers(settings: Settings, layers: Sequence[Layer], added: Collection[str]) -> None:
    """Raise `ConfigError` unless the provider in force and every configured provider has an adapter.

    `added` are the ids of providers that bring their own.
    """
    ready = {*BUILT_IN_PROVIDERS, *added}
    for name, provider in settings.providers.items():
        if provider.type is None and name not in ready:
            path = ("providers", name)
            place = next(
                layer.get_origin(path) for layer in reversed(layers) if name in layer.values.get("providers", ())
            )
            raise ConfigError(f"{place}: {format_path(path)} needs a type, one of {', '.join(ADAPTERS)}")
    known = sorted({*settings.providers, *ready})
    if settings.provider and settings.provider not in known:
        place = next(layer.get_origin(("provider",)) for layer in reversed(layers) if "provider" in layer.values)
        raise ConfigError(
            f"{place}: provider {settings.provider!r} is not configured; the choices are {', '.join(known)}"
        )
    _check_slash(settings, layers, known)


def _check_slash(settings: Settings, layers: Sequence[Layer], known: Sequence[str]) -> None:
    """Raise `ConfigError` for `x/y` of a variable or a flag where `x` is no provider, and none is named besides."""
    before, slash, _ = settings.model.partition("/")
    layer = next((each for each in reversed(layers) if "model" in each.values), None)
    if slash and isinstance(layer, NamedLayer) and not find_model_provider(settings):
        raise ConfigError(
            f"{layer.get_origin(('model',))}: {before!r} in {settings.model!r} is no provider; the choices are "
            f"{', '.join(known)}; if the model's own name holds the slash, name its provider: --provider ID"
        )


def _check_numbers(values: Any, path: KeyPath) -> None:
    """Raise `InvalidValueError` for a number that no setting can be; what a provider is sent as it is may be any."""
    match values:
        case dict():
            for key, value in cast("dict[str, Any]", values).items():
                if key != "extraBody":
                    _check_numbers(value, (*path, key))
        case int() | float() if not (least := int(path in POSITIVE_NUMBERS)) <= values <= MAX_NUMBER:
            told = f", and is {values}" if abs(values) <= MAX_SHOWN_NUMBER else ""
            raise InvalidValueError(path, f"{format_path(path)} must lie between {least} and {MAX_NUMBER}{told}")
        case _:
            return


def _check_rules(values: dict[str, Any]) -> None:
    """Raise `InvalidValueError` for a rule that would match nothing, since it does not close what it opens."""
    for rule in values.get("permissions", {}).get("rules", {}):
        tool, bracket, rest = rule.partition("(")
        if not tool.strip() or ")" in tool or (bracket and not rest.endswith(")")):
            raise InvalidValueError(
                ("permissions", "rules", rule), f"the rule {rule!r} is neither tool nor tool(pattern)"
            )


def _check_urls(values: dict[str, Any]) -> None:
    for name, provider in values.get("providers", {}).items():
        url, path = provider.get("baseUrl", ""), ("providers", name, "baseUrl")
        scheme, _, rest = url.partition("://")
        told = repr(mask_secrets(path, url) if rest else url.rpartition("@")[2])
        if url and (scheme not in ("http", "https") or not rest.strip("/") or any(each.isspace() for each in url)):
            raise InvalidValueError(
                path, f"{format_path(path)} must begin with http:// or https:// and name a host, and is {told}"
            )
        kind = provider.get("type", name)
        if "#" in url or ("?" in url and kind != "openai"):
            raise InvalidValueError(path, f"{format_path(path)} is {told}: remove the query or fragment")
