"""The decision: a call runs, a person is asked, or the model is told why it does not run."""

from collections.abc import Collection, Mapping
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from yarrow.config.permission_mode import PermissionMode
from yarrow.config.settings import AllowedCall
from yarrow.policy.permission.request import Kind, Request
from yarrow.policy.permission.rules import matched
from yarrow.policy.permission.verdict import Matched, Verdict


class Allow(Struct, frozen=True):
    """The call runs."""


class Ask(Struct, frozen=True):
    """A person is asked; `reason` is why."""

    reason: str


class Deny(Struct, frozen=True):
    """The call does not run; `text` is what the model is told."""

    text: str


Decision = Allow | Ask | Deny

_PLANNING = "Not run: this session only plans, so that nothing may be changed. Say what you would do instead."
_READING = "Not run: in this session nothing may be changed. Read, and answer from that."
_STRICT = "Not run: the strict sandbox cannot be left. Ask the user to run the command, or go on without it."
_UNASKED = "Not run: in this session nobody is asked, and this would need to be. Go on without it."


def decide(
    call: Request, *, mode: PermissionMode, rules: Mapping[str, str], allowed: Collection[AllowedCall]
) -> Decision:
    """Return what becomes of a call.

    What denies wins over everything that was ever allowed. `allowed` is what a person answered for calls like it.
    """
    rule = matched(rules, call)
    if denied := denial(rule) or refused_by_mode(call, mode):
        return denied
    if call.leaves_sandbox and call.is_strict:
        return Deny(_STRICT)
    # What was allowed without a sandbox is allowed in one too, and not the other way round.
    if call.like in allowed or (call.contained and replace(call.like, uncontained=True) in allowed):
        return Allow()
    reason = _doubt(mode, rule, call)
    if not reason:
        return Allow()
    return Deny(_UNASKED) if mode is PermissionMode.DENY else Ask(reason)


def refused_by_mode(call: Request, mode: PermissionMode) -> Deny | None:
    """Return the refusal of a mode in which nothing may be changed; None for a call that may run in it."""
    if call.read_only:
        return None
    if mode is PermissionMode.PLAN:
        return Deny(_PLANNING)
    return Deny(_READING) if mode is PermissionMode.DENY else None


def denial(rule: Matched | None) -> Deny | None:
    """Return what a rule that denies says; None for any other."""
    if rule is None or rule.verdict is not Verdict.DENY:
        return None
    return Deny(f"Not run: the rule {rule.rule!r} of the user's settings denies it. Go on without it.")


def _doubt(mode: PermissionMode, rule: Matched | None, call: Request) -> str:
    """Return why a person should be asked; empty when there is no reason to."""
    if rule and rule.verdict is Verdict.ASK:
        return f'rule "{rule.rule}": ask'
    if call.leaves_sandbox:
        return "it would run outside the sandbox"
    # A rule for a whole tool says nothing about where it may go; one that names the place does.
    if call.outside and not (rule and rule.has_pattern):
        return f"{call.subject} is outside the workspace"
    if rule or call.read_only or mode is PermissionMode.AUTO:
        return ""
    match call.kind:
        case Kind.FILE if call.declared:
            return ""
        case Kind.SHELL:
            return "" if call.contained else "it runs without a sandbox"
        case Kind.FILE | Kind.OTHER:
            return "it may change something outside the workspace"
        case _:
            assert_never(call.kind)
