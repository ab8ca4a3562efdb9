"""The edge of the service: what is refused and how, limits, signs of life, and the log of calls."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from doubles.house import House, kinds, play, read, reason_of, stub_of
from doubles.reached import METHODS, Door, behind, call, in_process, request_of
from yarrow.config.settings import ServiceSettings
from yarrow.service import loaded_session
from yarrow.service.translation import to_event
from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceStub

S = grpc.StatusCode
HELD: list[list[dict[str, Any]]] = [[{"text": "x"}, {"wait": "gate"}, {"text": "end"}]]
TAKES_SESSION = [name for name, method in METHODS.items() if "session_id" in method.input_type.fields_by_name]
EVERY = sorted(METHODS)


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path, HELD)


def harmless(house: House, sentence: str) -> bool:
    """True if a message reveals nothing about how or where the service is built."""
    return "Traceback" not in sentence and "File " not in sentence and str(house.home) not in sentence


def patience(name: str) -> dict[str, float]:
    """How long to wait for an answer; a stream of which nothing new is asked for has none."""
    return {"timeout": 0.2} if name == "StreamEvents" else {}


async def running(house: House, stub: Any) -> tuple[str, Any]:
    """Begin a run that waits for its gate."""
    prompt = stub.Prompt(house.prompt())
    first = await read(prompt)
    return first.event.session_id, prompt


async def rest(stream: Any) -> list[pb.AgentEvent]:
    """The events of a stream that are still to come."""
    events = list[pb.AgentEvent]()
    while (response := await read(stream)) is not grpc.aio.EOF:
        events.append(response.event)
    return events


# ---- the error table, along the descriptor ----


@pytest.mark.parametrize("name", TAKES_SESSION)
async def test_an_unknown_session(house: House, name: str) -> None:
    async with in_process(house) as channel:
        request = request_of(METHODS[name], session_id="nobody", tool="echo")
        status, sentence = await call(channel, METHODS[name], request)
    makes = ("Prompt", "NewSession", "ImportSession")
    # Those make a session of that id, unless the request lacks what they need for it.
    allowed = (S.INVALID_ARGUMENT, S.OK) if name in makes else (S.NOT_FOUND, S.INVALID_ARGUMENT)
    assert status in allowed, sentence
    assert harmless(house, sentence)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("door", ["process", "unix", "tls"])
async def test_an_undecodable_request_has_a_reason(house: House, tmp_path: Path, name: str, door: str) -> None:
    if door == "process":
        async with in_process(house) as channel:
            assert await undecodable(channel, name) == (S.INVALID_ARGUMENT, "INVALID_ARGUMENT")
    else:
        async with behind(house, tmp_path / "run", door) as reached, reached.channel() as channel:
            found = await undecodable(channel, name, metadata=reached.bearer)
            assert found == (S.INVALID_ARGUMENT, "INVALID_ARGUMENT")
            # Without the token it is not reported.
            assert (await undecodable(channel, name)) == (S.UNAUTHENTICATED, "UNAUTHENTICATED")


async def undecodable(channel: grpc.aio.Channel, name: str, **how: Any) -> tuple[grpc.StatusCode, str]:
    """Status and reason of a call whose request is three bytes that are no message."""
    path, method, data = f"/yarrow.v1.AgentService/{name}", METHODS[name], b"\xff\xff\xff"
    if method.server_streaming:
        doing: Any = read(channel.unary_stream(path)(data, **how))
    elif method.client_streaming:
        doing = channel.stream_unary(path)(iter([data]), **how)
    else:
        doing = channel.unary_unary(path)(data, **how)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await doing
    return refused.value.code(), reason_of(refused.value)


@pytest.mark.parametrize("name", EVERY)
async def test_too_large_requests_are_rejected(house: House, tmp_path: Path, name: str) -> None:
    async with behind(house, tmp_path / "run") as door, door.channel() as channel:
        status, sentence = await call(channel, METHODS[name], bytes((8 << 20) + 1), metadata=door.bearer)
        assert status is S.RESOURCE_EXHAUSTED
        assert harmless(house, sentence)


@pytest.mark.parametrize("name", EVERY)
async def test_requests_while_busy(house: House, name: str) -> None:
    async with in_process(house) as channel:
        stub = AgentServiceStub(channel)
        session, prompt = await running(house, stub)
        request = request_of(METHODS[name], session_id=session, text="more", cwd=str(house.cwd), tool="echo")
        status, sentence = await call(channel, METHODS[name], request, **patience(name))
        assert status not in (S.INTERNAL, S.UNKNOWN, S.UNIMPLEMENTED), sentence
        if name in ("Prompt", "Compact", "RunTool", "DeleteSession"):
            assert status is S.FAILED_PRECONDITION
        assert harmless(house, sentence)
        await house.open_gate("gate")
        assert kinds(await rest(prompt))[-1] == "agent_end"


@pytest.mark.parametrize("name", EVERY)
async def test_requests_while_draining(house: House, name: str) -> None:
    async with in_process(house) as channel:
        stub = AgentServiceStub(channel)
        session = (await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd)))).session_id
        house.servicer.drain()
        request = request_of(METHODS[name], session_id=session, text="more", cwd=str(house.cwd), tool="echo")
        status, sentence = await call(channel, METHODS[name], request, **patience(name))
        assert status not in (S.INTERNAL, S.UNKNOWN, S.UNIMPLEMENTED), sentence
        if name in ("Prompt", "RunTool"):
            assert status is S.UNAVAILABLE
            assert "shutting down" in sentence
        assert harmless(house, sentence)


@pytest.mark.parametrize("name", EVERY)
async def test_calls_after_shutdown_are_not_logged_as_bugs(house: House, name: str) -> None:
    """Between the end of the last run and that of the connections there is a moment."""
    async with in_process(house) as channel:
        session = (await AgentServiceStub(channel).NewSession(pb.NewSessionRequest(cwd=str(house.cwd)))).session_id
        await house.servicer.close()
        request = request_of(METHODS[name], session_id=session, text="more", cwd=str(house.cwd), tool="echo")
        status, sentence = await call(channel, METHODS[name], request, **patience(name))
        assert status not in (S.INTERNAL, S.UNKNOWN, S.UNIMPLEMENTED), sentence
        assert harmless(house, sentence)


# ---- limits ----


async def refusal(doing: Any) -> tuple[grpc.StatusCode, str, float]:
    """Status, reason, and the seconds after which to try again."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await doing
    details = dict(caught.value.trailing_metadata())["grpc-status-details-bin"]
    assert isinstance(details, bytes)
    retry = error_details_pb2.RetryInfo()
    found = [detail for detail in status_pb2.Status.FromString(details).details if detail.Unpack(retry)]
    return caught.value.code(), reason_of(caught.value), retry.retry_delay.ToTimedelta().total_seconds() if found else 0


