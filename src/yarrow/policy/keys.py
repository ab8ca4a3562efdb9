"""Knows what holds keys below a home, by its place: no file tool shows it, wherever the search began."""

import os
import time
from pathlib import Path

from msgspec import Struct

from yarrow.platform import system
from yarrow.policy.secrets import HOME_SECRETS

LOOK_SECONDS = 1.0
"""For which it is remembered which keys are links: one call asks several times."""


class Keys(Struct, frozen=True):
    """Files and directories that hold keys, as their paths are compared, each with a slash behind it."""

    places: tuple[str, ...]

    @classmethod
    def of(cls, home: Path) -> "Keys":
        """Take those of a home, and what they lead to where they are links, as it was a second ago at most."""
        now = time.monotonic()
        at, known = _looks.get(home, (0.0, None))
        if known is None or now - at > LOOK_SECONDS:
            known = cls._of(home)
            _looks.clear()
            _looks[home] = (now, known)
        return known

    @classmethod
    def _of(cls, home: Path) -> "Keys":
        real = os.path.realpath(home).rstrip("/")
        named = [f"{real}/{name}" for name in HOME_SECRETS]
        linked = [os.path.realpath(name) for name in named if os.path.islink(name)]  # noqa: PTH114 (for each call)
        return cls(tuple(f"{system.compared(place)}/" for place in (*named, *linked)))

    def has(self, real: str) -> bool:
        """Whether a real path is one of them, or lies in one."""
        return f"{system.compared(real)}/".startswith(self.places)


_looks: dict[Path, tuple[float, Keys]] = {}
"""Of the home that was asked for last."""
