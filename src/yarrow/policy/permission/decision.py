"""Decision on a permission request: the matching rule, the mode, and rules for unknown tools."""

import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from yarrow.config.settings import AllowedCall, PermissionMode
from yarrow.policy.permission.path_rules import CallDescription, PathRules, RuleEffect, RuleMatch, ToolKind, parse_rule


class Allow(Struct, frozen=True):
    """The call runs."""


class Ask(Struct, frozen=True):
    """The user is asked; `reason` is shown."""

    reason: str


class Deny(Struct, frozen=True):
    """The call does not run; `text` is sent to the model."""

    text: str


Decision = Allow | Ask | Deny

_PLAN_TEXT = "Not run: this session is in plan mode and allows no changes. Describe what you would do instead."
_READ_ONLY_TEXT = "Not run: this session is read-only. Answer from what you can read."
_STRICT_TEXT = "Not run: commands cannot leave the strict sandbox. Ask the user to run it, or continue without it."
_UNATTENDED_TEXT = "Not run: it needs permission, and this session does not ask for any. Continue without it."


def decide(
    call: CallDescription, *, mode: PermissionMode, rules: Mapping[str, str], allowed: Collection[AllowedCall]
) -> Decision:
    """Return the decision on a call.

    A denial overrides everything that was ever allowed. `allowed` are the user's earlier answers for similar calls.
    """
    rule = match_rules(rules, call)
    if denied := denial(rule) or refused_by_mode(call, mode):
        return denied
    if call.leaves_sandbox and call.is_strict:
        return Deny(_STRICT_TEXT)
    # Calls allowed without a sandbox are also allowed in one, but not vice versa.
    if call.allow_key in allowed or (call.is_sandboxed and replace(call.allow_key, uncontained=True) in allowed):
        return Allow()
    reason = _ask_reason(mode, rule, call)
    if not reason:
        return Allow()
    if call.new_directory:
        reason += f"; creates the directory {call.new_directory}"
    return Deny(_UNATTENDED_TEXT) if mode is PermissionMode.DENY else Ask(reason)


def refused_by_mode(call: CallDescription, mode: PermissionMode) -> Deny | None:
    """Return the refusal of a mode in which nothing may be changed; None if the call may run in the mode."""
    if call.is_read_only:
        return None
    if mode is PermissionMode.PLAN:
        return Deny(_PLAN_TEXT)
    return Deny(_READ_ONLY_TEXT) if mode is PermissionMode.DENY else None


def denial(rule: RuleMatch | None) -> Deny | None:
    """Return the refusal of a rule that denies; None for any other rule."""
    if rule is None or rule.effect is not RuleEffect.DENY:
        return None
    return Deny(f"Not run: denied by the rule {rule.rule!r} in the user's settings. Continue without it.")


def _ask_reason(mode: PermissionMode, rule: RuleMatch | None, call: CallDescription) -> str:
    """Return why the user should be asked; empty if there is no reason to."""
    if rule and rule.effect is RuleEffect.ASK:
        return f'rule "{rule.rule}": ask'
    if call.leaves_sandbox:
        return "it would run outside the sandbox"
    # A rule for a whole tool does not cover paths outside the workspace; a rule that names the path does.
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


METACHARACTERS = re.compile(r"[^A-Za-z0-9 _@%+=:,./-]")
"""Characters with which a shell may do more than a command's first words say; they include `*` in paths."""
_MAX_CACHED = 1024
"""Maximum compiled patterns kept; the least recently used is dropped."""


def match_rules(rules: Mapping[str, str], request: CallDescription) -> RuleMatch | None:
    """Return the rule that applies to a call; None if none matches.

    A rule that denies takes precedence over all others; otherwise the longest pattern does, and at equal length the
    stricter rule.
    """
    found: list[tuple[bool, int, RuleEffect, str]] = []
    for rule, word in rules.items():
        tool, pattern = parse_rule(rule)
        verdict = RuleEffect[word.upper()]
        if pattern is not None and request.kind is ToolKind.FILE and not request.arguments:
            continue  # matched by path below
        if tool in (request.tool, "*") and _matches(pattern, verdict, request):
            rank = len(pattern) + 1 if pattern is not None else int(tool != "*")
            found.append((verdict is RuleEffect.DENY, rank, verdict, rule))
    if request.kind is ToolKind.FILE:
        cwd = Path(request.allow_key.cwd)
        by_path = PathRules.make(rules, request.tool, cwd, writes=not request.is_read_only)
        first = by_path.match(request.subject, *request.literal_paths)
        found += [first.rank] if first else []
    if not found:
        return None
    _, _, verdict, rule = max(found)
    return RuleMatch(verdict, rule, parse_rule(rule)[1] is not None)


def _matches(pattern: str | None, verdict: RuleEffect, request: CallDescription) -> bool:
    if pattern is None:
        return True
    if request.arguments and _compile(pattern).fullmatch(request.arguments):
        return True
    if request.kind is ToolKind.FILE:
        return False  # its patterns are paths, which `PathRules` matches
    # Only a shell knows what it makes of a text, so such a pattern saves a question inside a sandbox but grants nothing
    # outside one.
    grants = verdict is RuleEffect.AUTO and request.kind is ToolKind.SHELL
    if grants and (not request.is_sandboxed or METACHARACTERS.search(request.subject)):
        return False
    if _compile(pattern).fullmatch(request.subject):
        return True
    return (
        request.kind is ToolKind.SHELL and verdict is not RuleEffect.AUTO and _matches_command(pattern, request.subject)
    )


def _matches_command(pattern: str, line: str) -> bool:
    """Return whether a pattern matches a simple command in a shell line, regardless of its spelling."""
    # Imported here because few rules have a pattern for commands.
    from yarrow.policy.permission.shell_line import spellings

    squeezed = _compile(" ".join(pattern.split()))
    return any(_compile(pattern).fullmatch(one) or squeezed.fullmatch(one) for one in spellings(line))


@lru_cache(_MAX_CACHED)
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)


def describe_unknown_tools(rules: Mapping[str, str], tools: Iterable[str]) -> list[str]:
    """Return a message for each rule that names no existing tool."""
    names = set(tools)
    strange = {rule: named for rule in rules if (named := parse_rule(rule)[0]) not in names and named != "*"}
    return [
        f"permissions.rules: {rule!r} has no effect: {_suggestion(named, names)}" for rule, named in strange.items()
    ]


def _suggestion(named: str, names: set[str]) -> str:
    # Imported here because such rules are rare.
    import difflib

    by_folded = {name.casefold(): name for name in sorted(names)}
    near = difflib.get_close_matches(named.casefold(), by_folded, n=1)
    hint = f"did you mean {by_folded[near[0]]!r}?" if near else f"use one of {', '.join(sorted(names))}"
    return f"unknown tool {named!r}; {hint}"
