"""Access of a tool: one file, a shell command, or something else."""

from typing import Any

import msgspec
from msgspec import Struct

from yarrow.policy.permission.path_rules import ToolKind

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

    @classmethod
    def file(cls, argument: str = PATH_ARGUMENT) -> "Access":
        """Return the access of a tool that reads or writes the path in an argument, within the workspace."""
        return cls(ToolKind.FILE, argument)

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
