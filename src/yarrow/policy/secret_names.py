"""Secrets in file names and in environment variables."""

import re
from collections.abc import Mapping
from functools import lru_cache

from msgspec import Struct

NAME_WORDS = (
    *("key", "keys", "pass", "pwd", "pw", "psw", "pat", "jwt", "cookie", "cookies", "bearer", "auth", "oauth"),
    *("authorization", "headers", "dsn", "otp", "totp", "mnemonic", "sas", "cred", "creds", "sshpass", "signature"),
)
"""Words of a secret name, delimited by underscores."""
NAME_PARTS = (
    *("apikey", "accesskey", "secretkey", "privatekey", "accountkey", "signingkey", "encryptionkey", "token(?!iz)"),
    *("secret", "password", "passwd", "passphrase", "passcode", "credential", "connection_?str(?:ing)?", "conn_?str"),
)
"""Parts of a secret name, at any position."""
NAME_ENDS = ("keys?", "pass", "pwd")
"""Ends of a secret word that is run together, as in DBPASS and SSHKEY."""
ORDINARY_WORDS = (
    *("bypass", "compass", "surpass", "trespass", "encompass", "oldpwd", "turnkey", "hotkeys?", "monkeys?", "donkey"),
    *("turkey", "hockey", "jockey", "whiskey", "lesskey", "sortkeys?", "pubkeys?", "publickeys?"),
)
"""Words with such an end that are no secrets."""
VALUE_STARTS = (
    # Keys with a vendor's prefix.
    *(r"sk-[\w-]{16}", r"[sr]k_(?:live|test)_\w{8}", r"whsec_\w{8}", r"SG\.[\w-]{16}[\w-]*\.[\w-]{8}"),
    *(r"gh[pousr]_\w{16}", r"github_pat_\w", r"gl(?:pat|dt|rt|ptt|soat)-[\w-]{16}", r"xox[abeprs]-", r"xapp-\d"),
    *("A(?:KIA|SIA)[0-9A-Z]{16}", r"AIza[\w-]{30}", r"ya29\.[\w-]{16}", r"npm_\w{16}", r"pypi-[\w-]{16}", r"hf_\w{16}"),
    *(r"gsk_\w{16}", r"xai-\w{16}", r"r8_\w{16}", r"pplx-\w{16}", r"nvapi-[\w-]{16}", r"tvly-[\w-]{16}"),
    *(r"do[or]_v1_\w{16}", r"dop_v1_\w{16}", r"shp(?:at|ca|pa|ss)_\w{16}", r"hv[bsr]\.[\w-]{16}", r"ATATT3[\w-]{16}"),
    *(r"lin_api_\w{16}", r"dckr_pat_[\w-]{16}", r"glsa_\w{16}", r"tskey-[\w-]{16}", r"sntry[su]_[\w=]{16}"),
    *(r"key-[0-9a-f]{32}\b", r"sq0(?:csp|atp)-[\w-]{16}", r"AGE-SECRET-KEY-1", r"eyJ[\w-]{8}[\w-]*\.[\w-]{8}"),
    r"(?:bearer|basic|token) [\w+/=.~-]{16}",
    # URLs with a password, or a token as the user.
    *(r"[a-z][a-z0-9+.-]*://[^/\s:@]*:[^/\s@]+@", r"https?://[0-9a-f]{32}@"),
    *(r"https://hooks\.slack\.com/(?:services|workflows)/\w", r"https://discord(?:app)?\.com/api/webhooks/\d"),
)
"""Patterns for the start of a secret value."""
VALUE_PARTS = (
    r"-----BEGIN [A-Z ]*PRIVATE KEY",
    r"(?:^|[;&?\s'\"-]|-D)(?:password|pwd|(?:account|sharedaccess|api_?)key|(?:access|auth)_token|client_secret)=[^\s;&'\"]{4}",
    r"[?&;]sig=[\w%+/-]{16}",
    r"\"(?:private_key|client_secret|refresh_token|auth|identitytoken)\"\s*:\s*\"[^\"]{4}",
    r"(?:client-key-data|_authToken|_password)\s*[:=]\s*\S{4}",
)
"""Patterns for any part of a secret value: in connection strings, JSON and file contents."""
HARMLESS_NAMES = ("PWD", "OLDPWD", "SSH_AUTH_SOCK", r"GIT_CONFIG_KEY_\d+")
"""Names that look secret but are not: paths, a socket, the names of git settings."""


