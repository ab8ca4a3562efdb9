"""The RPCs that are in the interface and not yet in this build; a test holds the list, so that it can only shrink."""

from typing import Any

from yarrow.errors import Unsupported
from yarrow.service.answers import Context
from yarrow.service.errors import refuse

LATER: dict[str, str] = {}
"""Each of these RPCs, and what it waits for."""


class _NotYet:
    """An RPC that answers UNIMPLEMENTED with what it waits for."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __set_name__(self, owner: type, name: str) -> None:
        LATER[name] = self._what
        setattr(owner, name, _handler(f"{name}: {self._what} comes with a later version"))


def _handler(sentence: str) -> Any:
    async def handler(_self: object, _request: object, context: Context) -> None:
        await refuse(context, Unsupported(sentence))

    return handler


class Later:
    """What of `AgentService` is not yet there."""

    RunTool: Any = _NotYet("running a tool by hand")