async def test_concurrent_runs_are_bounded(tmp_path: Path) -> None:
    house = House(tmp_path, HELD * 2, service=ServiceSettings(runs=1))
    async with stub_of(house) as stub:
        busy, prompt = await running(house, stub)
        assert await refusal(read(stub.Prompt(house.prompt()))) == (S.RESOURCE_EXHAUSTED, "TOO_MANY", 1.0)
        tool = pb.RunToolRequest(session_id=(await new(house, stub)), tool="echo")
        assert (await refusal(read(stub.RunTool(tool))))[1] == "TOO_MANY"
        # A session that is busy is refused for that: waiting for a place would not help.
        assert await refusal(read(stub.Prompt(house.prompt(session_id=busy)))) == (S.FAILED_PRECONDITION, "BUSY", 0)
        await house.open_gate("gate")
        assert kinds(await rest(prompt))[-1] == "agent_end"
        assert kinds(await play(stub, house.prompt()))[-1] == "agent_end"


async def new(house: House, stub: Any) -> str:
    return (await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd)))).session_id


async def test_streams_of_one_session_are_bounded(tmp_path: Path) -> None:
    house = House(tmp_path, HELD, service=ServiceSettings(subscribers=2))
    async with stub_of(house) as stub:
        session, prompt = await running(house, stub)
        request = pb.StreamEventsRequest(session_id=session, after_sequence=0)
        watching = stub.StreamEvents(request)
        await read(watching)
        assert await refusal(read(stub.StreamEvents(request))) == (S.RESOURCE_EXHAUSTED, "TOO_MANY", 1.0)
        watching.cancel()
        await house.open_gate("gate")
        assert kinds(await rest(prompt))[-1] == "agent_end"
        assert (await read(stub.StreamEvents(request))).event.sequence == 1


