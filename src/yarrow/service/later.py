"""The RPCs that are in the interface and not yet in this build; a test holds the list, so that it can only shrink."""

from typing import Any

from yarrow.errors import Unsupported
from yarrow.service.answers import Context
from yarrow.service.errors import refuse

LATER: dict[str, str] = {
    "GetStats": "figures of a session",
    "AnswerPermission": "permissions",
    "Compact": "compaction",
    "BranchSession": "branching",
    "ForkSession": "forking",
    "RebaseSession": "rebasing",
    "MergeSession": "merging",
    "DeleteSession": "deleting sessions",
    "GetSessionTree": "the session tree",
    "ExportSession": "export",
    "ImportSession": "import",
    "ListCommands": "templates and skills",
    "RunTool": "running a tool by hand",
    "ListFiles": "listing files",
}


def _later(name: str, what: str) -> Any:
    async def handler(_self: object, _request: object, context: Context) -> None:
        await refuse(context, Unsupported(f"{name}: {what} comes with a later version"))

    handler.__name__ = name
    return handler


class Later:
    """Answers each RPC of `LATER` with UNIMPLEMENTED and what it waits for."""


for _name, _what in LATER.items():
    setattr(Later, _name, _later(_name, _what))
