"""What a rule can say, and how it is written: `tool` or `tool(pattern)`."""

from enum import IntEnum

from msgspec import Struct


class RuleEffect(IntEnum):
    """What a rule says; a greater one is stricter."""

    AUTO = 0
    ASK = 1
    DENY = 2


class RuleMatch(Struct, frozen=True):
    """What the rules say of a call, and the rule that says so."""

    effect: RuleEffect
    rule: str
    has_pattern: bool


def parse_rule(rule: str) -> tuple[str, str | None]:
    """Return the tool and the pattern of a rule; `bash(git *)` has one, `bash` has none."""
    tool, bracket, rest = rule.partition("(")
    return (tool.strip(), rest.removesuffix(")")) if bracket else (rule.strip(), None)
