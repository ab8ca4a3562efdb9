"""Knows what holds keys below a home, by its place: no file tool shows it, wherever the search began."""

import os
from pathlib import Path

from msgspec import Struct

from yarrow.platform import system
from yarrow.policy.secrets import HOME_SECRETS


class Keys(Struct, frozen=True):
    """Files and directories that hold keys, as their paths are compared, each with a slash behind it."""

    places: tuple[str, ...]

    @classmethod
    def of(cls, home: Path) -> "Keys":
        """Take those of a home, and what they lead to where they are links."""
        real = os.path.realpath(home).rstrip("/")
        named = [f"{real}/{name}" for name in HOME_SECRETS]
        linked = [os.path.realpath(name) for name in named if os.path.islink(name)]  # noqa: PTH114 (for each call)
        return cls(tuple(f"{system.compared(place)}/" for place in (*named, *linked)))

    def has(self, real: str) -> bool:
        """Whether a real path is one of them, or lies in one."""
        return f"{system.compared(real)}/".startswith(self.places)
