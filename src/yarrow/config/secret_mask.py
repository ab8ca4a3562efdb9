"""Hides what may be a secret in a value before it is shown to people."""

import re
from typing import Any

from yarrow.config.layer import KeyPath

MASK = "(set)"
"""What is shown instead."""
FREE_KEYS = frozenset({"headers", "extraBody"})
"""Keys of a provider below which people write what they like, such as a token."""
MIN_KEY_CHARACTERS = 16
"""Characters; in a shorter name small and capital letters may be mixed."""
_URL = re.compile(r"^([^:/?#]*://)([^/?#]*@)?([^?#]*)([?#].*)?$", re.DOTALL)


def is_variable_name(text: str) -> bool:
    """Whether a text can name an environment variable, and does not rather look like a key. Nothing names none."""
    if not text or len(text) >= MIN_KEY_CHARACTERS:
        return re.fullmatch(r"[A-Z_][A-Z0-9_]*|[a-z_][a-z0-9_]*|", text) is not None
    return text.isidentifier()


def mask_secrets(path: KeyPath, value: Any, free: frozenset[str] = FREE_KEYS) -> Any:
    """Return a JSON value as it may be shown; `free` are the keys of a provider below which nothing is."""
    if len(path) < 3 or path[0] != "providers" or not value:
        return value
    match path[2]:
        case "apiKeyCommand":
            return MASK
        case "baseUrl" if isinstance(value, str):
            return _URL.sub(_mask_url, value)
        case "apiKeyEnv" if isinstance(value, str) and not is_variable_name(value):
            return MASK  # a key in its place
        case key if key in free:
            return MASK
        case _:
            return value


def _mask_url(found: re.Match[str]) -> str:
    scheme, user, rest, query = found.groups()
    return f"{scheme}{f'{MASK}@' if user else ''}{rest}{f'{query[0]}{MASK}' if query else ''}"
