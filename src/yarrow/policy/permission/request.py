"""Descriptions of tool calls for permission decisions, and the effects of rules on them."""

from enum import Enum, IntEnum

from msgspec import Struct

from yarrow.config.settings import AllowedCall


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
