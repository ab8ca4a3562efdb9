"""Interface of a tool: a name, a typed argument model, and a run that yields partial output and then its result."""

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from yarrow.config.settings import BashSettings
from yarrow.message import Image
from yarrow.policy.environment import ProviderKeys
from yarrow.policy.sandbox.sandbox_spec import SandboxSpec
from yarrow.policy.workspace import Workspace

if TYPE_CHECKING:
    from yarrow.policy.sandbox.quarantine import QuarantineEntry


class OutputFilter(Protocol):
    """Redacts secrets from one output; bytes that may begin a secret are held back until more arrives."""

    def feed(self, piece: bytes) -> bytes:
        """Process a piece; return what can be stored and shown now."""
        ...

    def flush(self) -> bytes:
        """Return what is held back at the end of the output."""
        ...


class PassThrough:
    """Output filter that changes nothing."""

    def feed(self, piece: bytes) -> bytes:
        """Return the piece unchanged."""
        return piece

    def flush(self) -> bytes:
        """Return nothing, since nothing is held back."""
        return b""


class CommandEffects(Struct, frozen=True):
    """Effects of a sandboxed command that a notice at the end of the run reports."""

    executed: Sequence[str] = ()
    """Files that other tools execute and that the command created or changed."""
    replaced: "Sequence[QuarantineEntry]" = ()
    """Quarantined files that were changed outside the sandbox meanwhile, perhaps by the user."""


def _ignore(effects: CommandEffects) -> None:
    """Ignore the effects."""


class ToolContext(Struct, frozen=True):
    """Everything a tool receives besides its arguments; cancellation reaches it as `CancelledError`."""

    cwd: Path
    """Absolute working directory of the session."""
    workspace: Workspace
    """Paths that may be read and written."""
    bash: BashSettings = BashSettings()
    sandbox: SandboxSpec | None = None
    """Sandbox for shell commands; None for no sandbox."""
    output_filter: Callable[[], OutputFilter] = PassThrough
    """Makes a filter for one output, applied before any of it is truncated or written to a file."""
    outside: Path | None = None
    """Real directory in which the user allowed the command to run outside the sandbox; None for all other calls."""
    keys: ProviderKeys = ProviderKeys()
    """API keys of providers, which are withheld from all commands."""
    report_effects: Callable[[CommandEffects], None] = _ignore
    """Accepts the effects of each sandboxed command."""
    dry_run: bool = False
    """True if nothing may be changed and no process started; set by the registry."""


class Progress(Struct, frozen=True):
    """Piece of output of a running tool; never empty."""

    text: str


class Done(Struct, frozen=True):
    """Result of a tool that succeeded."""

    text: str
    diff: str = ""
    """Unified diff of what was changed, or would be changed in a dry run."""
    images: tuple[Image, ...] = ()


class ToolFailed(Struct, frozen=True):
    """Result of a tool that failed, as shown to the model: what went wrong and what to do instead."""

    text: str


Result = Done | ToolFailed


class Tool(Protocol):
    """A tool. The model sees the JSON Schema of `arguments`, a `msgspec.Struct`, and calls are decoded to it.

    It may declare its target as `access`, an `Access`; otherwise `yarrow.tool.access` infers one.
    """

    @property
    def name(self) -> str:
        """Name by which the model calls it."""
        ...

    @property
    def read_only(self) -> bool:
        """True if it changes nothing; it then also runs in a dry run, and in parallel with others."""
        ...

    @property
    def arguments(self) -> type[Struct]:
        """Argument model; unknown fields are rejected."""
        ...

    def run(self, arguments: Any, context: ToolContext) -> AsyncIterator[Progress | Result]:
        """Run the tool: yield any number of `Progress`, then exactly one result."""
        ...

    async def preview(self, arguments: Any, context: ToolContext) -> Result:
        """Describe precisely what `run` would do, without changing anything."""
        ...
