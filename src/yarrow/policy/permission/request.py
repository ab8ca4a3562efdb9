"""Permission requests of tool calls, and the rules that match them."""

from enum import Enum, IntEnum

from msgspec import Struct

from yarrow.config.settings import AllowedCall


class ToolKind(Enum):
    """What a tool can reach."""

    FILE = "file"
    """One path, which the fence of the workspace checks again."""
    SHELL = "shell"
    """Whatever a command can, less what its sandbox keeps from it."""
    OTHER = "other"
    """Unknown: neither a path nor a command is among its arguments."""


class CallDescription(Struct, frozen=True):
    """One call, after its arguments were found valid."""

    tool: str
    kind: ToolKind
    is_read_only: bool
    subject: str
    """What rules match: a shell's command, a file tool's path with no link left, any other tool's arguments as JSON."""
    allow_key: AllowedCall
    """What this call and every one that is like it come to."""
    literal_paths: tuple[str, ...] = ()
    """Of a file, the absolute path as the call names it, links and all."""
    is_sandboxed: bool = False
    """Whether it runs in a sandbox."""
    is_outside: bool = False
    """Whether its path lies outside the workspace."""
    leaves_sandbox: bool = False
    """Whether the call asks to run outside the sandbox that the session's commands run in."""
    is_strict: bool = False
    """Whether that sandbox may not be left."""
    model_reason: str = ""
    """The model's own words for why, on one line."""
    declares_access: bool = True
    """Whether the tool itself says what it touches."""
    arguments: str = ""
    """Arguments as JSON of a tool that does not say what it touches: what rules match besides."""


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
