"""Which paths file tools may touch: the working directory and the directories configured beside it."""

from pathlib import Path

from msgspec import Struct


class Workspace(Struct, frozen=True):
    """Roots of the workspace, as absolute real paths; the first is the working directory."""

    writable: tuple[Path, ...]
    readable: tuple[Path, ...] = ()
    """Roots that may be read besides the writable ones."""
