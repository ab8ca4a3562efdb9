"""Settings in layers: the user's file, the project's file, `YARROW_*` variables, flags; what comes later wins."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import msgspec
from msgspec import Struct

from yarrow.config.check import check_layer, check_providers
from yarrow.config.files import find_project_file, read_file, user_file
from yarrow.config.layer import FileLayer, KeyPath, Layer, NamedLayer, dotted, has, merge
from yarrow.config.settings import BUILT_IN, Settings
from yarrow.config.variables import read_variables

HARMLESS = ("thinking", "compaction")
"""Keys that a project's file may set though nobody has trusted it; besides them, `dryRun` may be turned on."""


class Loaded(Struct, frozen=True):
    """The settings in force, and what a person should be told about how they came to be."""

    settings: Settings
    notices: tuple[str, ...]
    layers: tuple[Layer, ...]

    def origins(self) -> dict[str, str]:
        """Return where each value came from, by dotted key.

        An origin is `~/.yarrow/config.json:LINE`, `YARROW_MODEL`, `--model` or `default`. A list is one value;
        objects are taken apart.
        """
        return {dotted(path): self._origin(path) for path in _leaves(msgspec.to_builtins(self.settings), ())}

    def _origin(self, path: KeyPath) -> str:
        return next((layer.origin(path) for layer in reversed(self.layers) if has(layer.values, path)), "default")


def load(*, home: Path, cwd: Path, environment: Mapping[str, str], overrides: Mapping[str, Any]) -> Loaded:
    """Return the settings in force in `cwd` for the person whose home directory is `home`.

    `overrides` are the flags by top-level key as in a file. A model from a variable or a flag may be written
    `provider/model`; it is taken apart when what is before the first slash is a known provider.
    Raises `ConfigError` for a source that is wrong, naming it, the line or variable, the key and what is right.
    """
    layers, notices = _files(home, cwd, environment)
    providers = _merged(layers).get("providers", {})
    variables, unknown = read_variables(environment, [each.get("apiKeyEnv", "") for each in providers.values()])
    for named in (variables, NamedLayer(dict(overrides), {key: _flag(key) for key in overrides})):
        check_layer(named)
        layers.append(_with_provider(named, providers))
    settings = msgspec.convert(_merged(layers), Settings)
    check_providers(settings, layers)
    return Loaded(settings, (*notices, *unknown), tuple(layers))


def _files(home: Path, cwd: Path, environment: Mapping[str, str]) -> tuple[list[Layer], list[str]]:
    """Return the layers that are files, checked, and a notice of what a project's file may not set."""
    layers: list[Layer] = []
    notices: list[str] = []
    users_path = user_file(home, environment)
    if users := read_file(users_path, home, required=bool(environment.get("YARROW_CONFIG"))):
        check_layer(users)
        layers.append(users)
    project_path = find_project_file(cwd, home, users_path)
    if project_path and (project := read_file(project_path, home)):
        check_layer(project)
        harmless, ignored = _harmless(project)
        layers.append(harmless)
        if ignored:
            verb = "is" if len(ignored) == 1 else "are"
            notices.append(f"{project.label} is a project's file, so {', '.join(ignored)} {verb} ignored there")
    return layers, notices


def _merged(layers: list[Layer]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for layer in layers:
        values = merge(values, layer.values)
    return values


def _harmless(project: FileLayer) -> tuple[FileLayer, list[str]]:
    """Return what a project's file may set unasked, and the keys that it may not."""
    values = {
        key: value for key, value in project.values.items() if key in HARMLESS or (key == "dryRun" and value is True)
    }
    return FileLayer(project.label, project.text, values), [key for key in project.values if key not in values]


def _with_provider(layer: NamedLayer, configured: Mapping[str, Any]) -> NamedLayer:
    """Take a model written `provider/model` apart, unless the layer names a provider of its own."""
    provider, slash, model = layer.values.get("model", "").partition("/")
    if not slash or "provider" in layer.values or (provider not in configured and provider not in BUILT_IN):
        return layer
    values = {**layer.values, "provider": provider, "model": model}
    return NamedLayer(values, {**layer.names, "provider": layer.names["model"]})


def _flag(key: str) -> str:
    """Return the flag of a top-level key: `sessionDir` is `--session-dir`."""
    return "--" + "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in key)


def _leaves(values: dict[str, Any], path: KeyPath) -> list[KeyPath]:
    found: list[KeyPath] = []
    for key, value in values.items():
        if isinstance(value, dict) and value:
            found.extend(_leaves(cast("dict[str, Any]", value), (*path, key)))
        else:
            found.append((*path, key))
    return found
