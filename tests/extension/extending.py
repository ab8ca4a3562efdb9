"""Extensions made of plain functions, loaded as a program that embeds Yarrow gives them."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

from msgspec import Struct

from doubles.permits import permit_all
from yarrow.agent.hooks import Contributions, HookContext, HookName
from yarrow.event.events import Notice
from yarrow.extension.loader import ExtensionFunction, load_extensions
from yarrow.message import ToolCall
from yarrow.policy.workspace import Workspace
from yarrow.tool.base import Done, Progress, Result, ToolContext
from yarrow.tool.registry import ToolRegistry

ABOUT = HookContext("session", "/work", "run")
CONTEXT = ToolContext(cwd=Path("/"), workspace=Workspace((Path("/"),)))


class Say(Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of the test tools."""

    text: str = ""


class Shout:
    """Says it louder."""

    name = "shout"
    read_only = False
    arguments = Say

    async def run(self, arguments: Say, context: ToolContext) -> AsyncGenerator[Progress | Result]:
        yield Progress("...")
        yield Done(arguments.text.upper())


def tool_of(run: Callable[[Any, ToolContext], AsyncGenerator[Any]], **attributes: Any) -> Any:
    """A tool like `shout` that runs `run`."""

    async def method(self: Any, arguments: Any, context: ToolContext) -> AsyncGenerator[Any]:
        async with aclosing(run(arguments, context)) as items:
            async for item in items:
                yield item

    return type("Made", (Shout,), {"__doc__": "Made for a test.", "run": method, **attributes})()


@asynccontextmanager
async def extended(
    *functions: ExtensionFunction, files: Sequence[Path] = (), tools: Sequence[str] = ()
) -> AsyncGenerator[Contributions]:
    """Contributions of the extensions, while they are loaded."""
    extensions = load_extensions(files, functions=functions, tools=tools)
    try:
        yield extensions.contributions
    finally:
        await extensions.close()


async def hooked(added: Contributions, name: HookName, payload: Any) -> tuple[Any, list[str]]:
    """The payload that the hooks return, and the texts of the notices."""
    notices: list[Notice] = []
    payload = await added.hooks.run(name, payload, about=ABOUT, notify=notices.append)
    return payload, [notice.text for notice in notices]


async def called(
    added: Contributions, name: str = "shout", arguments: str = '{"text":"hi"}', *, dry_run: bool = False
) -> Any:
    """The result of a call of a tool, after exactly as many pieces as there were."""
    pieces = ToolRegistry(added.tools).execute(
        ToolCall("1", name, arguments), CONTEXT, authorize=permit_all, dry_run=dry_run
    )
    async with aclosing(pieces):
        items = [piece async for piece in pieces]
    assert not isinstance(items[-1], Progress)
    return items[-1]


async def soon(question: Callable[[], bool]) -> None:
    """Return when the answer is yes; other threads get their turns meanwhile."""
    while not question():
        await asyncio.sleep(0.001)
