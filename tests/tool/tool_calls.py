"""Calls a built-in tool through the registry, as the agent does, and collects what it yields."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

from msgspec import Struct

from doubles.permits import permit_all
from yarrow.config.settings import BashSettings
from yarrow.message import ToolCall
from yarrow.policy.workspace import Workspace
from yarrow.tool.base import Done, Progress, Result, ToolContext, ToolFailed
from yarrow.tool.builtin import BUILTIN_TOOLS
from yarrow.tool.registry import ToolRegistry

REGISTRY = ToolRegistry(BUILTIN_TOOLS)


class Outcome(Struct):
    """Output of one call."""

    result: Result
    progress: list[str]

    @property
    def text(self) -> str:
        return self.result.text

    @property
    def done(self) -> Done:
        assert isinstance(self.result, Done), self.result
        return self.result

    @property
    def failed(self) -> ToolFailed:
        assert isinstance(self.result, ToolFailed), self.result
        return self.result


def context_of(cwd: Path, **settings: Any) -> ToolContext:
    """The context of a session in `cwd`; `extra`, `read` and `bash` as in the settings."""
    bash = settings.pop("bash", BashSettings())
    return ToolContext(cwd=cwd, workspace=Workspace.make(cwd, **settings), bash=bash)


def names_in(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


async def collect(items: AsyncGenerator[Progress | Result]) -> Outcome:
    """Collect, and check that exactly one result came, last."""
    progress: list[str] = []
    results: list[Result] = []
    async with aclosing(items):
        async for item in items:
            assert not results, "something came after the result"
            if isinstance(item, Progress):
                assert item.text
                progress.append(item.text)
            else:
                results.append(item)
    (result,) = results
    return Outcome(result, progress)


async def call(
    name: str,
    where: Path | ToolContext,
    arguments: Mapping[str, Any],
    *,
    dry_run: bool = False,
    registry: ToolRegistry = REGISTRY,
) -> Outcome:
    """Call a tool in a directory or context."""
    context = where if isinstance(where, ToolContext) else context_of(where)
    tool_call = ToolCall(id="c1", name=name, arguments=json.dumps(arguments))
    return await collect(registry.execute(tool_call, context, authorize=permit_all, dry_run=dry_run))