async def test_queued_texts_are_bounded_in_number_and_size(tmp_path: Path) -> None:
    house = House(tmp_path, HELD, service=ServiceSettings(queued_texts=3, queued_characters=10))
    async with stub_of(house) as stub:
        session, prompt = await running(house, stub)
        await stub.Steer(pb.SteerRequest(session_id=session, text="12345"))
        long, fits = (pb.FollowUpRequest(session_id=session, text=text) for text in ("123456", "12345"))
        assert await refusal(stub.FollowUp(long)) == (S.RESOURCE_EXHAUSTED, "TOO_MANY", 1.0)
        await stub.FollowUp(fits)
        prompt.cancel()
    house = House(tmp_path, HELD, service=ServiceSettings(queued_texts=2))
    async with stub_of(house) as stub:
        session, _ = await running(house, stub)
        for kind in (stub.Steer(pb.SteerRequest(session_id=session, text="x")), stub.FollowUp(fits_in(session))):
            await kind
        refused = await refusal(stub.Steer(pb.SteerRequest(session_id=session, text="x")))
        assert refused == (S.RESOURCE_EXHAUSTED, "TOO_MANY", 1.0)


def fits_in(session: str) -> pb.FollowUpRequest:
    return pb.FollowUpRequest(session_id=session, text="x")


async def test_a_merge_counts_as_a_run(tmp_path: Path) -> None:
    turns: list[list[dict[str, Any]]] = [[{"text": "a"}], [{"text": "b"}], [{"wait": "gate"}, {"text": "joined"}]]
    house = House(tmp_path, [*turns, [{"text": "c"}]], service=ServiceSettings(runs=1))
    async with stub_of(house) as stub:
        sessions = [(await play(stub, house.prompt()))[0].session_id for _ in range(2)]
        merge = pb.MergeSessionRequest(session_id=sessions[0], other_session_id=sessions[1])
        merging = asyncio.ensure_future(stub.MergeSession(merge))
        while len((await house.scripted()).requests) < 3:
            await asyncio.sleep(0.01)
        assert await refusal(read(stub.Prompt(house.prompt()))) == (S.RESOURCE_EXHAUSTED, "TOO_MANY", 1.0)
        assert await refusal(stub.MergeSession(merge)) == (S.RESOURCE_EXHAUSTED, "TOO_MANY", 1.0)
        await house.open_gate("gate")
        assert (await merging).session_id
        assert kinds(await play(stub, house.prompt()))[-1] == "agent_end"


async def test_a_draining_service_returns_a_retry_delay(house: House) -> None:
    async with stub_of(house) as stub:
        house.servicer.drain()
        assert await refusal(read(stub.Prompt(house.prompt()))) == (S.UNAVAILABLE, "DRAINING", 5.0)


async def test_metadata_and_messages_are_bounded_as_configured(tmp_path: Path) -> None:
    house = House(tmp_path, HELD, service=ServiceSettings(metadata_bytes=4096, message_bytes_in=1000))
    async with behind(house, tmp_path / "run") as door, door.channel() as channel:
        method = METHODS["ListModels"]
        small, large = (("x", "y" * 1000),), (("x", "y" * 8000),)
        assert (await call(channel, method, b"", metadata=(*door.bearer, *small)))[0] is S.OK
        assert (await call(channel, method, b"", metadata=(*door.bearer, *large)))[0] is S.RESOURCE_EXHAUSTED
        assert (await call(channel, method, bytes(1001), metadata=door.bearer))[0] is S.RESOURCE_EXHAUSTED


async def test_the_next_call_of_a_full_connection_waits(tmp_path: Path) -> None:
    house = House(tmp_path, HELD, service=ServiceSettings(streams=1))
    async with behind(house, tmp_path / "run") as door, door.channel() as channel:
        # The connection's number is known once it answered.
        await call(channel, METHODS["ListModels"], b"", metadata=door.bearer)
        stub: Any = AgentServiceStub(channel)
        prompt = stub.Prompt(house.prompt(), metadata=door.bearer)
        await read(prompt)
        waiting = asyncio.ensure_future(stub.ListModels(pb.ListModelsRequest(), metadata=door.bearer))
        await house.open_gate("gate")
        events = await rest(prompt)
        assert kinds(events)[-1] == "agent_end"
        assert (await asyncio.wait_for(waiting, 20)).models