ENV_FILE = ".env"
EXAMPLE_SUFFIXES = frozenset({"example", "examples", "sample", "template", "dist", "defaults", "schema"})
"""Last parts of the names of env files meant to be read, as in `.env.example`."""

EDITOR_COPY_PATTERN = r"#(.+)#|\.(.+)\.(?:s[a-w][a-z]|kate-swp)|(.+)~"
"""Pattern of the names of an editor's backups and swap files; a group matches the name of the file."""

# Patterns are strings, compiled at first use: a program may start that never needs them.
SECRET_NAME_PATTERN = (
    rf"(?:^|_)(?:{'|'.join(NAME_WORDS)})\d*(?:_|$)|{'|'.join(NAME_PARTS)}"
    rf"|(?:^|_)(?!(?:{'|'.join(ORDINARY_WORDS)})\d*(?:_|$))[a-z]+(?:{'|'.join(NAME_ENDS)})\d*(?:_|$)"
)
"""Pattern of secret variable names."""
SECRET_VALUE_PATTERN = rf"\s*(?:{'|'.join(VALUE_STARTS)})|(?s:.)*?(?:{'|'.join(VALUE_PARTS)})"
"""Pattern of secret values, matched at the start: they begin like a key or contain one."""
HARMLESS_NAME_PATTERN = "|".join(HARMLESS_NAMES)

MIN_SECRET_CHARACTERS = 8
"""Minimum characters of a secret that is searched for in texts."""

MAX_CACHED_VARIABLES = 1_024
"""Maximum variables whose result is cached for the next command; the least recently used is dropped."""


class SecretFiles(Struct, frozen=True):
    """Names of files assumed to contain secrets; in configured names `*` matches any text."""

    extra_names: tuple[str, ...] = ()
    """Names besides those of env files."""
    exempt_names: tuple[str, ...] = ()
    """Names of env files that contain no secrets."""

    def has(self, name: str) -> bool:
        """Return whether a file with this name is secret: `.env`, `.env.production`, `.env2`, but not `.env.example`.

        So are an editor's copies of it, such as `..env.swp` and `#.env#`.

        A different word means a different file: `.envrc` contains shell commands, `.environment` could be anything.
        """
        if not self.extra_names and name[:1] not in {".", "#"}:  # called for each name of a tree
            return False
        name = name.casefold()
        copied = re.fullmatch(EDITOR_COPY_PATTERN, name)
        return self._has(name) or (copied is not None and self._has(next(filter(None, copied.groups()))))

    def _has(self, name: str) -> bool:
        if _matches(self.extra_names, name):
            return True
        rest = name.removeprefix(ENV_FILE)
        is_other_word = re.match(r"\d*[a-z]", rest) if rest.isascii() else rest[:1].isalnum()
        if not name.startswith(ENV_FILE) or is_other_word or _matches(self.exempt_names, name):
            return False
        return re.split(r"[^a-z0-9]+", rest)[-1] not in EXAMPLE_SUFFIXES


ENV_FILES = SecretFiles()
"""Default when nothing is configured."""


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    return bool(patterns) and _pattern(patterns).fullmatch(name) is not None


@lru_cache(maxsize=16)
def _pattern(patterns: tuple[str, ...]) -> re.Pattern[str]:
    texts = (".*".join(map(re.escape, pattern.casefold().split("*"))) for pattern in patterns)
    return re.compile("|".join(texts), re.DOTALL)


@lru_cache(MAX_CACHED_VARIABLES)
def is_secret_variable(name: str, value: str) -> bool:
    """Return whether an environment variable is assumed to contain a secret."""
    if re.fullmatch(HARMLESS_NAME_PATTERN, name):
        return False
    return bool(
        re.search(SECRET_NAME_PATTERN, name, re.IGNORECASE) or re.match(SECRET_VALUE_PATTERN, value, re.IGNORECASE)
    )


def without_secrets(variables: Mapping[str, str], passed: frozenset[str]) -> dict[str, str]:
    """Return the variables that are not secret, and the secret ones listed in `passed`."""
    return {name: value for name, value in variables.items() if name in passed or not is_secret_variable(name, value)}


def secret_values(variables: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values of secret variables that are long enough to be distinguished from ordinary words."""
    return tuple(
        value
        for name, value in variables.items()
        if len(value) >= MIN_SECRET_CHARACTERS and is_secret_variable(name, value)
    )
