"""Law 9 where there is a sandbox: a dry run says what a command would run in, and starts nothing to find that out."""

import json
import shutil
from pathlib import Path

import grpc
import pytest
from msgspec.structs import replace

from doubles.house import House, play, stub_of
from doubles.processes import watching_for_processes
from yarrow.policy.sandbox.absent_path_guard import PathGuard
from yarrow.policy.sandbox.cleanup_journal import JournalEntry, Leftovers
from yarrow.policy.sandbox.git_baseline import take_baseline
from yarrow.policy.sandbox.probe import find_bwrap, start_probe, unavailable_reason
from yarrow.policy.sandbox.sandbox_spec import SandboxLevel
from yarrow.policy.sandbox_factory import SandboxFactory
from yarrow.service.servicer import Servicer
from yarrow.tool.builtin import BUILTIN_TOOLS
from yarrow.tool.registry import ToolRegistry
from yarrow.v1 import agent_pb2 as pb

pytestmark = pytest.mark.xdist_group("sandbox")
DRY = pb.SessionSettings(dry_run=True)
HIDDEN = "use a directory in the workspace"


def said(events: list[pb.AgentEvent]) -> list[str]:
    return [event.tool_output.text for event in events if event.WhichOneof("event") == "tool_output"]


def bash(**arguments: str) -> list[dict[str, object]]:
    return [{"call": {"name": "bash", "arguments": {"command": "touch ran", **arguments}}}]


def house_of(
    folder: Path, *calls: list[dict[str, object]], level: SandboxLevel = "workspace", home: Path | None = None
) -> House:
    """A service whose commands run in a sandbox, on a machine that was not looked at yet."""
    made = House(folder, [*calls, [{"text": "done"}]])
    parts = made.parts
    home = home or parts.home
    settings = replace(parts.settings, sandbox=level)
    boxes = SandboxFactory(level, home=home, hidden=(parts.user_dir,), journal_dir=parts.user_dir / "sandbox")
    made.servicer = Servicer(
        replace(parts, sandboxes=boxes, settings=settings, home=home, registry=ToolRegistry(BUILTIN_TOOLS))
    )
    unavailable_reason.reset()
    start_probe.reset()
    find_bwrap.cache_clear()
    return made


@pytest.mark.parametrize("level", ["workspace", "strict"])
async def test_law_9_a_dry_run_does_not_start_bubblewrap(tmp_path: Path, level: SandboxLevel) -> None:
    house = house_of(tmp_path, bash(), bash(cwd="~/.yarrow"), bash(cwd="/run/user"), level=level)
    async with stub_of(house) as stub:
        with watching_for_processes() as started:
            request = house.prompt(session_id="s1")
            request.settings.CopyFrom(DRY)
            outputs = said(await play(stub, request))
            await stub.GetState(pb.GetStateRequest(session_id="s1"))
            await stub.ListFiles(pb.ListFilesRequest(session_id="s1", prefix=""))
            by_hand = pb.RunToolRequest(session_id="s1", tool="bash", arguments_json='{"command": "touch ran"}')
            outputs += said([response.event async for response in stub.RunTool(by_hand)])
        assert started == []
    assert f"In {house.cwd}, in a sandbox ({level}), with a timeout of 120 s, this would run:" in outputs[0]
    assert outputs[3] == outputs[0]
    assert HIDDEN in outputs[2]
    assert not (house.cwd / "ran").exists()


async def test_a_workspace_with_the_home_reports_the_missing_sandbox(tmp_path: Path) -> None:
    house = house_of(tmp_path, bash(), home=tmp_path / "project")
    async with stub_of(house) as stub:
        request = house.prompt()
        request.settings.CopyFrom(DRY)
        assert "without a sandbox" in said(await play(stub, request))[0]


@pytest.mark.parametrize("level", ["workspace", "strict"])
async def test_without_bubblewrap_the_missing_sandbox_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: SandboxLevel
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    house = house_of(tmp_path, bash(), level=level)
    async with stub_of(house) as stub:
        request = house.prompt()
        request.settings.CopyFrom(DRY)
        if level == "workspace":
            assert "without a sandbox" in said(await play(stub, request))[0]
        else:
            with pytest.raises(grpc.aio.AioRpcError, match="sandbox is strict, but cannot be set up here"):
                await play(stub, request)
    find_bwrap.cache_clear()


async def test_leftovers_of_a_killed_service_stay_during_a_dry_run(tmp_path: Path) -> None:
    house = house_of(tmp_path)
    notes = house.users / "sandbox"
    note = JournalEntry(
        notes,
        Leftovers(
            PathGuard.for_paths([house.cwd / ".yarrow"], [house.cwd]),
            take_baseline([house.cwd], [house.cwd / ".yarrow"], []),
        ),
    )
    (path,) = notes.iterdir()
    data = path.read_bytes()
    note.remove()
    path.write_bytes(data)
    (house.cwd / ".yarrow").mkdir()
    async with stub_of(house) as stub:
        new = pb.NewSessionRequest(session_id="s1", cwd=str(house.cwd), settings=DRY)
        await stub.NewSession(new)
        assert (house.cwd / ".yarrow").exists()
        wet = pb.SessionSettings(dry_run=False)
        await stub.ConfigureSession(pb.ConfigureSessionRequest(session_id="s1", settings=wet))
        await play(stub, house.prompt(session_id="s1"))
        state = await stub.GetState(pb.GetStateRequest(session_id="s1"))
    assert any("cleaned up after a command" in warning for warning in state.warnings)
    assert not (house.cwd / ".yarrow").exists()


async def test_a_run_prepared_as_a_dry_run_stays_one(tmp_path: Path) -> None:
    """Its commands have no sandbox, so that nothing of it may run when another process says so meanwhile."""
    (away := tmp_path / "away").mkdir()
    turns = [bash(), [{"text": "done"}]]
    house, other = house_of(tmp_path, *turns, home=away), House(tmp_path, turns)
    async with stub_of(house) as stub, stub_of(other) as elsewhere:
        await stub.NewSession(pb.NewSessionRequest(session_id="s1", cwd=str(house.cwd), settings=DRY))
        wet = pb.SessionSettings(dry_run=False, permissions=pb.PERMISSION_MODE_AUTO)
        await elsewhere.ConfigureSession(pb.ConfigureSessionRequest(session_id="s1", settings=wet))
        assert "nothing was changed" in said(await play(stub, house.prompt(session_id="s1")))[0]
        assert not (house.cwd / "ran").exists()
        arguments = json.dumps({"command": "touch ran"})
        by_hand = pb.RunToolRequest(session_id="s1", tool="bash", arguments_json=arguments)
        assert said([response.event async for response in stub.RunTool(by_hand)]) == ["[no output]"]
        assert (house.cwd / "ran").exists()
