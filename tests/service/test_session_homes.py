"""Files that shell commands keep in the session's home and /tmp are deleted with the session."""

import json
from pathlib import Path

import pytest
from msgspec.structs import replace

from doubles.house import House, stub_of
from yarrow.policy.sandbox.absent_path_guard import PathGuard
from yarrow.policy.sandbox.cleanup_journal import JournalEntry, Leftovers
from yarrow.policy.sandbox.git_baseline import take_baseline
from yarrow.policy.sandbox.probe import unavailable_reason
from yarrow.policy.sandbox_factory import SandboxFactory
from yarrow.policy.temp_dir import temp_directory
from yarrow.policy.workspace import Workspace
from yarrow.service.servicer import Servicer
from yarrow.tool.bash import Bash
from yarrow.tool.registry import ToolRegistry
from yarrow.v1 import agent_pb2 as pb

pytestmark = pytest.mark.xdist_group("sandbox")


@pytest.fixture
def house(tmp_path: Path) -> House:
    assert unavailable_reason() == "", "the sandbox must be tested: scripts/system.sh installs bubblewrap"
    made = House(tmp_path, [[{"text": "hello"}]], rules={"bash": "auto"})
    boxes = SandboxFactory("workspace", home=made.home, journal_dir=made.users / "sandbox")
    made.servicer = Servicer(replace(made.parts, sandboxes=boxes, registry=ToolRegistry([Bash()])))
    return made


def kept() -> set[Path]:
    """The directories that sessions have of their own."""
    return set(temp_directory().glob("box-*"))


async def test_the_sessions_home_is_removed_with_the_session_or_service(house: House) -> None:
    before = kept()
    async with stub_of(house) as stub:
        ids: list[str] = []
        for _ in range(2):
            ids.append((await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd)))).session_id)
            arguments = json.dumps({"command": "echo x > ~/cache; mkdir -m 500 -p /tmp/shut/in"})
            request = pb.RunToolRequest(session_id=ids[-1], arguments_json=arguments)
            events = [response.event async for response in stub.RunTool(request)]
            assert not events[-1].tool_output.is_error
        assert len(kept() - before) == 2
        await stub.DeleteSession(pb.DeleteSessionRequest(session_id=ids[0]))
        assert len(kept() - before) == 1
    assert kept() == before


async def test_leftovers_of_a_killed_service_are_reported_to_the_next_session(house: House) -> None:
    notes = house.users / "sandbox"
    root = Workspace.make(house.cwd).writable[0]
    note = JournalEntry(
        notes, Leftovers(PathGuard.for_paths([root / ".yarrow"], [root]), take_baseline([root], [root / ".yarrow"], []))
    )
    (path,) = notes.iterdir()
    data = path.read_bytes()
    note.remove()
    path.write_bytes(data)
    (root / ".yarrow").mkdir()
    async with stub_of(house) as stub:
        session_id = (await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd)))).session_id
        state = await stub.GetState(pb.GetStateRequest(session_id=session_id))
    assert any("cleaned up after a command" in warning and f"{root}/.yarrow" in warning for warning in state.warnings)
    assert not (root / ".yarrow").exists()


@pytest.mark.parametrize("place", ["the home", "above the home", "an extra root"])
async def test_a_workspace_without_a_sandbox_is_reported(house: House, place: str) -> None:
    cwd = {"the home": house.home, "above the home": house.home.parent}.get(place, house.cwd)
    extra = [str(house.home)] if place == "an extra root" else []
    settings = replace(house.parts.settings, workspace=replace(house.parts.settings.workspace, extra=extra))
    boxes = SandboxFactory("workspace", home=house.home)
    house.servicer = Servicer(replace(house.parts, sandboxes=boxes, settings=settings))
    async with stub_of(house) as stub:
        session_id = (await stub.NewSession(pb.NewSessionRequest(cwd=str(cwd)))).session_id
        warnings = (await stub.GetState(pb.GetStateRequest(session_id=session_id))).warnings
    assert any(
        "run without a sandbox" in one and "contains your home directory; start in a project" in one for one in warnings
    )
