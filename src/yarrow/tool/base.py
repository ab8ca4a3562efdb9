"""What a tool is: a name, a typed argument model, and a run that yields partial output and then its result."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Protocol

from msgspec import Struct

from yarrow.config.settings import BashSettings
from yarrow.message import Image
from yarrow.policy.sandbox.arguments import Box
from yarrow.policy.workspace import Workspace


class ToolContext(Struct, frozen=True):
    """All that a tool is given besides its arguments; cancellation reaches it as `CancelledError`."""

    cwd: Path
    """The session's working directory; absolute."""
    workspace: Workspace
    """Which paths may be read and written."""
    bash: BashSettings = BashSettings()
    sandbox: Box | None = None
    """What shell commands run in; None is nothing."""
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
    """One tool. `arguments` is the `msgspec.Struct` whose JSON Schema the model sees and that a call is decoded to."""

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
