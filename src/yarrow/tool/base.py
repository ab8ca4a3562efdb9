"""What a tool is: a name, a typed argument model, and a run that yields partial output and then its result."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from yarrow.config.settings import BashSettings
from yarrow.message import Image
from yarrow.policy.environment import ProviderKeys
from yarrow.policy.sandbox.sandbox_spec import SandboxSpec
from yarrow.policy.workspace import Workspace


class OutputFilter(Protocol):
    """Takes secrets out of one output; what may become one is held back until more comes."""

    def feed(self, piece: bytes) -> bytes:
        """Take a piece; return what can be kept and shown now."""
        ...

    def flush(self) -> bytes:
        """Return what is held back: the output is over."""
        ...


class PassThrough:
    """Passes on all there is, where there are no secrets."""

    def feed(self, piece: bytes) -> bytes:
        """Return the piece."""
        return piece

    def flush(self) -> bytes:
        """Return nothing: nothing was held back."""
        return b""


class ToolContext(Struct, frozen=True):
    """All that a tool is given besides its arguments; cancellation reaches it as `CancelledError`."""

    cwd: Path
    """The session's working directory; absolute."""
    workspace: Workspace
    """Which paths may be read and written."""
    bash: BashSettings = BashSettings()
    sandbox: SandboxSpec | None = None
    """What shell commands run in; None is nothing."""
    output_filter: Callable[[], OutputFilter] = PassThrough
    """Returns what an output goes through before any of it is cut, or kept in a file."""
    outside: Path | None = None
    """The real directory in which a command was allowed to run outside the session's sandbox; None for all others."""
    keys: ProviderKeys = ProviderKeys()
    """Keys of providers, which no command gets."""
    dry_run: bool = False
    """Whether nothing may be changed and no process started, as the registry sets it."""


class Progress(Struct, frozen=True):
    """A piece of output of a running tool; never empty."""

    text: str


class Done(Struct, frozen=True):
    """The result of a tool that did what it was asked."""

    text: str
    diff: str = ""
    """A unified diff of what was changed, or would be in a dry run."""
    images: tuple[Image, ...] = ()


class ToolFailed(Struct, frozen=True):
    """The result of a tool that could not, as the model is told: what was wrong and what to do instead."""

    text: str


Result = Done | ToolFailed


class Tool(Protocol):
    """One tool. `arguments` is the `msgspec.Struct` whose JSON Schema the model sees and that a call is decoded to.

    It may declare what it touches with `access`, an `Access`; `yarrow.tool.access` says what counts without it.
    """

    @property
    def name(self) -> str:
        """The name the model calls it by."""
        ...

    @property
    def read_only(self) -> bool:
        """Whether it changes nothing, so that it runs in a dry run and beside others."""
        ...

    @property
    def arguments(self) -> type[Struct]:
        """The argument model, decoded with unknown fields refused."""
        ...

    def run(self, arguments: Any, context: ToolContext) -> AsyncIterator[Progress | Result]:
        """Do it: any number of `Progress`, then exactly one result, last."""
        ...

    async def preview(self, arguments: Any, context: ToolContext) -> Result:
        """Say precisely what `run` would do, and change nothing."""
        ...
