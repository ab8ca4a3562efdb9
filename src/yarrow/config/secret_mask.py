"""Masking of possible secrets in values before display."""

import re
from typing import Any

from yarrow.config.settings_source import KeyPath

MASK = "(set)"
"""Replacement for a masked value."""
FREE_KEYS = frozenset({"headers", "extraBody"})
"""Keys of a provider with arbitrary user content, such as a token."""
MIN_KEY_CHARACTERS = 16
"""Length in characters from which a name must be all upper or all lower case; shorter names may be mixed."""
_URL = re.compile(r"^([^:/?#]*://)([^/?#]*@)?([^?#]*)([?#].*)?$", re.DOTALL)


def is_variable_name(text: str) -> bool:
    """Return whether a text can be the name of an environment variable, not a key. True for an empty text."""
    if not text or len(text) >= MIN_KEY_CHARACTERS:
        return re.fullmatch(r"[A-Z_][A-Z0-9_]*|[a-z_][a-z0-9_]*|", text) is not None
    return text.isidentifier()


def mask_secrets(path: KeyPath, value: Any, free: frozenset[str] = FREE_KEYS) -> Any:
    """Return a JSON value with secrets masked; `free` are the provider keys whose whole value is masked."""
    if len(path) < 3 or path[0] != "providers" or not value:
        return value
    match path[2]:
        case "apiKeyCommand":
            return MASK
        case "baseUrl" if isinstance(value, str):
            return _URL.sub(_mask_url, value)
        case "apiKeyEnv" if isinstance(value, str) and not is_variable_name(value):
            return MASK  # a key in place of the name of its variable
        case key if key in free:
            return MASK
        case _:
            return value


def _mask_url(found: re.Match[str]) -> str:
    scheme, user, rest, query = found.groups()
    return f"{scheme}{f'{MASK}@' if user else ''}{rest}{f'{query[0]}{MASK}' if query else ''}"
