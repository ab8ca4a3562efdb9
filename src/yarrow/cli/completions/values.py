"""Completion candidates for the values of flags and commands, shared by all shells."""

from enum import Enum, auto
from typing import NamedTuple

from yarrow.cli.flags import Flag
from yarrow.config.settings import BUILT_IN_PROVIDERS


class ValueKind(Enum):
    """Source of the candidates for a value."""

    WORDS = auto()
    MODELS = auto()
    SESSIONS = auto()
    FILES = auto()
    ANYTHING = auto()


class FlagValue(NamedTuple):
    """Candidates for a value; `words` are those of `ValueKind.WORDS`, `texts` the description of each, if any."""

    kind: ValueKind
    words: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


LOOKUPS = {
    # Model names are data from a server: a name with characters that a shell could interpret is not offered.
    "models": "yarrow --list-models 2>/dev/null </dev/null | grep -E '^[A-Za-z0-9._:/@+-]+$'",
    # Each line has the end of an id, as the user types it, two blanks, and the session's last change and title.
    "sessions": "yarrow sessions 2>/dev/null </dev/null | grep -E '^[A-Za-z0-9_-]+  '",
}
"""Commands that print the candidates that only a running Yarrow knows, one per line."""

_TEXTS = {
    "permissions": {
        "auto": "never ask; rules and protected paths still apply",
        "ask": "ask before calls that could do harm; the default",
        "deny": "deny everything that writes, without asking",
        "plan": "read-only tools only",
    },
    "sandbox": {
        "off": "no sandbox",
        "workspace": "write only in the workspace, network allowed",
        "strict": "the same without network; no command runs without a sandbox",
    },
}
"""Short descriptions of the values of flags."""
_FILES = ("PATH", "FILE", "ADDRESS")
QUARANTINE_WORDS = ("list", "restore", "empty")
"""Subcommands of `yarrow sandbox quarantine`."""
SESSION_ID_WORDS = ("show", "stats", "branch", "fork", "rebase", "merge", "compact", "export", "name", "delete")
"""Subcommands of `yarrow sessions` that are followed by a session id."""


def find_value(flag: Flag) -> FlagValue:
    """Return the candidates for the value of a flag."""
    if flag.choices:
        texts = _TEXTS.get(flag.key, {})
        return FlagValue(ValueKind.WORDS, flag.choices, tuple(texts[word] for word in flag.choices) if texts else ())
    match flag.key, flag.value:
        case "model", _:
            return FlagValue(ValueKind.MODELS)
        case "resume", _:
            return FlagValue(ValueKind.SESSIONS)
        case "provider", _:
            return FlagValue(ValueKind.WORDS, tuple(BUILT_IN_PROVIDERS))
        case _, value if value in _FILES:
            return FlagValue(ValueKind.FILES)
        case _:
            return FlagValue(ValueKind.ANYTHING)
