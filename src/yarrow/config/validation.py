"""Validation of settings: types, texts and references, with a specific error for each fault."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import inspect

from yarrow.config.provider_adapter_table import ADAPTERS
from yarrow.config.secret_mask import mask_secrets
from yarrow.config.settings import BUILT_IN_PROVIDERS, Settings
from yarrow.config.settings_source import KeyPath, Layer, NamedLayer, find_model_provider, find_provider, format_path
from yarrow.errors import ConfigError

MAX_NUMBER = 2**31 - 1
"""Maximum of any configured number: the range of every counter on the wire."""

MAX_SHOWN_NUMBER = 10**18
"""Maximum absolute value of a number repeated in an error; others may have any number of digits."""

POSITIVE_NUMBERS = {
    ("service", name)
    for name in (
        "sessions", "runs", "subscribers", "connections", "idleSeconds", "streams",
        "messageBytesIn", "messageBytesOut", "metadataBytes",
    )
}  # fmt: skip
"""Numbers that must be at least 1: with 0 the service would accept nothing, and clients would wait forever."""


def check_layer(layer: Layer) -> None:
    """Raise `ConfigError` for the first fault in a source, with its origin and the valid values."""
    try:
        try:
            msgspec.convert(layer.values, Settings)
        except msgspec.ValidationError:
            # Raises, unless the only fault is the size of a number, which is checked next.
            check_types(layer.values, Settings)
        _check_numbers(layer.values, ())
        _check_urls(layer.values)
        _check_rules(layer.values)
        _check_fallback(layer.values)
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
            except (OSError, ValueError):  # an invalid path is rejected when the workspace is made
                continue
            if is_other:
                place = layer.get_origin(("workspace", "extra", number))
                raise ConfigError(
                    f"{place}: workspace.extra: {text!r} is not a directory; use the directory that contains it"
                )


def check_providers(settings: Settings, layers: Sequence[Layer], added: Collection[str]) -> None:
    """Raise `ConfigError` unless the selected provider and every configured one have an adapter.

    `added` are the ids of providers with an adapter of their own.
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
    _check_fallback_providers(settings, layers, known)


def _check_fallback_providers(settings: Settings, layers: Sequence[Layer], known: Sequence[str]) -> None:
    """Raise `ConfigError` for a fallback whose provider is unknown."""
    for number, entry in enumerate(settings.fallback):
        provider = entry.partition("/")[0]
        if provider not in known:
            layer = next(each for each in reversed(layers) if "fallback" in each.values)
            place = f"{layer.get_origin(('fallback', number))}: fallback[{number}]"
            raise ConfigError(
                f"{place}: {provider!r} in {entry!r} is not a provider; the choices are {', '.join(known)}"
            )


def _check_slash(settings: Settings, layers: Sequence[Layer], known: Sequence[str]) -> None:
    """Raise `ConfigError` for `x/y` from a variable or a flag if `x` is not a provider and no provider is selected."""
    before, slash, _ = settings.model.partition("/")
    layer = next((each for each in reversed(layers) if "model" in each.values), None)
    if slash and isinstance(layer, NamedLayer) and not find_model_provider(settings):
        raise ConfigError(
            f"{layer.get_origin(('model',))}: {before!r} in {settings.model!r} is not a provider; the choices are "
            f"{', '.join(known)}. If the model's own name contains the slash, add --provider ID"
        )


def _check_numbers(values: Any, path: KeyPath) -> None:
    """Raise `InvalidValueError` for a number out of range. Numbers passed to a provider unchanged are exempt."""
    match values:
        case dict():
            for key, value in cast("dict[str, Any]", values).items():
                if key != "extraBody":
                    _check_numbers(value, (*path, key))
        case int() | float() if not (least := int(path in POSITIVE_NUMBERS)) <= values <= MAX_NUMBER:
            told = f", not {values}" if abs(values) <= MAX_SHOWN_NUMBER else ""
            raise InvalidValueError(path, f"{format_path(path)} must be between {least} and {MAX_NUMBER}{told}")
        case _:
            return


