"""The service as a process of its own: its socket, a foreign client, attaching, draining, and being killed."""

import asyncio
import contextlib
import fcntl
import json
import shutil
import signal
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import pytest

from doubles import outsider
from doubles.serving import served
from doubles.world import World
from yarrow.cli.interrupt_handler import DEBOUNCE_SECONDS
from yarrow.message import Message, Role
from yarrow.service.authentication import token_path_for
from yarrow.service.server import lock_path_for
from yarrow.session.session_file_reader import load_session
from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceStub

ROOT = Path(__file__).parents[2]
TURNS: list[list[dict[str, Any]]] = [
    [{"text": "Look. "}, {"call": {"name": "ls", "arguments": {}}}],
    [{"text": "Nothing here."}],
]


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "run" / "yarrow.sock"


async def test_a_foreign_client_follows_a_prompt(world: World, socket: Path) -> None:
    world.script(*TURNS)
    node = shutil.which("node")
    assert node is not None, "the test set-up installs Node.js"
    request = json.dumps({"text": "what is here?", "cwd": str(world.project)})
    client = [str(ROOT / "tests/foreign/client.js"), str(ROOT / "proto"), f"unix:{socket}", request]
    async with served(world, socket):
        assert socket.parent.stat().st_mode & 0o777 == 0o700
        assert socket.stat().st_mode & 0o077 == 0
        assert token_path_for(socket).stat().st_mode & 0o777 == 0o600
        process = await asyncio.create_subprocess_exec(node, *client, stdout=PIPE, stderr=PIPE)
        out, err = await asyncio.wait_for(process.communicate(), 60)
        assert process.returncode == 0, err
    *events, last = [json.loads(line) for line in out.splitlines()]
    kinds = [event["event"] for event in events]
    assert kinds[0] == "agentStart"
    assert kinds[-1] == "agentEnd"
    assert [event["sequence"] for event in events] == [str(number) for number in range(1, len(events) + 1)]
    assert [message["role"] for message in last["messages"]] == [
        "ROLE_USER", "ROLE_ASSISTANT", "ROLE_TOOL", "ROLE_ASSISTANT",
    ]  # fmt: skip
    assert not socket.exists()


async def test_attach_works_like_the_local_command_line(world: World, socket: Path) -> None:
    world.script(*TURNS)
    async with served(world, socket):
        ended = await world.run("--attach", str(socket), "what is here?")
        assert (ended.code, ended.out) == (0, "Look. \nNothing here.\n")
        listed = await world.run("--attach", f"unix:{socket}", "--list-models")
        assert listed.out == "scripted\n"


async def test_an_interrupt_of_an_attached_client_aborts_its_run(world: World, socket: Path) -> None:
    world.script([{"text": "x"}, {"delay": 600}])
    async with served(world, socket):
        process = await world.start("--attach", str(socket), "--json", "go")
        assert process.stdout is not None
        while b"textDelta" not in await process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        assert (await world.finish(process)).code == 130
        async with outsider.channel(socket) as channel:
            stub = AgentServiceStub(channel)
            (session,) = (await stub.ListSessions(pb.ListSessionsRequest(scope=pb.SESSION_SCOPE_ALL))).sessions
            watching = stub.StreamEvents(pb.StreamEventsRequest(session_id=session.session_id, after_sequence=0))
            async for response in watching:
                if response.event.WhichOneof("event") == "agent_end":
                    assert response.event.agent_end.reason == pb.END_REASON_ABORTED
                    break


async def test_stopping_the_service_lets_runs_finish(world: World, socket: Path) -> None:
    world.script([{"text": "begin "}, {"delay": 0.5}, {"text": "end"}])
    async with served(world, socket) as process:
        client = await world.start("--attach", str(socket), "--json", "go")
        assert client.stdout is not None
        while b"textDelta" not in await client.stdout.readline():
            pass
        process.send_signal(signal.SIGTERM)
        ended = await world.finish(client)
        assert ended.code == 0
        assert await asyncio.wait_for(process.wait(), 30) == 0
    (path,) = world.session_files()
    last = load_session(path).records[-1].value
    assert isinstance(last, Message)
    assert last.text == "begin end"


async def test_a_second_signal_aborts_runs(world: World, socket: Path) -> None:
    world.script([{"text": "begin "}, {"delay": 600}])
    async with served(world, socket) as process:
        client = await world.start("--attach", str(socket), "--json", "go")
        assert client.stdout is not None
        while b"textDelta" not in await client.stdout.readline():
            pass
        process.send_signal(signal.SIGTERM)
        refused = await world.run("--attach", str(socket), "another")
        assert "shutting down" in refused.err
        ending = asyncio.ensure_future(world.finish(client))
        while not ending.done():
            # One that follows at once counts as the same.
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
            await asyncio.wait([ending], timeout=2 * DEBOUNCE_SECONDS)
        assert ending.result().code == 130
        assert await asyncio.wait_for(process.wait(), 30) == 0


