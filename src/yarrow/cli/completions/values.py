"""What may follow a flag or a command, as each shell needs to know it."""

from enum import Enum, auto
from typing import NamedTuple

from yarrow.cli.flags import Flag
from yarrow.config.settings import BUILT_IN_PROVIDERS


class ValueKind(Enum):
    """Where the candidates for a value come from."""

    WORDS = auto()
    MODELS = auto()
    SESSIONS = auto()
    FILES = auto()
    ANYTHING = auto()


class FlagValue(NamedTuple):
    """What a value can be; `words` are those of `ValueKind.WORDS`, and `texts` says what each does if that is known."""

    kind: ValueKind
    words: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()


LOOKUPS = {
    # What a server calls its models is data: a name that a shell could take for more than a name is not offered.
    "models": "yarrow --list-models 2>/dev/null </dev/null | grep -E '^[A-Za-z0-9._:/@+-]+$'",
    # The end of each id, as it is typed, two blanks, and what the list says of it: when it changed, and its title.
    "sessions": "yarrow sessions 2>/dev/null </dev/null | grep -E '^[A-Za-z0-9_-]+  '",
}
"""The commands that print the candidates that only a running Yarrow knows, one a line."""

_TEXTS = {
    "permissions": {
        "auto": "nothing is asked; rules and the fence still count",
        "ask": "what could do harm is asked; the default",
        "deny": "nothing that writes runs, nobody is asked",
        "plan": "read-only tools alone",
    },
    "sandbox": {
        "off": "none",
        "workspace": "write in the workspace alone, network allowed",
        "strict": "the same without network, or nothing runs",
    },
}
"""What the values of flags do, in few words."""
_FILES = ("PATH", "FILE", "ADDRESS")
QUARANTINE_WORDS = ("list", "restore", "empty")
"""Words that follow `yarrow sandbox quarantine`."""
SESSION_ID_WORDS = ("show", "stats", "branch", "fork", "rebase", "merge", "compact", "export", "name", "delete")
"""Words of `yarrow sessions` that a session's id follows."""


def find_value(flag: Flag) -> FlagValue:
    """Return what follows a flag."""
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
