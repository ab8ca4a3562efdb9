"""Tools read the settings and sessions of the service, and do not change them, also where they lie in a workspace."""

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from doubles.house import House, play, stub_of
from yarrow.service.servicer import Servicer
from yarrow.session.disk_access import Disk
from yarrow.session.session_manager import SessionManager
from yarrow.tool.builtin import BUILTIN_TOOLS
from yarrow.tool.registry import ToolRegistry


async def outputs(folder: Path, *names: str, sessions: str = "project/conf/sessions") -> list[str]:
    """Errors of a model that writes to these files of a project, in which the settings are `conf`."""
    calls: list[list[dict[str, Any]]] = [
        [{"call": {"name": "write", "arguments": {"path": name, "content": "{}"}}}] for name in names
    ]
    house = House(folder, [*calls, [{"text": "done"}]])
    (house.cwd / "conf").mkdir()
    manager = SessionManager(folder / sessions, sync="message", disk=Disk())
    parts = replace(house.parts, user_dir=house.cwd / "conf", manager=manager, registry=ToolRegistry(BUILTIN_TOOLS))
    house.servicer = Servicer(parts)
    async with stub_of(house) as stub:
        events = await play(stub, house.prompt())
    return [event.tool_output.text for event in events if event.WhichOneof("event") == "tool_output"]


@pytest.mark.parametrize("name", ["conf/config.json", "conf/skills/x/SKILL.md", "conf/sessions/p/s.jsonl"])
async def test_no_tool_changes_the_users_settings(tmp_path: Path, name: str) -> None:
    refused, done = await outputs(tmp_path, name, "config.json")
    assert "executes its contents" in refused
    assert not (tmp_path / "project" / name).exists()
    assert done == "Created config.json (+1 -0)."


async def test_a_session_directory_around_the_project_denies_nothing_in_it(tmp_path: Path) -> None:
    refused, done = await outputs(tmp_path, "conf/config.json", "config.json", sessions=".")
    assert "executes its contents" in refused
    assert done == "Created config.json (+1 -0)."
