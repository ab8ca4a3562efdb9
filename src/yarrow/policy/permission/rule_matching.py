"""The configured rules: which of them match a call, and what they say of it together."""

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from yarrow.policy.permission.path_rules import PathRules
from yarrow.policy.permission.request import CallDescription, ToolKind
from yarrow.policy.permission.rule import RuleEffect, RuleMatch, parse_rule

METACHARACTERS = re.compile(r"[^A-Za-z0-9 _@%+=:,./-]")
"""Any of these in a command can make a shell do more than its first words say; `*` of a path is one of them too."""
_MAX_CACHED = 1024
"""Patterns kept compiled; then the one not used for longest is compiled anew."""


def match_rules(rules: Mapping[str, str], request: CallDescription) -> RuleMatch | None:
    """Return what the rules say of a call, None when none matches.

    A rule that denies wins over all others; of these the longest pattern wins, and of two as long the stricter.
    """
    found: list[tuple[bool, int, RuleEffect, str]] = []
    for rule, word in rules.items():
        tool, pattern = parse_rule(rule)
        verdict = RuleEffect[word.upper()]
        if pattern is not None and request.kind is ToolKind.FILE and not request.arguments:
            continue  # below
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
    # What a shell makes of a text is not known without being one: such a pattern spares a question inside a sandbox,
    # and grants nothing where there is none.
    grants = verdict is RuleEffect.AUTO and request.kind is ToolKind.SHELL
    if grants and (not request.is_sandboxed or METACHARACTERS.search(request.subject)):
        return False
    if _compile(pattern).fullmatch(request.subject):
        return True
    return (
        request.kind is ToolKind.SHELL and verdict is not RuleEffect.AUTO and _matches_command(pattern, request.subject)
    )


def _matches_command(pattern: str, line: str) -> bool:
    """Whether a pattern matches a simple command of a shell line, however it is spelled there."""
    # Here, since few rules have a pattern for commands.
    from yarrow.policy.permission.shell_line import spellings

    squeezed = _compile(" ".join(pattern.split()))
    return any(_compile(pattern).fullmatch(one) or squeezed.fullmatch(one) for one in spellings(line))


@lru_cache(_MAX_CACHED)
def _compile(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
