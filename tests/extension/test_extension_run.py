"""A whole run with an extension's tool and hooks, and its abort while the tool blocks."""

import asyncio
import threading
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from extending import Shout, extended, tool_of
from msgspec.structs import replace

from doubles.rig import Rig, call
from yarrow.agent.run_context import RunResources
from yarrow.event import events as ev
from yarrow.extension import extension_host
from yarrow.extension.api import Yarrow
from yarrow.tool.base import Done, Progress
from yarrow.tool.registry import ToolRegistry


class ExtendedRig(Rig):
    """A rig whose agent has the tools of extensions."""

    tools: tuple[Any, ...] = ()

    @property
    def resources(self) -> RunResources:
        return replace(super().resources, registry=ToolRegistry(self.tools))


def broken(_: Any) -> None:
    raise RuntimeError("broken")


async def test_a_run_uses_an_extensions_tool_and_hooks() -> None:
    def extension(yarrow: Yarrow) -> None:
        yarrow.tool(Shout())
        yarrow.hook("AfterToolCall", lambda payload: {**payload, "text": payload["text"] + "!"})
        yarrow.hook("BeforeProviderRequest", lambda request: {**request, "system": "shout"})
        yarrow.hook("TurnStart", broken)

    rig = ExtendedRig([[call("shout", "hi")], [{"text": "done"}]])
    async with extended(extension) as added:
        rig.tools, rig.hooks = added.tools, added.hooks
        bodies = await rig.run()
    (output,) = [body for body in bodies if isinstance(body, ev.ToolOutput)]
    assert output.text == "HI!"
    assert [request.system for request in rig.provider.requests] == ["shout", "shout"]
    assert [body.code for body in bodies if isinstance(body, ev.Notice)] == ["HOOK_FAILED"] * 2


async def test_an_abort_ends_a_run_whose_tool_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extension_host, "MAX_CLOSE_SECONDS", 0.05)
    entered, gate = threading.Event(), threading.Event()

    async def run(*_: Any) -> AsyncGenerator[Any]:
        yield Progress("begun")
        entered.set()
        gate.wait(60)
        yield Done("late")

    rig = ExtendedRig([[call("shout", "hi")], [{"text": "done"}]])
    async with extended(lambda yarrow: yarrow.tool(tool_of(run))) as added:
        rig.tools = added.tools
        await rig.start()
        await asyncio.to_thread(entered.wait, 10)
        assert rig.agent.abort()
        bodies = await rig.finish()
        assert not gate.is_set()
        gate.set()
    (output,) = [body for body in bodies if isinstance(body, ev.ToolOutput)]
    assert "Interrupted" in output.text
