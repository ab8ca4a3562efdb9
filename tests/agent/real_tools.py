"""A rig with the built-in tools, in a directory of its own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent.permission_requests import asked, results, told
from msgspec.structs import replace

from doubles.rig import Rig
from yarrow.agent.permission_broker import PermissionConfig, PermissionDecision
from yarrow.agent.run_context import RunResources
from yarrow.config.settings import PermissionMode
from yarrow.event import events as ev
from yarrow.policy.secret_names import ENV_FILES, SecretFiles
from yarrow.policy.workspace import Workspace
from yarrow.tool.base import Tool, ToolContext
from yarrow.tool.builtin import BUILTIN_TOOLS
from yarrow.tool.registry import ToolRegistry


class Real(Rig):
    """A rig with the built-in tools in a directory."""

    def __init__(self, cwd: Path, *calls: tuple[str, dict[str, Any]], **more: Any) -> None:
        turns = [[{"call": {"name": name, "arguments": arguments}}] for name, arguments in calls]
        permissions = more.pop("permissions", PermissionMode.ASK)
        super().__init__([*turns, [{"text": "done"}]], permissions=permissions, dry_run=more.pop("dry_run", False))
        self.cwd = cwd
        self.contained = more.pop("contained", False)
        self.tools: tuple[Tool, ...] = more.pop("tools", BUILTIN_TOOLS)
        self.secrets: SecretFiles = more.pop("secrets", ENV_FILES)
        self.consent = PermissionConfig(**more)

    @property
    def resources(self) -> RunResources:
        context = ToolContext(cwd=self.cwd, workspace=replace(Workspace.make(self.cwd), secrets=self.secrets))
        made = replace(super().resources, registry=ToolRegistry(self.tools), context=context)
        return replace(made, contained=self.contained)

    async def answered(self, *answers: str, before: Callable[[], None] = lambda: None) -> list[str]:
        """Run, give the answers to the questions in order, each after `before`, and return the results' texts."""
        with self.agent.questions.presence.connected():
            await self.start()
            for answer in answers:
                (question,) = await asked(self)
                before()
                await self.agent.questions.answer(question.request_id, PermissionDecision(answer))  # type: ignore[arg-type]
            self.bodies = await self.finish()
        assert len(told(self.bodies, ev.PermissionRequest)) == len(answers)
        return [result.text for result in results(self)]
