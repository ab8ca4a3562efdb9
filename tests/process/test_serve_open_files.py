"""A service whose open files run out: what is refused has a reason, and it goes on when there are some again."""

import resource
from pathlib import Path

import grpc
import pytest

from doubles import outsider
from doubles.house import reason_of
from doubles.serving import served
from doubles.world import World
from yarrow.cli.serve_command import MAX_OPEN_FILES, RESERVED_FILES, fit_connections
from yarrow.config.settings import ServiceSettings
from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceStub

FEW = 256
"""Open files, less than any service asks for."""


async def test_calls_refused_for_lack_of_files_have_a_reason(world: World, tmp_path: Path) -> None:
    world.script([{"text": "one"}], [{"text": "two"}])
    socket = tmp_path / "run" / "yarrow.sock"
    async with served(world, socket) as process, outsider.channel(socket) as channel:
        stub = AgentServiceStub(channel)
        known = await stub.NewSession(pb.NewSessionRequest(cwd=str(world.project)))
        allowed = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (3, allowed[1]))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.NewSession(pb.NewSessionRequest(cwd=str(world.project)), timeout=20)
        assert (refused.value.code(), reason_of(refused.value)) == (grpc.StatusCode.FAILED_PRECONDITION, "STORAGE")
        assert "too many open files" in (refused.value.details() or "")
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, allowed)
        prompt = pb.PromptRequest(text="hi", session_id=known.session_id)
        events = [response.event async for response in stub.Prompt(prompt)]
        assert events[-1].agent_end.reason == pb.END_REASON_COMPLETED


async def test_a_service_raises_its_limit_of_open_files(world: World, tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, FEW), hard))
    try:
        async with served(world, tmp_path / "run" / "yarrow.sock") as process:
            assert resource.prlimit(process.pid, resource.RLIMIT_NOFILE) == (min(MAX_OPEN_FILES, hard), hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("allowed", "configured", "connections"),
    [(MAX_OPEN_FILES, 4_096, 4_096), (1_024, 4_096, 1_024 - RESERVED_FILES), (1_024, 64, 64), (64, 4_096, 16)],
)
def test_connections_leave_files_for_runs(
    monkeypatch: pytest.MonkeyPatch, allowed: int, configured: int, connections: int
) -> None:
    monkeypatch.setattr("yarrow.cli.serve_command.system.raise_open_file_limit", lambda most: min(most, allowed))
    assert fit_connections(ServiceSettings(connections=configured)).connections == connections
