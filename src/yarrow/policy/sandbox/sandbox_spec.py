"""Specification of a sandbox: what it shows, hides and makes writable."""

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
    """Further roots that are shown."""
    home: Path
    """The user's home, which is replaced inside."""
    session_dir: Path
    """Directory of the session with its home and /tmp, which persist between calls."""
    hidden: tuple[Path, ...] = ()
    """The service's own directories."""
    secrets: SecretFiles = ENV_FILES
    """Workspace files that must not be read."""
    write_protected: tuple[Path, ...] = ()
    """Files and directories that must not change, anywhere; absolute, possibly through symlinks."""
    journal_dir: Path | None = None
    """Directory of the cleanup journal, for recovery if the service is killed; None for no journal."""
    read_only_roots: frozenset[Path] = frozenset()
    """Members of `writable` that are protected like the others but mounted read-only."""
    network: bool = True
    """True if commands reach the network; they never do in `strict`."""
    session: str = ""
    """Session whose commands run in the sandbox."""
    owner: CommandUser | None = None
    """User that commands run as; None for Yarrow's own user."""

    @property
    def runs_as_root(self) -> bool:
        """True if commands run as root, so that root-only files need masks."""
        return system.is_root() and self.owner is None
