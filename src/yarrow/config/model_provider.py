"""Provider of a configured model: a layer that selects another provider drops the model."""

from collections.abc import Mapping
from typing import Any

from yarrow.config.layer import KeyPath, has_value
from yarrow.config.settings import Settings

MODEL_PATHS: tuple[tuple[str, ...], ...] = (("model",), ("compaction", "model"))
"""Paths of settings that name a model of the selected provider."""


def remove_foreign_models(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings `below` without models of a provider other than the one that `above` selects."""
    kept = below
    for path in MODEL_PATHS:
        if has_value(below, path) and is_foreign_model(below, above, path):
            kept = _remove(kept, *path)
    return kept


def is_foreign_model(below: Mapping[str, Any], above: Mapping[str, Any], path: KeyPath) -> bool:
    """Return whether `above` selects another provider than `below` and has no model of its own at `path`."""
    if "provider" not in above or has_value(above, path) or not has_value(below, path):
        return False
    return _find_provider(below.get("provider", ""), below.get("providers", {})) not in ("", above["provider"])


def find_model_provider(settings: Settings) -> str:
    """Return the provider that configured models belong to; empty if they belong to none in particular."""
    return _find_provider(settings.provider, settings.providers)


def _find_provider(named: str, configured: Mapping[str, object]) -> str:
    """Return the named provider, or the only configured one; empty if neither exists."""
    return named or (next(iter(configured)) if len(configured) == 1 else "")


def _remove(values: dict[str, Any], key: str, *rest: str) -> dict[str, Any]:
    if rest:
        return {**values, key: _remove(values[key], *rest)}
    return {name: value for name, value in values.items() if name != key}
