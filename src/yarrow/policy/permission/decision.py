"""The decision: a call runs, a person is asked, or the model is told why it does not run."""

from collections.abc import Collection, Mapping
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from yarrow.config.permission_mode import PermissionMode
from yarrow.config.settings import AllowedCall
from yarrow.policy.permission.request import CallDescription, ToolKind
from yarrow.policy.permission.rule import RuleEffect, RuleMatch
from yarrow.policy.permission.rule_matching import match_rules


class Allow(Struct, frozen=True):
    """The call runs."""


class Ask(Struct, frozen=True):
    """A person is asked; `reason` is why."""

    reason: str


class Deny(Struct, frozen=True):
    """The call does not run; `text` is what the model is told."""

    text: str


Decision = Allow | Ask | Deny

_PLAN_TEXT = "Not run: this session only plans, so that nothing may be changed. Say what you would do instead."
_READ_ONLY_TEXT = "Not run: in this session nothing may be changed. Read, and answer from that."
_STRICT_TEXT = "Not run: the strict sandbox cannot be left. Ask the user to run the command, or go on without it."
_UNATTENDED_TEXT = "Not run: in this session nobody is asked, and this would need to be. Go on without it."


def decide(
    call: CallDescription, *, mode: PermissionMode, rules: Mapping[str, str], allowed: Collection[AllowedCall]
) -> Decision:
    """Return what becomes of a call.

    What denies wins over everything that was ever allowed. `allowed` is what a person answered for calls like it.
    """
    rule = match_rules(rules, call)
    if denied := denial(rule) or refused_by_mode(call, mode):
        return denied
    if call.leaves_sandbox and call.is_strict:
        return Deny(_STRICT_TEXT)
    # What was allowed without a sandbox is allowed in one too, and not the other way round.
    if call.allow_key in allowed or (call.is_sandboxed and replace(call.allow_key, uncontained=True) in allowed):
        return Allow()
    reason = _ask_reason(mode, rule, call)
    if not reason:
        return Allow()
    return Deny(_UNATTENDED_TEXT) if mode is PermissionMode.DENY else Ask(reason)


def refused_by_mode(call: CallDescription, mode: PermissionMode) -> Deny | None:
    """Return the refusal of a mode in which nothing may be changed; None for a call that may run in it."""
    if call.is_read_only:
        return None
    if mode is PermissionMode.PLAN:
        return Deny(_PLAN_TEXT)
    return Deny(_READ_ONLY_TEXT) if mode is PermissionMode.DENY else None


def denial(rule: RuleMatch | None) -> Deny | None:
    """Return what a rule that denies says; None for any other."""
    if rule is None or rule.effect is not RuleEffect.DENY:
        return None
    return Deny(f"Not run: the rule {rule.rule!r} of the user's settings denies it. Go on without it.")


def _ask_reason(mode: PermissionMode, rule: RuleMatch | None, call: CallDescription) -> str:
    """Return why a person should be asked; empty when there is no reason to."""
    if rule and rule.effect is RuleEffect.ASK:
        return f'rule "{rule.rule}": ask'
    if call.leaves_sandbox:
        return "it would run outside the sandbox"
    # A rule for a whole tool says nothing about where it may go; one that names the place does.
    if call.is_outside and not (rule and rule.has_pattern):
        return f"{call.subject} is outside the workspace"
    if rule or call.is_read_only or mode is PermissionMode.AUTO:
        return ""
    match call.kind:
        case ToolKind.FILE if call.declares_access:
            return ""
        case ToolKind.SHELL:
            return "" if call.is_sandboxed else "it runs without a sandbox"
        case ToolKind.FILE | ToolKind.OTHER:
            return "it may change something outside the workspace"
        case _:
            assert_never(call.kind)