@pytest.mark.parametrize("kind", ["wide", "taken", "file", "long"])
async def test_insecure_sockets_are_refused(world: World, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "place"
    folder.mkdir(mode=0o700)
    socket = folder / "yarrow.sock"
    world.script(*TURNS)
    if kind == "wide":
        folder.chmod(0o755)
    elif kind == "file":
        socket.write_text("precious")
    elif kind == "long":
        socket = folder / ("x" * 120)
    async with contextlib.AsyncExitStack() as stack:
        if kind == "taken":
            await stack.enter_async_context(served(world, socket))
        ended = await world.run("serve", "--socket", str(socket))
    assert ended.code == 2
    assert str(socket if kind != "wide" else folder) in ended.err
    if kind == "file":
        assert socket.read_text() == "precious"


async def test_only_one_of_concurrent_services_gets_the_socket(world: World, socket: Path) -> None:
    world.script(*TURNS)
    processes = [await world.start("serve", "--socket", str(socket)) for _ in range(4)]
    told = [await asyncio.wait_for(one.stderr.readline(), 30) for one in processes if one.stderr is not None]
    assert sorted(b"yarrow: listening on" in line for line in told) == [False, False, False, True], told
    for process, line in zip(processes, told, strict=True):
        if b"yarrow: listening on" in line:
            assert (await world.run("--attach", str(socket), "x")).code == 0
            process.send_signal(signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 30) == 0
        else:
            assert await asyncio.wait_for(process.wait(), 30) == 2


async def test_the_socket_of_a_running_service_is_not_reclaimed(world: World, socket: Path) -> None:
    """No process listens on it yet or any more; the new owner would remove the other's socket."""
    world.script(*TURNS)
    socket.parent.mkdir(mode=0o700)
    with lock_path_for(socket).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        ended = await world.run("serve", "--socket", str(socket))
        assert ended.code == 2
        assert f"a service is already listening on {socket}, or is still shutting down" in ended.err
    async with served(world, socket):
        assert socket.exists()


async def test_the_socket_of_a_killed_service_is_reclaimed(world: World, socket: Path) -> None:
    world.script(*TURNS)
    async with served(world, socket) as process:
        process.kill()
        await process.wait()
    assert socket.exists()
    async with served(world, socket):
        assert (await world.run("--attach", str(socket), "x")).code == 0


async def test_law_3_accepted_messages_survive_a_kill(world: World, socket: Path) -> None:
    """Prompt, steer and follow-up are on disk when they are answered; after a kill they are reported as undelivered."""
    world.script([{"text": "x"}, {"delay": 600}])
    async with served(world, socket) as process, outsider.channel(socket) as channel:
        stub = AgentServiceStub(channel)
        call = stub.Prompt(pb.PromptRequest(text="accepted", cwd=str(world.project)))
        first: Any = await call.read()
        session = first.event.session_id
        steer = await stub.Steer(pb.SteerRequest(session_id=session, text="steered"))
        follow_up = await stub.FollowUp(pb.FollowUpRequest(session_id=session, text="followed"))
        process.kill()
        await process.wait()
    text = world.session_files()[0].read_text()
    assert all(word in text for word in ("accepted", steer.message_id, follow_up.message_id))
    world.script([{"text": "after"}])
    ended = await world.run("--json", "-r", session, "go on")
    assert ended.code == 0
    (notice,) = [line["notice"] for line in ended.lines if "notice" in line]
    assert notice["code"] == "UNDELIVERED"
    assert "steered" in notice["text"]
    assert "followed" in notice["text"]
    roles = [record.role for record in world.records() if isinstance(record, Message)]
    assert roles == [Role.USER, Role.USER, Role.ASSISTANT]


async def test_no_tool_can_read_the_token(world: World, socket: Path) -> None:
    token = world.project / "token"
    world.script(
        [
            {"call": {"name": "bash", "arguments": {"command": "cat token; ls -l token"}}},
            {"call": {"name": "read", "arguments": {"path": "token"}}},
            {"call": {"name": "grep", "arguments": {"path": ".", "pattern": "."}}},
            {"call": {"name": "write", "arguments": {"path": "token", "content": "mine"}}},
        ],
        [{"text": "Nothing."}],
    )
    process = await world.start("serve", "--socket", str(socket), "--token-file", str(token))
    assert process.stderr is not None
    assert b"listening" in await asyncio.wait_for(process.stderr.readline(), 30)
    try:
        ended = await world.run("--attach", str(socket), "--token-file", str(token), "--json", "go")
        assert ended.code == 0, ended.err
    finally:
        process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(process.wait(), 30) == 0
    assert "token" in ended.out
    assert token.read_text().strip() not in ended.out
    assert token.read_text().strip() != "mine"