def _check_rules(values: dict[str, Any]) -> None:
    """Raise `InvalidValueError` for a malformed rule, which would never match."""
    for rule in values.get("permissions", {}).get("rules", {}):
        tool, bracket, rest = rule.partition("(")
        if not tool.strip() or ")" in tool or (bracket and not rest.endswith(")")):
            raise InvalidValueError(("permissions", "rules", rule), f"invalid rule {rule!r}: use tool or tool(pattern)")


def _check_fallback(values: dict[str, Any]) -> None:
    """Raise `InvalidValueError` for a fallback that is malformed, listed twice, or the model that it would replace."""
    selected = find_provider(values.get("provider", ""), values.get("providers", {}))
    own = f"{selected}/{values.get('model', '')}"
    entries: list[str] = values.get("fallback", [])
    for number, entry in enumerate(entries):
        path = ("fallback", number)
        provider, _, model = entry.partition("/")
        if not (provider and model) or entry != entry.strip():
            raise InvalidValueError(path, f"{format_path(path)} must be PROVIDER/MODEL, not {entry!r}")
        if entry in entries[:number]:
            raise InvalidValueError(path, f"{format_path(path)}: {entry!r} is listed twice; remove one")
        if entry == own:
            raise InvalidValueError(
                path, f"{format_path(path)}: {entry!r} is the model that it would replace; name another"
            )


def _check_urls(values: dict[str, Any]) -> None:
    for name, provider in values.get("providers", {}).items():
        url, path = provider.get("baseUrl", ""), ("providers", name, "baseUrl")
        scheme, _, rest = url.partition("://")
        told = repr(mask_secrets(path, url) if rest else url.rpartition("@")[2])
        if url and (scheme not in ("http", "https") or not rest.strip("/") or any(each.isspace() for each in url)):
            raise InvalidValueError(
                path, f"{format_path(path)} must be an http:// or https:// URL with a host, not {told}"
            )
        kind = provider.get("type", name)
        if "#" in url or ("?" in url and kind != "openai"):
            raise InvalidValueError(path, f"{format_path(path)} is {told}: remove the query or fragment")


NON_SECRET_TYPES = ("true or false", "an integer", "a number")
"""Types of values that are never secrets."""
MAX_SHOWN_CHARACTERS = 20
"""Maximum characters of a text shown in place of such a value; a longer one may be a misplaced key."""


class InvalidValueError(Exception):
    """The value at `path` is invalid; a caller that knows its source turns this into a `ConfigError`."""

    def __init__(self, path: KeyPath, message: str) -> None:
        super().__init__(message)
        self.path = path


def check_types(values: dict[str, Any], kind: Any) -> None:
    """Raise `InvalidValueError` for the first fault of `values` as `kind`; msgspec's message lacks keys and choices."""
    _check_value(values, inspect.type_info(kind), ())


def find_nearest(word: str, words: list[str]) -> str:
    """Return the entry of `words` that `word` most likely means; empty if none is similar."""
    # Imported here because only a mistake needs it.
    from difflib import get_close_matches

    lower = {each.lower(): each for each in words}
    found = get_close_matches(word.lower(), lower, n=1)
    return lower[found[0]] if found else ""


def _check_value(value: Any, kind: inspect.Type, path: KeyPath) -> None:
    match kind:
        case inspect.StructType():
            _check_fields(_expect_object(value, path), kind, path)
        case inspect.DictType():
            for key, item in _expect_object(value, path).items():
                _check_value(item, kind.value_type, (*path, key))
        case inspect.VarTupleType():
            for index, item in enumerate(_expect_list(value, path)):
                _check_value(item, kind.item_type, (*path, index))
        case inspect.UnionType() if value is not None:
            # All unions in the settings consist of one type and null.
            _check_value(value, next(each for each in kind.types if not isinstance(each, inspect.NoneType)), path)
        case inspect.EnumType():
            _check_choice(value, [str(each.value) for each in kind.cls], path)
        case inspect.LiteralType():
            _check_choice(value, [str(each) for each in kind.values], path)
        case _:
            _check_scalar(value, kind, path)


