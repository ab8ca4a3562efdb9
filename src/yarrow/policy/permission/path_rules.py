"""What a rule's pattern says about paths: which it names, and what lies below them."""

import os
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from yarrow.platform import system
from yarrow.policy.permission.request import RuleEffect, parse_rule

READ_RULE = "read"
"""Name of a rule that, with a path, is stricter on every tool that touches files: they all show what they read."""
WRITE_RULES = frozenset({"write", "edit"})
"""Names of rules that, with a path, are stricter on every tool that changes files."""
_WILDCARD = re.compile(r"(/\*\*/|\*+)")
_TRAILING_WILDCARDS = re.compile(r"(?:/\*+)+$")


class PathRule(Struct, frozen=True):
    """One rule, ready to be matched."""

    effect: RuleEffect
    rule: str
    rank: tuple[bool, int, RuleEffect, str]
    """What a greater one of wins, as for all rules."""
    pattern: re.Pattern[str]


class PathRules(Struct, frozen=True):
    """The rules with a path that concern one tool in one working directory.

    A pattern that is relative counts from the working directory, `~/` from the home; one that begins with `*` may begin
    anywhere. `*` is any text, `/**/` any directories or none. What is asked or denied covers all that lies below, and
    is found under the names of links in the pattern too; what is allowed is the real path alone.
    """

    rules: tuple[PathRule, ...] = ()

    @classmethod
    def make(cls, rules: Mapping[str, str], tool: str, cwd: Path, *, writes: bool = False) -> "PathRules":
        """Take those of the configured rules that concern a tool; `writes` says whether it changes files."""
        found: list[PathRule] = []
        for rule, word in rules.items():
            named, pattern = parse_rule(rule)
            verdict = RuleEffect[word.upper()]
            strict = verdict is not RuleEffect.AUTO
            covered = strict and (named == READ_RULE or (writes and named in WRITE_RULES))
            if pattern is None or not (covered or named in (tool, "*")):
                continue
            rank = (verdict is RuleEffect.DENY, len(pattern) + 1, verdict, rule)
            compiled = _compile(_absolute_pattern(pattern, cwd), strict=strict)
            found.append(PathRule(verdict, rule, rank, compiled))
        return cls(tuple(sorted(found, key=lambda one: one.rank, reverse=True)))

    def match(self, *paths: str) -> PathRule | None:
        """Return the rule that counts for a file; of its absolute paths the first is the real one, others name it.

        One that denies wins over all others; of these the longest pattern wins, and of two as long the stricter.
        """
        for one in self.rules:
            names = paths if one.effect is not RuleEffect.AUTO else paths[:1]
            if any(one.pattern.fullmatch(f"{system.normcase(name)}/") for name in names):
                return one
        return None


class DeniedPaths(Struct, frozen=True):
    """What the rules keep from a tool, also where it lies below of what the tool may see."""

    rules: PathRules = PathRules()
    exempt: str = ""
    """The rule that a person was asked about for this call."""

    def rule_for(self, *paths: str) -> str:
        """Return the rule that closes a file, of which `paths` are as in `PathRules.match`; empty when none does."""
        one = self.rules.match(*paths)
        return one.rule if one and self._denies(one) else ""

    def notice(self) -> str:
        """Return which rules may keep something back from a search; empty when none does."""
        kept = ", ".join(repr(one.rule) for one in self.rules.rules if self._denies(one))
        return f"left out, if there: what the user's settings close by {kept}" if kept else ""

    def _denies(self, one: PathRule) -> bool:
        return one.effect is RuleEffect.DENY or (one.effect is RuleEffect.ASK and one.rule != self.exempt)


def find_denied_paths(rules: Mapping[str, str], cwd: Path) -> tuple[Path, ...]:
    """Return the places that may not be read by the rules, as far as these name them without `*` in between."""
    places: list[Path] = []
    for rule, word in rules.items():
        named, pattern = parse_rule(rule)
        if named in (READ_RULE, "*") and pattern is not None and word == "deny":
            stem = _TRAILING_WILDCARDS.sub("", _absolute_pattern(pattern, cwd))
            if os.path.isabs(stem) and "*" not in stem:  # noqa: PTH117 (a Path would take the pattern apart)
                places.append(Path(os.path.realpath(stem)))
    return tuple(places)


def _absolute_pattern(pattern: str, cwd: Path) -> str:
    """Return the pattern as one of absolute paths, or beginning with `*`."""
    if pattern == "~" or pattern.startswith("~/"):
        pattern = f"{Path.home()}{pattern[1:]}"
    if pattern.startswith("*"):
        return pattern
    rooted = pattern if os.path.isabs(pattern) else f"{cwd}/{pattern}"  # noqa: PTH117
    return system.to_posix(os.path.normpath(rooted))


def _compile(pattern: str, *, strict: bool) -> re.Pattern[str]:
    """Return what matches a path with a slash behind it."""
    if not strict:
        return re.compile(_regex(system.normcase(pattern)) + "/", re.DOTALL)
    spellings = {system.normcase(pattern), system.normcase(_resolve_links(pattern))}
    return re.compile(f"(?:{'|'.join(map(_regex, sorted(spellings)))})(?:/.*)?", re.DOTALL)


def _regex(pattern: str) -> str:
    return "".join(
        ("/(?:.*/)?" if part == "/**/" else ".*") if at % 2 else re.escape(part)
        for at, part in enumerate(_WILDCARD.split(pattern))
    )


def _resolve_links(pattern: str) -> str:
    """Return the pattern with the directories that it names before any `*` followed to where they lead."""
    head, star, tail = pattern.partition("*")
    directory, slash, name = head.rpartition("/")
    if not star or not slash:
        return os.path.realpath(pattern) if slash else pattern
    return f"{os.path.realpath(directory or '/').rstrip('/')}/{name}{star}{tail}"
