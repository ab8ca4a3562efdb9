"""Requests for permission, and the rules for their paths."""

import os
import re
from collections.abc import Mapping
from enum import Enum, IntEnum
from pathlib import Path

from msgspec import Struct

from yarrow.config.settings import AllowedCall
from yarrow.platform import system
from yarrow.platform.real_path import real_path


class ToolKind(Enum):
    """Resources that a tool can reach."""

    FILE = "file"
    """One path, which is checked again against the workspace."""
    SHELL = "shell"
    """Everything a command can reach, except what its sandbox denies."""
    OTHER = "other"
    """Unknown: its arguments contain neither a path nor a command."""


class CallDescription(Struct, frozen=True):
    """One call with valid arguments."""

    tool: str
    kind: ToolKind
    is_read_only: bool
    subject: str
    """Text that rules match: a shell command, a file tool's resolved path, or another tool's arguments as JSON."""
    allow_key: AllowedCall
    """Key of this call and all calls like it."""
    literal_paths: tuple[str, ...] = ()
    """For a file, the absolute path as named in the call, with symlinks unresolved."""
    is_sandboxed: bool = False
    """True if the call runs in a sandbox."""
    is_outside: bool = False
    """True if its path lies outside the workspace."""
    new_directory: str = ""
    """Missing directories that the call creates, as a path relative to an existing one; empty if none."""
    leaves_sandbox: bool = False
    """True if the call asks to run outside the sandbox of the session's commands."""
    is_strict: bool = False
    """True if that sandbox must not be left."""
    model_reason: str = ""
    """The model's reason in its own words, on one line."""
    declares_access: bool = True
    """True if the tool itself declares what it touches."""
    arguments: str = ""
    """Arguments as JSON, which rules match too, for a tool that does not declare what it touches."""


class RuleEffect(IntEnum):
    """Effect of a rule; greater values are stricter."""

    AUTO = 0
    ASK = 1
    DENY = 2


class RuleMatch(Struct, frozen=True):
    """The effect that applies to a call, and the rule it comes from."""

    effect: RuleEffect
    rule: str
    has_pattern: bool


def parse_rule(rule: str) -> tuple[str, str | None]:
    """Return the tool and the pattern of a rule; `bash(git *)` has a pattern, `bash` has none."""
    tool, bracket, rest = rule.partition("(")
    return (tool.strip(), rest.removesuffix(")")) if bracket else (rule.strip(), None)


READ_RULE = "read"
"""Name of a rule that, with a path, restricts every tool that touches files, since all of them show what they read."""
WRITE_RULES = frozenset({"write", "edit"})
"""Names of rules that, with a path, restrict every tool that changes files."""
_WILDCARD = re.compile(r"(/\*\*/|\*+)")
_TRAILING_WILDCARDS = re.compile(r"(?:/\*+)+$")


class PathRule(Struct, frozen=True):
    """One rule, ready for matching."""

    effect: RuleEffect
    rule: str
    rank: tuple[bool, int, RuleEffect, str]
    """Sort key; as for all rules, the greatest one takes precedence."""
    pattern: re.Pattern[str]


class PathRules(Struct, frozen=True):
    """The rules with a path that apply to one tool in one working directory.

    Relative patterns start at the working directory, `~/` at the home; a pattern that begins with `*` may match from
    anywhere. `*` matches any text, `/**/` any number of directories. Rules that ask or deny cover everything below the
    path and also match the names of symlinks in the pattern; rules that allow match only the real path.
    """

    rules: tuple[PathRule, ...] = ()

    @classmethod
    def make(cls, rules: Mapping[str, str], tool: str, cwd: Path, *, writes: bool = False) -> "PathRules":
        """Select the configured rules that apply to a tool; `writes` says whether it changes files."""
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
        """Return the rule that applies to a file, given its absolute paths: first the real one, then other names.

        A rule that denies takes precedence over all others; otherwise the longest pattern does, and at equal length the
        stricter rule.
        """
        for one in self.rules:
            names = paths if one.effect is not RuleEffect.AUTO else paths[:1]
            if any(one.pattern.fullmatch(f"{system.normcase(name)}/") for name in names):
                return one
        return None


class DeniedPaths(Struct, frozen=True):
    """Paths that the rules deny to a tool, including those below a directory that it may read."""

    rules: PathRules = PathRules()
    exempt: str = ""
    """Rule for which the user was already asked about this call."""

    def rule_for(self, *paths: str) -> str:
        """Return the rule that denies a file, with `paths` as in `PathRules.match`; empty if none does."""
        one = self.rules.match(*paths)
        return one.rule if one and self._denies(one) else ""

    def notice(self) -> str:
        """Return a note on the rules that may exclude paths from a search; empty if there are none."""
        kept = ", ".join(repr(one.rule) for one in self.rules.rules if self._denies(one))
        return f"paths denied by the rules {kept} in the user's settings are left out" if kept else ""

    def _denies(self, one: PathRule) -> bool:
        return one.effect is RuleEffect.DENY or (one.effect is RuleEffect.ASK and one.rule != self.exempt)


def find_denied_paths(rules: Mapping[str, str], cwd: Path) -> tuple[Path, ...]:
    """Return the paths that the rules deny to reads, as far as rules name them without `*` in between."""
    places: list[Path] = []
    for rule, word in rules.items():
        named, pattern = parse_rule(rule)
        if named in (READ_RULE, "*") and pattern is not None and word == "deny":
            stem = _TRAILING_WILDCARDS.sub("", _absolute_pattern(pattern, cwd))
            if os.path.isabs(stem) and "*" not in stem:  # noqa: PTH117 (a Path would split the pattern)
                places.append(Path(real_path(stem)))
    return tuple(places)


def _absolute_pattern(pattern: str, cwd: Path) -> str:
    """Return the pattern as an absolute path, or unchanged if it begins with `*`."""
    if pattern == "~" or pattern.startswith("~/"):
        pattern = f"{Path.home()}{pattern[1:]}"
    if pattern.startswith("*"):
        return pattern
    rooted = pattern if os.path.isabs(pattern) else f"{cwd}/{pattern}"  # noqa: PTH117 (strings throughout)
    return system.to_posix(os.path.normpath(rooted))


def _compile(pattern: str, *, strict: bool) -> re.Pattern[str]:
    """Return a regular expression that matches a path followed by a slash."""
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
    """Return the pattern with symlinks resolved in the directories before the first `*`."""
    head, star, tail = pattern.partition("*")
    directory, slash, name = head.rpartition("/")
    if not star or not slash:
        return real_path(pattern) if slash else pattern
    return f"{real_path(directory or '/').rstrip('/')}/{name}{star}{tail}"
