"""The configured rules: which of them match a call, and what they say of it together."""

import re
from collections.abc import Mapping
from enum import IntEnum
from functools import lru_cache

from msgspec import Struct

from yarrow.policy.permission.request import Kind, Request

METACHARACTERS = re.compile(r"[^A-Za-z0-9 _@%+=:,./-]")
"""Any of these in a command can make a shell do more than its first words say; `*` of a path is one of them too."""
_KEPT = 1024
"""Patterns kept compiled; then the one not used for longest is compiled anew."""


class Verdict(IntEnum):
    """What a rule says; a greater one is stricter."""

    AUTO = 0
    ASK = 1
    DENY = 2


class Matched(Struct, frozen=True):
    """What the rules say of a call, and the rule that says so."""

    verdict: Verdict
    rule: str
    has_pattern: bool


def matched(rules: Mapping[str, str], request: Request) -> Matched | None:
    """Return what the rules say of a call, None when none matches.

    A rule that denies wins over all others; of these the longest pattern wins, and of two as long the stricter.
    """
    found: list[tuple[bool, int, Verdict, str]] = []
    for rule, word in rules.items():
        tool, pattern = parts_of(rule)
        verdict = Verdict[word.upper()]
        if tool in (request.tool, "*") and _matches(pattern, verdict, request):
            rank = len(pattern) + 1 if pattern is not None else int(tool != "*")
            found.append((verdict is Verdict.DENY, rank, verdict, rule))
    if not found:
        return None
    _, _, verdict, rule = max(found)
    return Matched(verdict, rule, parts_of(rule)[1] is not None)


def parts_of(rule: str) -> tuple[str, str | None]:
    """Return the tool and the pattern of a rule; `bash(git *)` has one, `bash` has none."""
    tool, bracket, rest = rule.partition("(")
    return (tool.strip(), rest.removesuffix(")")) if bracket else (rule.strip(), None)


def _matches(pattern: str | None, verdict: Verdict, request: Request) -> bool:
    if pattern is None:
        return True
    # What a shell makes of a text is not known without being one: such a pattern spares a question inside a sandbox,
    # and grants nothing where there is none.
    grants = verdict is Verdict.AUTO and request.kind is Kind.SHELL
    if grants and (not request.contained or METACHARACTERS.search(request.subject)):
        return False
    return _compiled(pattern).fullmatch(request.subject) is not None


@lru_cache(_KEPT)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, pattern.split("*"))), re.DOTALL)
