"""Dependencies of the service: its settings, its stores, and the contributions of extensions."""

from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from yarrow.agent.hooks import Contributions
from yarrow.agent.permission_broker import PermissionConfig
from yarrow.agent.retry import REAL_CLOCK, Clock
from yarrow.config.settings import Settings
from yarrow.event.bus import Observer
from yarrow.platform.real_path import real_path
from yarrow.policy.sandbox_factory import NO_SANDBOX, SandboxFactory
from yarrow.policy.secret_names import SecretFiles
from yarrow.prompt.resource_directories import SessionDirectories
from yarrow.service.provider_cache import ProviderCache
from yarrow.session.session_manager import SessionManager
from yarrow.tool.registry import ToolRegistry


class Telemetry(Protocol):
    """Measurements of the service, for its operators."""

    def begin(self, sessions: Callable[[], int]) -> None:
        """Start; `sessions` returns, in any thread, the number of sessions in memory."""
        ...

    def make_observer(self, session_id: str, model: Callable[[], tuple[str, str]]) -> Observer:
        """Return an observer of one session; `model` returns the current ids of its provider and its model."""
        ...

    async def close(self) -> None:
        """Send the remaining measurements, within a bounded time."""
        ...


class Dependencies(Struct, frozen=True):
    """Everything needed to create sessions."""

    settings: Settings
    manager: SessionManager
    providers: ProviderCache
    registry: ToolRegistry
    now: Callable[[], float]
    version: str
    contributions: Contributions
    home: Path
    """The user's home directory."""
    user_dir: Path
    """The user's own Yarrow directory."""
    permission_config: PermissionConfig = PermissionConfig()
    """Configured answers to requests for permission."""
    sandboxes: SandboxFactory = NO_SANDBOX
    """Sandboxes for shell commands."""
    protected_files: tuple[Path, ...] = ()
    """Files of the service that no tool may access: real paths."""
    startup_files: tuple[Path, ...] = ()
    """Files that the next start executes or obeys, so that no tool may write to them: as named, and as real paths.
    """
    retry_clock: Clock = REAL_CLOCK
    """Clock for the back-off before a failed model call is retried."""
    secret_values: Callable[[], Collection[str]] = tuple
    """Values redacted from tool output and exports: secrets of the environment, and keys."""
    key_values: Callable[[], Collection[str]] = tuple
    """Provider keys, redacted from records and from all responses."""
    key_names: Callable[[], Collection[str]] = tuple
    """Variables whose names mark them as such a key."""
    withheld_names: Callable[[], Collection[str]] = tuple
    """Variables that `apiKeyEnv` names; commands do not receive them."""
    telemetry: Telemetry | None = None
    """Measurements of the service; None if telemetry is off."""

    def prompt_places(self, cwd: Path) -> SessionDirectories:
        """Return the directories of prompts, skills and context files for a working directory."""
        return SessionDirectories.make(
            home=self.home, user_directory=self.user_dir, cwd=cwd, secrets=self.secret_files()
        )

    def write_protected_dirs(self, cwd: Path) -> tuple[Path, ...]:
        """Return the real paths of settings and sessions, to which no tool may write wherever they are.

        Sessions stored in a parent of the working directory are omitted, because they would protect all of it.
        """
        users, sessions = Path(real_path(self.user_dir)), Path(real_path(self.manager.root))
        return (users,) if cwd.is_relative_to(sessions) else (users, sessions)

    def secret_files(self) -> SecretFiles:
        """Return the rules for files that are hidden because of their content."""
        configured = self.settings.secret_files
        return SecretFiles(extra_names=configured.more, exempt_names=configured.fewer)
