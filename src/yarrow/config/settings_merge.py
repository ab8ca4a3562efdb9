"""Layers of settings: defaults, files, environment variables and flags, merged in order."""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct, inspect

from yarrow.config.files import get_user_file, read_file
from yarrow.config.project_trust import ProjectFile, apply_project, read_project
from yarrow.config.settings import BUILT_IN_PROVIDERS, Settings
from yarrow.config.settings_source import (
    MODEL_PATHS,
    KeyPath,
    Layer,
    NamedLayer,
    escape_unprintable,
    format_path,
    has_value,
    is_foreign_model,
    list_leaves,
    merge_values,
    remove_foreign_models,
)
from yarrow.config.validation import check_directories, check_layer, check_providers, find_nearest


class LoadedSettings(Struct, frozen=True):
    """Effective settings, with notices for the user about how they were determined."""

    settings: Settings
    notices: tuple[str, ...]
    layers: tuple[Layer, ...]

    def check_providers(self, added: Collection[str] = ()) -> None:
        """Raise `ConfigError` unless the selected provider and every configured one have an adapter.

        `added` are the ids of providers with an adapter of their own, such as those of extensions.
        """
        check_providers(self.settings, self.layers, added)

    def add_providers(self, added: Collection[str]) -> "LoadedSettings":
        """Return the settings with the provider ids `added` known, so that a model may be prefixed with one of them."""
        if not added:
            return self
        layers = tuple(_split_provider(each, added) if isinstance(each, NamedLayer) else each for each in self.layers)
        return LoadedSettings(msgspec.convert(merge_layers(layers), Settings), self.notices, layers)

    def list_origins(self) -> dict[str, str]:
        """Return the origin of each value by dotted key.

        An origin is `~/.yarrow/config.json:LINE`, `YARROW_MODEL`, `--model` or `default`. A list is one value; objects
        are traversed.
        """
        return {format_path(path): self.get_origin(path) for path in list_leaves(msgspec.to_builtins(self.settings))}

    def get_origin(self, path: KeyPath) -> str:
        """Return the origin of the value at `path`."""
        for number in reversed(range(len(self.layers))):
            layer = self.layers[number]
            if has_value(layer.values, path):
                return layer.get_origin(path)
            if path in MODEL_PATHS and is_foreign_model(merge_layers(self.layers[:number]), layer.values, path):
                return layer.get_origin(("provider",))
        return "default"


def load_settings(
    *, home: Path, cwd: Path, environment: Mapping[str, str], overrides: Mapping[str, Any]
) -> LoadedSettings:
    """Return the effective settings in `cwd` for the user with the home directory `home`.

    `overrides` are the flags by top-level key as in a file. A model from a variable or a flag may be written as
    `provider/model`; it is split if the part before the first slash is a known provider. Raises `ConfigError` for an
    invalid source, naming the file and line or variable, the key and the valid values.
    """
    project = read_project(home=home, cwd=cwd, environment=environment)
    loaded = load_with_project(project, home=home, environment=environment, overrides=overrides)
    check_directories(loaded.layers, home, cwd)
    return loaded


def load_with_project(
    project: ProjectFile | None, *, home: Path, environment: Mapping[str, str], overrides: Mapping[str, Any]
) -> LoadedSettings:
    """Return the effective settings like `load_settings`, with a project file that has already been read."""
    layers: list[Layer] = []
    notices: list[str] = []
    if users := read_file(get_user_file(home, environment), home, required=bool(environment.get("YARROW_CONFIG"))):
        check_layer(users)
        layers.append(users)
    if project:
        applied = apply_project(project, merge_layers(layers))
        layers.append(applied.layer)
        notices.extend(applied.notices)
    providers = merge_layers(layers).get("providers", {})
    variables, unknown = read_variables(environment, [each.get("apiKeyEnv", "") for each in providers.values()])
    for named in (variables, NamedLayer(dict(overrides), {key: _to_flag(key) for key in overrides})):
        check_layer(named)
        layers.append(_split_provider(named, providers))
    return LoadedSettings(msgspec.convert(merge_layers(layers), Settings), (*notices, *unknown), tuple(layers))


def merge_layers(layers: Iterable[Layer]) -> dict[str, Any]:
    """Merge the values of layers as if written in one file; later layers win.

    A model belongs to the provider it was configured with and is dropped if a later layer selects another one.
    """
    values: dict[str, Any] = {}
    for layer in layers:
        values = merge_values(remove_foreign_models(values, layer.values), layer.values)
    return values


def _split_provider(layer: NamedLayer, configured: Collection[str]) -> NamedLayer:
    """Split a model written as `provider/model`, unless the layer sets a provider itself."""
    provider, slash, model = layer.values.get("model", "").partition("/")
    if not slash or "provider" in layer.values or (provider not in configured and provider not in BUILT_IN_PROVIDERS):
        return layer
    values = {**layer.values, "provider": provider, "model": model}
    return NamedLayer(values, {**layer.names, "provider": layer.names["model"]})


def _to_flag(key: str) -> str:
    """Return the flag of a top-level key, such as `--session-dir` for `sessionDir`."""
    return "--" + "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in key)


VARIABLE_PREFIX = "YARROW_"
OTHER_VARIABLES = frozenset({"CONFIG", "HOME", "LOG"})
"""Suffixes of variables with the prefix that are not settings; so are those that end in `_API_KEY`."""
_SCALARS = (
    inspect.StrType,
    inspect.BoolType,
    inspect.IntType,
    inspect.FloatType,
    inspect.EnumType,
    inspect.LiteralType,
)


def read_variables(environment: Mapping[str, str], others: Collection[str]) -> tuple[NamedLayer, tuple[str, ...]]:
    """Return the settings from variables, unchecked, and a notice for each variable that is probably misspelt.

    An empty variable counts as unset. `others` are complete names with another meaning.
    """
    values: dict[str, Any] = {}
    names: dict[str, str] = {}
    notices: list[str] = []
    ours = [
        name for name, text in environment.items() if name.startswith(VARIABLE_PREFIX) and text and name not in others
    ]
    # Most runs set no variables, so the settings are only listed if there is one.
    known = map_settings_by_variable() if ours else {}
    for name in ours:
        word = name.removeprefix(VARIABLE_PREFIX)
        if field := known.get(word):
            values[field.encode_name] = _parse_value(environment[name], field.type)
            names[field.encode_name] = name
        elif (
            word not in OTHER_VARIABLES and not word.endswith("_API_KEY") and (near := find_nearest(word, list(known)))
        ):
            notices.append(
                f"{escape_unprintable(name)} is not a setting and was ignored; did you mean {VARIABLE_PREFIX}{near}?"
            )
    return NamedLayer(values, names), tuple(notices)


def map_settings_by_variable() -> dict[str, inspect.Field]:
    """Return each setting that has a variable, by the suffix of the variable: `MAX_TURNS` for `maxTurns`."""
    fields = cast("inspect.StructType", inspect.type_info(Settings)).fields
    return {field.name.upper(): field for field in fields if isinstance(field.type, _SCALARS)}


def _parse_value(text: str, kind: inspect.Type) -> Any:
    """Return the JSON value of a variable's text; invalid text is returned unchanged, to be rejected later."""
    python_type: type[bool | int | float]
    match kind:
        case inspect.BoolType():
            python_type = bool
        case inspect.IntType():
            python_type = int
        case inspect.FloatType():
            python_type = float
        case _:
            return text
    try:
        return msgspec.convert(text, python_type, strict=False)
    except (msgspec.ValidationError, UnicodeEncodeError):
        return text
