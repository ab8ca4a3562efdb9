"""What the service is made of: its settings, its stores, and what extensions add to it."""

import os
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from yarrow.agent.contributions import Contributions
from yarrow.agent.permission_broker import PermissionConfig
from yarrow.agent.retry import REAL_CLOCK, Clock
from yarrow.config.settings import Settings
from yarrow.event.bus import Observer
from yarrow.policy.sandbox_factory import NO_SANDBOX, SandboxFactory
from yarrow.policy.secrets import SecretFiles
from yarrow.prompt.session_directories import SessionDirectories
from yarrow.service.provider_cache import ProviderCache
from yarrow.session.manager import SessionManager
from yarrow.tool.registry import ToolRegistry


class Telemetry(Protocol):
    """Measures what a service does, for those who operate it."""

    def begin(self, sessions: Callable[[], int]) -> None:
        """Begin; `sessions` tells, in any thread, how many are in memory."""
        ...

    def make_observer(self, session_id: str, model: Callable[[], tuple[str, str]]) -> Observer:
        """Return what measures one session; `model` tells the ids of its provider and of its model now."""
        ...

    async def close(self) -> None:
        """Send what was not sent, in a bounded time."""
        ...


class Dependencies(Struct, frozen=True):
    """Everything that sessions are made with."""

    settings: Settings
    manager: SessionManager
    providers: ProviderCache
    registry: ToolRegistry
    now: Callable[[], float]
    version: str
    contributions: Contributions
    home: Path
    """The person's home directory."""
    user_dir: Path
    """The directory of the person's own things."""
    permission_config: PermissionConfig = PermissionConfig()
    """What is configured about calls that would be asked."""
    sandboxes: SandboxFactory = NO_SANDBOX
    """What shell commands run in."""
    protected_files: tuple[Path, ...] = ()
    """Files of the service that no tool may reach: real paths."""
    startup_files: tuple[Path, ...] = ()
    """Files that the next start executes or obeys, which no tool writes to: as named, and their real paths."""
    retry_clock: Clock = REAL_CLOCK
    """How is waited before a failed model call is tried again."""
    secret_values: Callable[[], Collection[str]] = tuple
    """Values that no tool puts out and no export holds: secrets of the environment, and keys."""
    key_values: Callable[[], Collection[str]] = tuple
    """Keys of providers, which are recorded and told nowhere."""
    key_names: Callable[[], Collection[str]] = tuple
    """Variables that are named for such a key."""
    withheld_names: Callable[[], Collection[str]] = tuple
    """Variables that `apiKeyEnv` names, which no command gets."""
    telemetry: Telemetry | None = None
    """Who measures what the service does, if anybody does."""

    def prompt_places(self, cwd: Path) -> SessionDirectories:
        """Return where the prompts, skills and context files of a working directory are."""
        return SessionDirectories.make(
            home=self.home, user_directory=self.user_dir, cwd=cwd, secrets=self.secret_files()
        )

    def write_protected_dirs(self, cwd: Path) -> tuple[Path, ...]:
        """Return the real paths of the settings and sessions, which no tool writes to wherever they lie.

        Sessions that are kept around a working directory itself would close all of it.
        """
        users, sessions = Path(os.path.realpath(self.user_dir)), Path(os.path.realpath(self.manager.root))
        return (users,) if cwd.is_relative_to(sessions) else (users, sessions)

    def secret_files(self) -> SecretFiles:
        """Return which files are closed for what they hold."""
        configured = self.settings.secret_files
        return SecretFiles(extra_names=configured.more, exempt_names=configured.fewer)
