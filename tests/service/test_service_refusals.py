"""Strangers at the door of the service: they do not keep its owner out, and leave a trace."""

import logging
import socket
from contextlib import ExitStack
from pathlib import Path

import grpc
import pytest
from msgspec.structs import replace

from doubles.house import House
from doubles.reached import METHODS, Door, behind, call
from yarrow.config.settings import ServiceSettings
from yarrow.platform import system
from yarrow.service import grpc_options
from yarrow.service.authentication import CHECK_SECONDS, LOG_SECONDS, RefusalLog, parse_peer_host
from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceStub

S = grpc.StatusCode
FEW = 8


def connect(door: Door) -> socket.socket:
    host, _, port = door.address.rpartition(":")
    return socket.create_connection((host, int(port)))


async def served(door: Door) -> bool:
    async with door.channel(("grpc.initial_reconnect_backoff_ms", 100)) as channel:
        return (await call(channel, METHODS["ListModels"], pb.ListModelsRequest(), metadata=door.bearer))[0] is S.OK


def test_case_rs_m1_the_limits_of_a_service() -> None:
    given = dict(grpc_options.make_server_options(ServiceSettings()))
    assert given["grpc.server_handshake_timeout_ms"] == 10_000
    assert given["grpc.max_allowed_incoming_connections"] == 4_096


async def test_case_rs_m1_silent_connections_end_and_the_owner_is_served_again(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_options, "HANDSHAKE_MILLISECONDS", 500)
    limits = ServiceSettings(connections=FEW)
    house.settings = replace(house.settings, service=limits)
    async with behind(house, tmp_path / "run", "tls") as door:
        assert await served(door)
        with ExitStack() as held:
            silent = [held.enter_context(connect(door)) for _ in range(4 * FEW)]
            while not await served(door):
                pass
            # They were closed, not this side's patience: each can be read to its end.
            for one in silent:
                one.settimeout(30)
                assert one.recv(64) == b""


async def test_a_refused_call_is_counted_and_logged_with_its_peer(
    house: House, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with behind(house, tmp_path / "run", "tls") as door, door.channel() as channel:
        for _ in range(3):
            wrong = (("authorization", "Bearer wrong-token"),)
            assert (await call(channel, METHODS["Prompt"], pb.PromptRequest(), metadata=wrong))[0] is S.UNAUTHENTICATED
        stub: AgentServiceStub = AgentServiceStub(channel)
        session = await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd)), metadata=door.bearer)
        state = await stub.GetState(pb.GetStateRequest(session_id=session.session_id), metadata=door.bearer)
    assert state.refused_calls == 3
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert lines == ["Prompt from 127.0.0.1 refused: UNAUTHENTICATED"]
    assert "wrong-token" not in caplog.text


def test_each_peer_is_logged_once_a_minute_with_a_count(caplog: pytest.LogCaptureFixture) -> None:
    time = [0.0]
    refusals = RefusalLog(lambda: time[0])
    for port in range(1_000):
        refusals.record_call("/yarrow.v1.AgentService/Prompt", f"ipv4:192.0.2.1:{port}")
    refusals.record_call("/yarrow.v1.AgentService/GetState", "ipv6:%5B2001:db8::1%5D:5")
    time[0] = LOG_SECONDS
    refusals.record_call("/yarrow.v1.AgentService/Prompt", "ipv4:192.0.2.1:9")
    assert [record.getMessage() for record in caplog.records] == [
        "Prompt from 192.0.2.1 refused: UNAUTHENTICATED",
        "GetState from 2001:db8::1 refused: UNAUTHENTICATED",
        "Prompt from 192.0.2.1 refused: UNAUTHENTICATED (999 more calls since the last line)",
    ]
    assert refusals.calls == 1_002


def test_memory_is_bounded_for_any_number_of_peers() -> None:
    refusals = RefusalLog(lambda: 0.0)
    for number in range(5_000):
        refusals.record_call("/x/Prompt", f"ipv4:192.0.{number // 256}.{number % 256}:1")
        refusals.record_call("/x/Prompt", f"ipv4:192.0.{number // 256}.{number % 256}:2")
    assert refusals.calls == 10_000
    assert max(len(value) for value in vars(refusals).values() if isinstance(value, dict)) <= 1_024


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:192.0.2.1:50000", "192.0.2.1"),
        ("ipv6:%5B::1%5D:50000", "::1"),
        ("ipv6:[fe80::1%25eth0]:1", "fe80::1%eth0"),
        ("unix:", "a local socket"),
        ("unix:/run/x", "a local socket"),
        ("", "an unknown peer"),
        ("vsock:1:2\n", "an unknown peer"),
    ],
)
def test_the_host_of_a_peer(peer: str, host: str) -> None:
    assert parse_peer_host(peer) == host


def test_refused_connections_are_logged_with_the_busiest_peers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    refusals = RefusalLog(lambda: 0.0)
    there = ["192.0.2.1"] * 5 + ["192.0.2.2"] * 2 + ["192.0.2.3"]
    monkeypatch.setattr("yarrow.service.authentication.system.list_connected_addresses", lambda port: there)
    refusals.check_connections(1, len(there) + 1)
    assert refusals.full_seconds == 0
    for _ in range(3):
        refusals.check_connections(1, len(there))
    assert refusals.full_seconds == 3 * CHECK_SECONDS
    assert [record.getMessage() for record in caplog.records] == [
        "the limit of 8 connections (service.connections) is reached: 192.0.2.1 (5), 192.0.2.2 (2), 192.0.2.3 (1)"
    ]


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_peers_are_read_from_the_system(family: socket.AddressFamily, address: str) -> None:
    with socket.socket(family) as server, ExitStack() as held:
        server.bind((address, 0))
        server.listen()
        port = server.getsockname()[1]
        assert system.list_connected_addresses(port) == []
        for _ in range(3):
            client = held.enter_context(socket.socket(family))
            client.connect((address, port))
        assert system.list_connected_addresses(port) == [address] * 3