# ---- signs of life ----


async def test_a_silent_stream_of_a_running_session_has_heartbeats(house: House, tmp_path: Path) -> None:
    async with behind(house, tmp_path / "run", heartbeat=0.02) as door, door.channel() as channel:
        stub: Any = AgentServiceStub(channel)
        prompt = stub.Prompt(house.prompt(), metadata=door.bearer)
        session = (await read(prompt)).event.session_id
        watching = stub.StreamEvents(pb.StreamEventsRequest(session_id=session, after_sequence=0), metadata=door.bearer)
        for stream in (prompt, watching):
            beats = 0
            while beats < 2:
                event = (await read(stream)).event
                if event.WhichOneof("event") == "heartbeat":
                    beats += 1
                    assert event.sequence == 0
                    assert event.session_id == session
        await house.open_gate("gate")
        numbered = [event for event in await rest(prompt) if event.sequence]
        assert kinds(numbered)[-1] == "agent_end"
        sequences = [event.sequence for event in numbered]
        assert sequences == list(range(sequences[0], sequences[0] + len(sequences)))


async def test_there_are_no_heartbeats_in_process_or_without_a_run(house: House, tmp_path: Path) -> None:
    assert house.servicer.streams.heartbeat == 0
    async with behind(house, tmp_path / "run", heartbeat=0.01) as door, door.channel() as channel:
        stub: Any = AgentServiceStub(channel)
        session = (await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd)), metadata=door.bearer)).session_id
        watching = stub.StreamEvents(pb.StreamEventsRequest(session_id=session), metadata=door.bearer, timeout=0.3)
        with pytest.raises(grpc.aio.AioRpcError) as ended:
            await read(watching)
        assert ended.value.code() is S.DEADLINE_EXCEEDED


# ---- one translation ----


async def test_an_event_is_translated_once_for_all_watchers(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    made = list[int]()

    def counted(event: Any) -> pb.AgentEvent:
        made.append(event.sequence)
        return to_event(event)

    monkeypatch.setattr(loaded_session, "to_event", counted)
    async with stub_of(house) as stub:
        session, prompt = await running(house, stub)
        request = pb.StreamEventsRequest(session_id=session, after_sequence=0)
        watching = [stub.StreamEvents(request) for _ in range(20)]
        for one in watching:
            await read(one)
        await house.open_gate("gate")
        seen = [1, *[event.sequence for event in await rest(prompt)]]
        for stream in watching:
            assert [(await read(stream)).event.sequence for _ in seen[1:]] == seen[1:]
    assert sorted(made) == seen


# ---- the log of calls ----


async def test_each_call_is_logged_without_its_content(
    house: House, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "yarrow.service")
    async with behind(house, tmp_path / "run") as door, door.channel() as channel:
        await told(house, door, channel)
    fields = [record.call for record in caplog.records if hasattr(record, "call")]  # pyright: ignore[reportAttributeAccessIssue]
    assert [(one["method"], one["status"]) for one in fields] == [
        ("NewSession", "OK"), ("Prompt", "FAILED_PRECONDITION"), ("GetState", "NOT_FOUND"), ("Prompt", "CANCELLED"),
    ]  # fmt: skip
    assert fields[2]["session"] == "-"
    assert all(one["milliseconds"] >= 0 for one in fields)
    assert "refused: UNAUTHENTICATED" in caplog.text
    assert not [word for word in ("secret", "forged", str(tmp_path), door.token) if word in caplog.text]


async def told(house: House, door: Door, channel: grpc.aio.Channel) -> None:
    stub: Any = AgentServiceStub(channel)
    session = (await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd)), metadata=door.bearer)).session_id
    prompt = stub.Prompt(house.prompt("the secret", session), metadata=door.bearer)
    await read(prompt)
    await refusal(read(stub.Prompt(house.prompt("secret", session), metadata=door.bearer)))
    await refusal(stub.GetState(pb.GetStateRequest(session_id="x\nforged line"), metadata=door.bearer))
    await call(channel, METHODS["ListModels"], b"")
    prompt.cancel()
    await house.open_gate("gate")
