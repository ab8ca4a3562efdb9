"""Frames by hand at the door: nothing is kept of a stranger, abuse ends a connection, and others notice nothing."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from doubles.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PING,
    PREFACE,
    RESET,
    SETTINGS,
    SOON,
    WINDOW,
    calling,
    frame,
    packed,
    wired,
)
from doubles.house import House, kinds, read
from doubles.reached import METHODS, Door, behind
from yarrow.config.settings import ServiceSettings
from yarrow.config.validation import MAX_NUMBER
from yarrow.service import server
from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceStub

SERVICE = "/yarrow.v1.AgentService/"
SERVING = b"\x08\x01"
REFUSED = b"\x0bgrpc-status\x0216"
ABUSES = {
    "garbage": b"\xff" * 4_000,
    "an enlargement of nothing": frame(WINDOW, payload=bytes(4)),
    "a frame over the size agreed": frame(SETTINGS, payload=bytes(6 * 10_000)),
    "half a block of headers": frame(HEADERS, 0, 1, calling(f"{SERVICE}GetState")) + frame(PING, payload=bytes(8)),
    "settings of an odd length": frame(SETTINGS, payload=bytes(5)),
}
STORMS = {
    "resets": [
        frame(HEADERS, END_HEADERS, one, calling(f"{SERVICE}Prompt")) + frame(RESET, 0, one, (8).to_bytes(4, "big"))
        for one in range(1, 4_001, 2)
    ],
    "settings": [frame(SETTINGS)] * 4_000,
    "empty data": [frame(HEADERS, END_HEADERS, 1, calling(f"{SERVICE}Prompt")), *[frame(DATA, 0, 1)] * 4_000],
    "headers without an end": [
        frame(HEADERS, 0, 1, calling(f"{SERVICE}GetState")),
        *[frame(CONTINUATION, 0, 1, packed([("x", "y" * 10_000)]))] * 400,
    ],
    "calls": [frame(HEADERS, END_HEADERS, one, calling(f"{SERVICE}GetState")) for one in range(1, 4_001, 2)],
}


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path, [[{"text": "x"}, {"wait": "gate"}, {"text": "end"}]])


@pytest.fixture
async def door(house: House, tmp_path: Path) -> AsyncGenerator[Door]:
    async with behind(house, tmp_path / "run") as reached:
        yield reached


@pytest.mark.parametrize("name", METHODS)
async def test_an_unauthenticated_call_is_rejected_before_its_request_arrives(door: Door, name: str) -> None:
    """So no client without the token makes the service hold calls or their data."""
    async with wired(door.address) as wire:
        await wire.send(frame(HEADERS, END_HEADERS, 1, calling(f"{SERVICE}{name}")))
        answer = await wire.until(HEADERS)
    assert answer is not None
    assert answer.flags & END_STREAM
    assert REFUSED in answer.payload


@pytest.mark.parametrize("name", ["Check", "Watch"])
async def test_health_is_reported_before_the_request_arrives(door: Door, name: str) -> None:
    """A stranger may ask for it, and could send as much as the longest prompt has."""
    async with wired(door.address) as wire:
        for stream in range(1, 40, 2):
            await wire.send(frame(HEADERS, END_HEADERS, stream, calling(f"/grpc.health.v1.Health/{name}")))
            answer = await wire.until(DATA)
            assert answer is not None
            assert (answer.stream, answer.payload[5:]) == (stream, SERVING)


async def test_health_watchers_are_bounded(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_WATCHES", 2)
    watch = calling("/grpc.health.v1.Health/Watch")
    async with wired(door.address) as wire:
        for stream in (1, 3):
            await wire.send(frame(HEADERS, END_HEADERS, stream, watch))
            assert await wire.until(DATA) is not None
        await wire.send(frame(HEADERS, END_HEADERS, 5, watch))
        refused = await wire.until(HEADERS)
        assert refused is not None
        assert b"grpc-status\x018" in refused.payload
        await wire.send(frame(RESET, 0, 1, (8).to_bytes(4, "big")))
        for stream in range(7, 4_000, 2):
            await wire.send(frame(HEADERS, END_HEADERS, stream, watch))
            if (answer := await wire.receive()) is not None and answer.kind == DATA:
                return
    raise AssertionError("a watch that ended makes no room")


@pytest.mark.parametrize("token", [False, True])
@pytest.mark.parametrize(
    ("authority", "more"), [("evil.example:80", ()), ("localhost", (("origin", "http://evil.example"),))]
)
async def test_case_X_07_a_browser_page_is_rejected(
    house: House, door: Door, authority: str, more: tuple[tuple[str, str], ...], *, token: bool
) -> None:
    if token and not more:
        more = (("origin", "null"),)
    held = (("authorization", f"Bearer {door.token}"),) if token else ()
    body = pb.NewSessionRequest(session_id="theirs", cwd=str(house.cwd)).SerializeToString()
    async with wired(door.address) as wire:
        await wire.send(
            frame(HEADERS, END_HEADERS, 1, calling(f"{SERVICE}NewSession", *held, *more, authority=authority)),
            frame(DATA, END_STREAM, 1, b"\0" + len(body).to_bytes(4, "big") + body),
        )
        answer = await wire.until(HEADERS)
    assert answer is not None
    assert REFUSED in answer.payload
    assert door.token.encode() not in answer.payload
    assert not list(house.sessions.rglob("*.jsonl"))


async def test_a_client_that_pings_too_often_is_disconnected(door: Door) -> None:
    async with wired(door.address) as wire:
        await wire.send(*[frame(PING, payload=bytes(8))] * 10)
        told = await wire.until(GOAWAY)
        assert told is not None
        assert told.payload.endswith(b"too_many_pings")
        assert await wire.until(GOAWAY) is None


@pytest.mark.parametrize("abuse", ABUSES)
async def test_a_protocol_error_closes_the_connection(door: Door, abuse: str) -> None:
    async with wired(door.address) as wire:
        await wire.send(ABUSES[abuse])
        while await wire.receive() is not None:
            pass


@pytest.mark.parametrize("storm", STORMS)
async def test_a_flood_on_one_connection_does_not_affect_another(house: House, door: Door, storm: str) -> None:
    async with door.channel() as channel, wired(door.address) as wire:
        stub: Any = AgentServiceStub(channel)
        prompt = stub.Prompt(house.prompt("go", "s"), metadata=door.bearer)
        seen = [(await read(prompt)).event]
        for sent in STORMS[storm]:
            # It may be slowed down by the service, which is none of our business here.
            await wire.send(sent)
        await stub.GetState(pb.GetStateRequest(session_id="s"), metadata=door.bearer)
        await house.open_gate("gate")
        seen += [response.event for response in [one async for one in _rest(prompt)]]
    assert kinds(seen)[-1] == "agent_end"
    assert [event.sequence for event in seen] == list(range(1, len(seen) + 1))


async def _rest(prompt: Any) -> AsyncGenerator[Any]:
    while (response := await read(prompt)) and hasattr(response, "event"):
        yield response


async def test_a_silent_connection_does_not_block_others(door: Door) -> None:
    async with wired(door.address, b""), wired(door.address, PREFACE[:9]), door.channel() as channel:
        stub: Any = AgentServiceStub(channel)
        assert await stub.ListModels(pb.ListModelsRequest(), metadata=door.bearer)


async def test_connections_are_bounded_so_that_open_files_remain(tmp_path: Path) -> None:
    house = House(tmp_path, [[{"text": "x"}]], service=ServiceSettings(connections=4))
    async with behind(house, tmp_path / "run") as reached, reached.channel() as channel, AsyncExitStack() as stack:
        stub: Any = AgentServiceStub(channel)
        await stub.ListModels(pb.ListModelsRequest(), metadata=reached.bearer)
        for _ in range(3):
            wire = await stack.enter_async_context(wired(reached.address))
            assert await wire.until(SETTINGS) is not None
        async with wired(reached.address) as refused:
            assert await refused.until(SETTINGS) is None
        await stub.ListModels(pb.ListModelsRequest(), metadata=reached.bearer)
        await stack.aclose()
        # One that left makes room for another, as soon as the service has seen it go.
        async with asyncio.timeout(SOON):
            while not await _let_in(reached.address):
                pass


@pytest.mark.parametrize("preface", [b"", PREFACE[:6], PREFACE + frame(SETTINGS)])
async def test_an_idle_connection_is_closed(tmp_path: Path, preface: bytes) -> None:
    house = House(tmp_path, [[{"text": "x"}]], service=ServiceSettings(idle_seconds=1))
    async with (
        behind(house, tmp_path / "run") as reached,
        wired(reached.address) as busy,
        wired(reached.address, preface) as idle,
    ):
        await busy.send(frame(HEADERS, END_HEADERS, 1, calling("/grpc.health.v1.Health/Watch")))
        assert await busy.until(DATA) is not None
        while await idle.receive() is not None:
            pass
        # One with a call stays, however silent it is.
        await busy.send(frame(PING, payload=bytes(8)))
        assert await busy.until(PING) is not None


async def test_the_largest_configurable_limits_work(tmp_path: Path) -> None:
    most = dict.fromkeys(ServiceSettings.__struct_fields__, MAX_NUMBER)
    house = House(tmp_path, [[{"text": "x"}]], service=ServiceSettings(**most))
    async with behind(house, tmp_path / "run") as reached, reached.channel() as channel:
        stub: Any = AgentServiceStub(channel)
        await stub.ListModels(pb.ListModelsRequest(), metadata=reached.bearer)


async def test_a_client_reconnects_after_an_idle_close(tmp_path: Path) -> None:
    house = House(tmp_path, [[{"text": "x"}]], service=ServiceSettings(idle_seconds=1))
    async with behind(house, tmp_path / "run") as reached, reached.channel() as channel:
        stub: Any = AgentServiceStub(channel)
        await stub.ListModels(pb.ListModelsRequest(), metadata=reached.bearer)
        async with asyncio.timeout(SOON):
            while channel.get_state() is grpc.ChannelConnectivity.READY:
                await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
        await stub.ListModels(pb.ListModelsRequest(), metadata=reached.bearer)


async def _let_in(address: str) -> bool:
    async with wired(address) as wire:
        return await wire.until(SETTINGS) is not None
