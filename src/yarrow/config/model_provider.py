"""Which provider a configured model belongs to: whoever names another provider leaves the model behind."""

from collections.abc import Mapping
from typing import Any

from yarrow.config.layer import KeyPath, has_value
from yarrow.config.settings import Settings

MODEL_PATHS: tuple[tuple[str, ...], ...] = (("model",), ("compaction", "model"))
"""Where a model of the provider in force is named."""


def remove_foreign_models(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings `below` without the models that belong to another provider than the one `above` names."""
    kept = below
    for path in MODEL_PATHS:
        if has_value(below, path) and is_foreign_model(below, above, path):
            kept = _remove(kept, *path)
    return kept


def is_foreign_model(below: Mapping[str, Any], above: Mapping[str, Any], path: KeyPath) -> bool:
    """Tell whether settings name another provider than those below, and at `path` no model of it."""
    if "provider" not in above or has_value(above, path) or not has_value(below, path):
        return False
    return _find_provider(below.get("provider", ""), below.get("providers", {})) not in ("", above["provider"])


def find_model_provider(settings: Settings) -> str:
    """Return the provider that configured models belong to; empty where they are anybody's."""
    return _find_provider(settings.provider, settings.providers)


def _find_provider(named: str, configured: Mapping[str, object]) -> str:
    """Return the provider that is named, else the only one that is configured."""
    return named or (next(iter(configured)) if len(configured) == 1 else "")


def _remove(values: dict[str, Any], key: str, *rest: str) -> dict[str, Any]:
    if rest:
        return {**values, key: _remove(values[key], *rest)}
    return {name: value for name, value in values.items() if name != key}
