"""What counts as a secret by its name or look: files such as `.env`, and variables such as keys and tokens."""

import re
from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

ENV_FILE = ".env"
EXAMPLE_SUFFIXES = frozenset({"example", "examples", "sample", "template", "dist", "defaults", "schema"})
"""Last parts of the names of env files that are made to be read, as in `.env.example`."""

# Patterns are texts, compiled at their first use and not when a program starts that may never need them.
TELLING_NAME = (
    r"(?:^|_)(?:keys?|pass|pwd|pat|jwt|cookie|bearer|auth|authorization|headers)(?:_|$)"
    r"|(?:api|access|secret|private)key|token|secret|password|passwd|passphrase|credential"
)
"""A variable is secret when its name holds one of these, the first ones as a whole word between underscores, ..."""
TELLING_VALUE = (
    r"\s*(?:sk-[\w-]{16}|gh[pousr]_\w{16}|github_pat_\w|glpat-[\w-]{16}|xox[abprs]-|AKIA[0-9A-Z]{16}|AIza[\w-]{30}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY|[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@)"
)
"""... or when its value looks like a key, or like an address with a password in it."""
HARMLESS_NAME = r"PWD|OLDPWD|SSH_AUTH_SOCK|TOKENIZERS_PARALLELISM|GIT_CONFIG_KEY_\d+"
"""Names that look like secrets and are none: paths, a socket, a switch, the names of git settings."""

SHORTEST = 8
"""Characters of a secret that is looked for in texts."""


class SecretFiles(Struct, frozen=True):
    """Which files are taken to hold secrets, by their names; in what is configured `*` is any text."""

    more: tuple[str, ...] = ()
    """Names besides those of env files."""
    fewer: tuple[str, ...] = ()
    """Names of env files that hold none."""

    def has(self, name: str) -> bool:
        """Whether a file of this name is one: `.env`, `.env.production`, `.env~`, not `.env.example`.

        Another word is another file: `.envrc` holds what a shell runs, and `.environment` whatever it does.
        """
        if not self.more and not name.startswith("."):  # asked of each name of a tree
            return False
        name = name.casefold()
        if _matches(self.more, name):
            return True
        rest = name.removeprefix(ENV_FILE)
        if not name.startswith(ENV_FILE) or rest[:1].isalnum() or _matches(self.fewer, name):
            return False
        return re.split(r"[^a-z0-9]+", rest)[-1] not in EXAMPLE_SUFFIXES


ENV_FILES = SecretFiles()
"""Where nothing is configured."""


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return bool(patterns) and _pattern(patterns).fullmatch(name) is not None


@lru_cache(maxsize=16)
def _pattern(patterns: tuple[str, ...]) -> re.Pattern[str]:
    texts = (".*".join(map(re.escape, pattern.casefold().split("*"))) for pattern in patterns)
    return re.compile("|".join(texts), re.DOTALL)


def is_secret_variable(name: str, value: str) -> bool:
    """Whether an environment variable is taken to hold a secret."""
    if re.fullmatch(HARMLESS_NAME, name):
        return False
    return bool(re.search(TELLING_NAME, name, re.IGNORECASE) or re.match(TELLING_VALUE, value, re.IGNORECASE))


def without_secrets(variables: Mapping[str, str], passed: frozenset[str]) -> dict[str, str]:
    """Return the variables that are no secrets, and those that are and are named in `passed`."""
    return {name: value for name, value in variables.items() if name in passed or not is_secret_variable(name, value)}


def secret_values(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of variables that are secrets and long enough to be told from ordinary words."""
    return tuple(
        value for name, value in variables.items() if len(value) >= SHORTEST and is_secret_variable(name, value)
    )
