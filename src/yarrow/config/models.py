"""Which provider a configured model belongs to: whoever names another provider leaves the model behind."""

from collections.abc import Mapping
from typing import Any

from yarrow.config.layer import KeyPath, has
from yarrow.config.settings import Settings

MODELS: tuple[tuple[str, ...], ...] = (("model",), ("compaction", "model"))
"""Where a model of the provider in force is named."""


def without_left_models(below: dict[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings `below` without the models that belong to another provider than the one `above` names."""
    kept = below
    for path in MODELS:
        if has(below, path) and leaves_model(below, above, path):
            kept = _without(kept, *path)
    return kept


def leaves_model(below: Mapping[str, Any], above: Mapping[str, Any], path: KeyPath) -> bool:
    """Tell whether settings name another provider than those below, and at `path` no model of it."""
    if "provider" not in above or has(above, path) or not has(below, path):
        return False
    return _owner(below.get("provider", ""), below.get("providers", {})) not in ("", above["provider"])


def owner_of(settings: Settings) -> str:
    """Return the provider that configured models belong to; empty where they are anybody's."""
    return _owner(settings.provider, settings.providers)


def _owner(named: str, configured: Mapping[str, object]) -> str:
    """Return the provider that is named, else the only one that is configured."""
    return named or (next(iter(configured)) if len(configured) == 1 else "")


def _without(values: dict[str, Any], key: str, *rest: str) -> dict[str, Any]:
    if rest:
        return {**values, key: _without(values[key], *rest)}
    return {name: value for name, value in values.items() if name != key}
