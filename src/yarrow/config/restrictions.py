"""Settings that a project's file can only tighten: `permissions` and `workspace.repository`."""

from collections.abc import Mapping
from typing import Any

from yarrow.config.layer import KeyPath

STRICTNESS = ("auto", "ask", "plan", "deny")
"""Modes and what rules say; each is stricter than those before it: `plan` still asks about reading elsewhere."""


def remove_loosened(values: dict[str, Any], below: Mapping[str, Any]) -> tuple[dict[str, Any], list[KeyPath]]:
    """Return a project's checked settings without those that loosen anything, and the paths of these."""
    values, loosened = _restrict_repository(values, below)
    own: dict[str, Any] = values.get("permissions", {})
    under: Mapping[str, Any] = below.get("permissions", {})
    ignored: list[KeyPath] = [("permissions", key) for key in own if key not in ("mode", "rules")]
    if "mode" in own and _get_rank(own["mode"]) < _get_rank(under.get("mode", "ask")):
        ignored.append(("permissions", "mode"))
    under_rules: Mapping[str, str] = under.get("rules", {})
    rules = {rule: word for rule, word in own.get("rules", {}).items() if _tightens(word, under_rules.get(rule))}
    ignored += [("permissions", "rules", rule) for rule in own.get("rules", {}) if rule not in rules]
    if not ignored:
        return values, loosened
    kept = {key: value for key, value in own.items() if ("permissions", key) not in ignored}
    return {**values, "permissions": {**kept, "rules": rules} if "rules" in own else kept}, [*loosened, *ignored]


def _restrict_repository(values: dict[str, Any], below: Mapping[str, Any]) -> tuple[dict[str, Any], list[KeyPath]]:
    own: dict[str, Any] = values.get("workspace", {})
    if own.get("repository") != "write" or below.get("workspace", {}).get("repository") != "read":
        return values, []
    kept = {key: value for key, value in own.items() if key != "repository"}
    return {**values, "workspace": kept}, [("workspace", "repository")]


def _get_rank(word: str) -> int:
    return STRICTNESS.index(word)


def _tightens(word: str, under: str | None) -> bool:
    """Whether a rule can stand; one that says `auto` grants, unless the same was granted below."""
    if word == "auto":
        return under == "auto"
    return under is None or _get_rank(word) >= _get_rank(under)
