"""Interface of a tool: a name, a typed argument model, its access, and a run with partial output and a result."""

from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec import Struct

from yarrow.config.settings import BashSettings
from yarrow.message import Image
from yarrow.policy.environment import ProviderKeys
from yarrow.policy.permission.path_rules import ToolKind

if TYPE_CHECKING:  # a run without a call needs none of them
    from yarrow.policy.sandbox.quarantine import QuarantineEntry
    from yarrow.policy.sandbox.sandbox_spec import SandboxSpec
    from yarrow.policy.workspace import Workspace

PATH_ARGUMENT = "path"
"""Name of the argument that makes a tool without declared access a file tool."""
COMMAND_ARGUMENT = "command"
"""Name of the argument that makes a tool without declared access a shell tool."""


class Access(Struct, frozen=True):
    """Kind of a tool's target and the argument that names it; `Tool.read_only` decides between reading and writing."""

    kind: ToolKind
    argument: str = ""
    """Name of the argument with the path or command."""
    directory: str = ""
    """Name of the argument with a command's working directory; empty if it is always the session's."""
    sandboxed: bool = False
    """True if its commands run in the session's sandbox."""
    declared: bool = True
    """False if inferred from argument names: the user is asked first, because the tool may reach further."""
    creates_parents: bool = False
    """True if it creates the missing parent directories of a path."""

    @classmethod
    def file(cls, argument: str = PATH_ARGUMENT, *, creates_parents: bool = False) -> "Access":
        """Return the access of a tool that reads or writes the path in an argument, within the workspace."""
        return cls(ToolKind.FILE, argument, creates_parents=creates_parents)

    @classmethod
    def shell(cls, argument: str = COMMAND_ARGUMENT, *, directory: str = "", sandboxed: bool = False) -> "Access":
        """Return the access of a tool that runs the shell command in an argument."""
        return cls(ToolKind.SHELL, argument, directory, sandboxed)

    def get_subject(self, arguments: Struct) -> str | None:
        """Return the path or command of a call; None if it has none."""
        value: object = getattr(arguments, self.argument, None) if self.argument else None
        return value if isinstance(value, str) else None

    def check(self, arguments: type[Struct]) -> None:
        """Raise ValueError if a named argument does not exist."""
        known = arguments.__struct_fields__
        for name in filter(None, (self.argument, self.directory)):
            if name not in known:
                raise ValueError(f"access names the unknown argument {name!r}; the arguments are {', '.join(known)}")


OTHER_ACCESS = Access(ToolKind.OTHER)


def get_access(tool: Any) -> Access:
    """Return the access that a tool declares, or infer it from the names of its arguments."""
    declared: object = getattr(tool, "access", None)
    return declared if isinstance(declared, Access) else _infer_access(tool.arguments)


def _infer_access(arguments: type[Struct]) -> Access:
    fields = arguments.__struct_fields__
    if PATH_ARGUMENT in fields:
        return Access(ToolKind.FILE, PATH_ARGUMENT, declared=False)
    if COMMAND_ARGUMENT in fields:
        return Access(ToolKind.SHELL, COMMAND_ARGUMENT, declared=False)
    return msgspec.structs.replace(OTHER_ACCESS, declared=False)


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
    workspace: "Workspace"
    """Paths that may be read and written."""
    bash: BashSettings = BashSettings()
    sandbox: "SandboxSpec | None" = None
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

    It may declare its target as `access`, an `Access`; otherwise `get_access` infers one.
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