def _check_fields(values: dict[str, Any], kind: inspect.StructType, path: KeyPath) -> None:
    known = {field.encode_name: field.type for field in kind.fields}
    for key, item in values.items():
        if key not in known:
            where = f" in {format_path(path)}" if path else ""
            raise InvalidValueError((*path, key), f"unknown key {key!r}{where}; {_suggest_key(key, list(known))}")
        _check_value(item, known[key], (*path, key))


def _check_scalar(value: Any, kind: inspect.Type, path: KeyPath) -> None:
    # In Python a bool is a number; in JSON it is not.
    is_bool = isinstance(value, bool)
    match kind:
        case inspect.BoolType() if not is_bool:
            raise _make_unexpected(value, "true or false", path)
        case inspect.IntType() if is_bool or not isinstance(value, int):
            raise _make_unexpected(value, "an integer", path)
        case inspect.FloatType() if is_bool or not isinstance(value, int | float):
            raise _make_unexpected(value, "a number", path)
        case inspect.StrType() if not isinstance(value, str):
            raise _make_unexpected(value, "a string", path)
        case _:
            return


def _check_choice(value: Any, words: list[str], path: KeyPath) -> None:
    if not isinstance(value, str):
        raise _make_unexpected(value, f"one of {', '.join(words)}", path)
    if value not in words:
        raise InvalidValueError(path, f"{format_path(path)} cannot be {value!r}; the choices are {', '.join(words)}")


def _suggest_key(key: str, keys: list[str]) -> str:
    near = find_nearest(key, keys)
    return f"did you mean {near!r}?" if near else f"valid keys are {', '.join(keys)}"


def _expect_object(value: Any, path: KeyPath) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _make_unexpected(value, "an object", path)
    return cast("dict[str, Any]", value)


def _expect_list(value: Any, path: KeyPath) -> list[Any]:
    if not isinstance(value, list):
        raise _make_unexpected(value, "a list", path)
    return cast("list[Any]", value)


def _make_unexpected(value: Any, expected: str, path: KeyPath) -> InvalidValueError:
    # Show a text only where a number or boolean is expected, because such a value cannot be a secret.
    match value:
        case None:
            found = "null"
        case bool():
            found = "true" if value else "false"
        case int() | float():
            found = f"the number {value}"
        case str() if expected in NON_SECRET_TYPES and len(value) <= MAX_SHOWN_CHARACTERS:
            found = f"the string {value!r}"
        case str():
            found = "a string"
        case list():
            found = "a list"
        case _:
            found = "an object"
    return InvalidValueError(path, f"{format_path(path)}: expected {expected}, found {found}")


_PATHS = frozenset({"sessionDir", "script", "chatTemplate", "models", "extra", "read", "extensions"})
"""Keys with a path or a list of paths, at any level."""
_ANYTHING = frozenset({"extraBody", "headers"})
"""Keys whose value is passed on unchanged."""


def check_texts(value: Any, path: KeyPath = ()) -> None:
    """Raise `InvalidValueError` for a text that is not UTF-8, or a path in the home of an unknown user."""
    match value:
        case dict():
            for key, item in cast("dict[str, Any]", value).items():
                if key not in _ANYTHING:
                    check_texts(item, (*path, key))
        case list():
            for index, item in enumerate(cast("list[Any]", value)):
                check_texts(item, (*path, index))
        case str():
            _check_utf8(value, path)
            if "\0" in value and not _PATHS.isdisjoint(path[-2:]):
                raise InvalidValueError(path, f"{format_path(path)}: {value!r} is not a valid path: it contains NUL")
            if value.startswith("~") and not _PATHS.isdisjoint(path[-2:]):
                _check_home(value, path)
        case _:
            return


def _check_utf8(text: str, path: KeyPath) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidValueError(path, f"{format_path(path)}: {text!r} is not valid UTF-8; save it as UTF-8") from None


def _check_home(text: str, path: KeyPath) -> None:
    try:
        Path(text).expanduser()
    except RuntimeError:
        home = text.partition("/")[0]
        raise InvalidValueError(
            path,
            f"{format_path(path)} is {text!r}: no home directory {home}; use the full path or ./{text}",
        ) from None
