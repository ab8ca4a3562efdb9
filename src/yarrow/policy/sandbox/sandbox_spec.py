"""What a sandbox shows, hides and lets be written."""

from pathlib import Path
from typing import Literal

from msgspec import Struct

from yarrow.platform import system
from yarrow.policy.sandbox.command_user import CommandUser
from yarrow.policy.secrets import ENV_FILES, SecretFiles

SandboxLevel = Literal["off", "workspace", "strict"]


class SandboxSpec(Struct, frozen=True):
    """A sandbox for the commands of one session; all paths are real."""

    level: SandboxLevel
    writable: tuple[Path, ...]
    """Roots of the workspace."""
    readable: tuple[Path, ...]
    """Roots besides, that are shown."""
    home: Path
    """The person's home, in whose place another stands."""
    session_dir: Path
    """A directory of the session's own: what it keeps in its home and in /tmp from one call to the next."""
    hidden: tuple[Path, ...] = ()
    """The service's own directories."""
    secrets: SecretFiles = ENV_FILES
    """Files of the workspace that are not read."""
    write_protected: tuple[Path, ...] = ()
    """Files and directories that are not changed, wherever they lie; absolute, perhaps through symlinks."""
    journal_dir: Path | None = None
    """Where is written down what to take away if the service is killed; None is nowhere."""
    read_only_roots: frozenset[Path] = frozenset()
    """Roots among `writable` that are guarded as the others are, and are read-only."""
    network: bool = True
    """Whether commands reach the network; never in `strict`."""
    session: str = ""
    """The session whose commands run in it."""
    owner: CommandUser | None = None
    """Who commands run as; None is the user that Yarrow runs as."""

    @property
    def runs_as_root(self) -> bool:
        """Whether commands run as root, so that files for root only need masks."""
        return system.is_root() and self.owner is None
