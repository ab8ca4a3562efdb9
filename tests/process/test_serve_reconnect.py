"""Attached command lines whose service is killed and started again, gets another token, or does not come back."""

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from pathlib import Path

from doubles.relay import relay
from doubles.serving import served
from doubles.world import Ended, World
from yarrow.service.authentication import load_or_create_token, token_path_for

HELD = [[{"text": "begin "}, {"delay": 600}]]


async def begun(world: World, socket: Path, *flags: str) -> Process:
    """An attached command line that reads the events of its run."""
    client = await world.start("--attach", str(socket), *flags, "go")
    assert client.stdout is not None
    while b"begin" not in await asyncio.wait_for(client.stdout.readuntil(b"\n" if flags else b"begin "), 30):
        pass
    return client


async def kill(process: Process) -> None:
    process.kill()
    await process.wait()


async def test_a_restarted_service_ends_the_run(world: World, tmp_path: Path) -> None:
    world.script(*HELD * 2)
    socket = tmp_path / "run" / "yarrow.sock"
    async with served(world, socket) as process:
        clients = [await begun(world, socket, "--json"), await begun(world, socket)]
        await kill(process)
    async with served(world, socket):
        as_json, plain = [await world.finish(client) for client in clients]
    assert (as_json.code, plain.code) == (3, 3)
    gap, end = as_json.lines[-2:]
    assert "gap" in gap
    assert end["agentEnd"]["error"]["code"] == "UNREACHABLE"
    assert "the service restarted" in plain.err


async def test_a_changed_token_after_a_restart_is_reported(world: World, tmp_path: Path) -> None:
    world.script(*HELD)
    socket = tmp_path / "run" / "yarrow.sock"
    async with served(world, socket) as process:
        client = await begun(world, socket)
        await kill(process)
    token_path_for(socket).unlink()
    load_or_create_token(token_path_for(socket))
    async with served(world, socket):
        ended = await world.finish(client)
    assert ended.code == 3
    assert "wrong token for this service" in ended.err


async def test_a_service_that_does_not_return_is_an_error(world: World, tmp_path: Path) -> None:
    world.script(*HELD)
    socket = tmp_path / "run" / "yarrow.sock"
    code = "import sys; from yarrow.client import reconnect_backoff; reconnect_backoff.MAX_OUTAGE_SECONDS = 1.0\n"
    code += "from yarrow.cli.main import main; sys.exit(main())"
    async with served(world, socket) as process:
        client = await asyncio.create_subprocess_exec(
            sys.executable, "-c", code, "--attach", str(socket), "go",
            cwd=world.project, env=world.environment, stdin=DEVNULL, stdout=PIPE, stderr=PIPE,
        )  # fmt: skip
        assert client.stdout is not None
        await asyncio.wait_for(client.stdout.readuntil(b"begin "), 30)
        await kill(process)
    ended: Ended = await world.finish(client)
    assert ended.code == 3
    assert "no service answers at" in ended.err


async def test_a_reconnection_does_not_show_in_the_output(world: World, tmp_path: Path) -> None:
    world.script([{"text": "begin "}, {"delay": 1.5}, {"text": "end"}])
    socket = tmp_path / "run" / "yarrow.sock"
    async with served(world, socket), relay(str(socket), tmp_path / "wire") as wire:
        flags = ("--token-file", str(token_path_for(socket)))
        client = await world.start("--attach", str(tmp_path / "wire"), *flags, "go")
        assert client.stdout is not None
        await asyncio.wait_for(client.stdout.readuntil(b"begin "), 30)
        wire.cut()
        ended = await world.finish(client)
    assert (ended.code, ended.out, ended.err) == (0, "end\n", "")
