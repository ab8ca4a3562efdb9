"""The access of a tool: whether it touches one file, runs a shell command or does something else."""

from typing import Any

import msgspec
from msgspec import Struct

from yarrow.policy.permission.request import ToolKind

PATH_ARGUMENT = "path"
"""Argument that makes a tool without a declared access a file tool."""
COMMAND_ARGUMENT = "command"
"""Argument that makes a tool without a declared access a shell tool."""


class Access(Struct, frozen=True):
    """What a tool touches, and the argument that names it. `read_only` of the tool says whether it writes there."""

    kind: ToolKind
    argument: str = ""
    """Name of the argument that holds the path or the command."""
    directory: str = ""
    """Name of the argument that holds the directory of a command; empty if it always runs in the session's."""
    sandboxed: bool = False
    """Whether its commands run in the sandbox of the session."""
    declared: bool = True
    """Whether the tool says so itself, which spares the question about tools of unknown reach."""

    @classmethod
    def file(cls, argument: str = PATH_ARGUMENT) -> "Access":
        """Return the access of a tool that touches the file or directory in an argument, through the workspace."""
        return cls(ToolKind.FILE, argument)

    @classmethod
    def shell(cls, argument: str = COMMAND_ARGUMENT, *, directory: str = "", sandboxed: bool = False) -> "Access":
        """Return the access of a tool that runs the shell command in an argument."""
        return cls(ToolKind.SHELL, argument, directory, sandboxed)

    def get_subject(self, arguments: Struct) -> str | None:
        """Return the path or the command of a call; None if it has none."""
        value: object = getattr(arguments, self.argument, None) if self.argument else None
        return value if isinstance(value, str) else None

    def check(self, arguments: type[Struct]) -> None:
        """Raise ValueError if an argument that this names does not exist."""
        known = arguments.__struct_fields__
        for name in filter(None, (self.argument, self.directory)):
            if name not in known:
                raise ValueError(f"access names the argument {name!r}; the arguments are {', '.join(known)}")


OTHER_ACCESS = Access(ToolKind.OTHER)


def get_access(tool: Any) -> Access:
    """Return the access that a tool declares, or the one that the names of its arguments suggest."""
    declared: object = getattr(tool, "access", None)
    return declared if isinstance(declared, Access) else _infer_access(tool.arguments)


def _infer_access(arguments: type[Struct]) -> Access:
    fields = arguments.__struct_fields__
    if PATH_ARGUMENT in fields:
        return Access(ToolKind.FILE, PATH_ARGUMENT, declared=False)
    if COMMAND_ARGUMENT in fields:
        return Access(ToolKind.SHELL, COMMAND_ARGUMENT, declared=False)
    return msgspec.structs.replace(OTHER_ACCESS, declared=False)
