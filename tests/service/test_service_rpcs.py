"""Every RPC of this build through the generated stub: how sessions are found, what is refused and with which reason."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from doubles.house import House, kinds, play, read, refused, stub_of
from doubles.rig import call
from yarrow.config.settings import ServiceSettings
from yarrow.errors import Code
from yarrow.service import loaded_session, translation
from yarrow.service.event_stream import MAX_BATCH_BYTES
from yarrow.service.request_fields import MAX_NAME_CHARACTERS, MAX_TEXT_BYTES
from yarrow.service.rpc_middleware import STATUS_BY_CODE
from yarrow.v1 import agent_pb2 as pb

if TYPE_CHECKING:
    from yarrow.v1.agent_pb2_grpc import AgentServiceAsyncStub as Stub  # there is no such class at run time

S = grpc.StatusCode
TURNS: list[list[dict[str, Any]]] = [[{"text": "Look."}, call("echo", "hi", id="c1")], [{"text": "done"}]]


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path, [*TURNS, [{"wait": "gate"}, {"text": "late"}], [{"text": "more"}]])


async def first(house: House, stub: "Stub") -> str:
    """A session with one finished run."""
    return (await play(stub, house.prompt()))[0].session_id


async def test_prompt_creates_a_session_and_the_first_event_names_it(house: House, stub: "Stub") -> None:
    events = await play(stub, house.prompt())
    assert kinds(events)[0] == "agent_start"
    assert kinds(events)[-1] == "agent_end"
    assert len({event.session_id for event in events}) == 1
    assert len({event.run_id for event in events}) == 1
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    assert events[-1].agent_end.reason == pb.END_REASON_COMPLETED
    assert len(list(house.sessions.rglob("*.jsonl"))) == 1


async def test_prompt_accepts_an_id_of_the_client_and_resumes_it(house: House, stub: "Stub") -> None:
    await play(stub, house.prompt(session_id="mine"))
    await house.open_gate("gate")
    events = await play(stub, house.prompt("again", session_id="mine"))
    assert events[0].sequence > 1
    messages = (await stub.GetMessages(pb.GetMessagesRequest(session_id="mine"))).messages
    assert [message.role for message in messages] == [
        pb.ROLE_USER, pb.ROLE_ASSISTANT, pb.ROLE_TOOL, pb.ROLE_ASSISTANT, pb.ROLE_USER, pb.ROLE_ASSISTANT,
    ]  # fmt: skip


@pytest.mark.parametrize("bad", ["../x", "a b", "x" * 65, "ü"])
async def test_hostile_ids_are_rejected(house: House, stub: "Stub", bad: str) -> None:
    assert await refused(play(stub, house.prompt(session_id=bad))) == (S.INVALID_ARGUMENT, "INVALID_ARGUMENT")


async def test_a_second_prompt_is_rejected_during_a_run(house: House, stub: "Stub") -> None:
    session = await first(house, stub)
    running = aiter(stub.Prompt(house.prompt("slow", session)))
    await anext(running)
    assert await refused(play(stub, house.prompt("two", session))) == (S.FAILED_PRECONDITION, "BUSY")
    change = stub.ConfigureSession(pb.ConfigureSessionRequest(session_id=session, name="x"))
    assert await refused(change) == (S.FAILED_PRECONDITION, "BUSY")
    assert (await stub.Abort(pb.AbortRequest(session_id=session))).was_running
    events = [response.event async for response in running]
    assert events[-1].agent_end.reason == pb.END_REASON_ABORTED
    assert not (await stub.Abort(pb.AbortRequest(session_id=session))).was_running


async def test_a_disconnected_client_only_stops_watching(house: House, stub: "Stub") -> None:
    session = await first(house, stub)
    running = stub.Prompt(house.prompt("slow", session))
    await read(running)
    running.cancel()
    watching = aiter(stub.StreamEvents(pb.StreamEventsRequest(session_id=session, after_sequence=0)))
    assert (await anext(watching)).event.WhichOneof("event") in ("agent_start", "gap")
    await house.open_gate("gate")
    async for response in watching:
        if response.event.WhichOneof("event") == "agent_end":
            assert response.event.agent_end.reason == pb.END_REASON_COMPLETED
            break


async def test_a_disconnected_one_shot_client_ends_the_run(house: House, stub: "Stub") -> None:
    session = await first(house, stub)
    running = stub.Prompt(house.prompt("slow", session, abort_on_disconnect=True))
    await read(running)
    running.cancel()
    watching = stub.StreamEvents(pb.StreamEventsRequest(session_id=session, after_sequence=0))
    async for response in watching:
        if response.event.WhichOneof("event") == "agent_end":
            assert response.event.agent_end.reason == pb.END_REASON_ABORTED
            break


async def test_steer_and_follow_up(house: House, stub: "Stub") -> None:
    session = await first(house, stub)
    running = aiter(stub.Prompt(house.prompt("slow", session)))
    await anext(running)
    follow_up = await stub.FollowUp(pb.FollowUpRequest(session_id=session, text="then this"))
    state = await stub.GetState(pb.GetStateRequest(session_id=session))
    assert [one.text for one in state.follow_ups] == ["then this"]
    assert state.run_id
    await house.open_gate("gate")
    events = [response.event async for response in running]
    delivered = [one.message_id for event in events for one in event.turn_start.delivered]
    assert delivered == [follow_up.message_id]
    steer = stub.Steer(pb.SteerRequest(session_id=session, text="x"))
    assert await refused(steer) == (S.FAILED_PRECONDITION, "NOT_RUNNING")


async def test_the_three_lookups_of_a_session(house: House, stub: "Stub", tmp_path: Path) -> None:
    session = await first(house, stub)
    other = House(tmp_path, [[{"text": "x"}]])
    in_memory: list[Callable[["Stub", str], Awaitable[Any]]] = [
        lambda s, i: s.Steer(pb.SteerRequest(session_id=i, text="x")),
        lambda s, i: s.FollowUp(pb.FollowUpRequest(session_id=i, text="x")),
        lambda s, i: s.Abort(pb.AbortRequest(session_id=i)),
        lambda s, i: read(s.StreamEvents(pb.StreamEventsRequest(session_id=i))),
    ]
    on_demand: list[Callable[["Stub", str], Awaitable[Any]]] = [
        lambda s, i: s.GetMessages(pb.GetMessagesRequest(session_id=i)),
        lambda s, i: s.GetState(pb.GetStateRequest(session_id=i)),
        lambda s, i: s.ConfigureSession(pb.ConfigureSessionRequest(session_id=i, name="n")),
    ]
    async with stub_of(other) as fresh:
        for request in in_memory:
            assert await refused(request(fresh, session)) == (S.NOT_FOUND, "SESSION_NOT_ACTIVE")
        for request in in_memory + on_demand:
            assert await refused(request(fresh, "unknown")) == (S.NOT_FOUND, "SESSION_UNKNOWN")
        state = await fresh.GetState(pb.GetStateRequest(session_id=session[-8:]))
        assert (state.session_id, state.message_count) == (session, 4)
        loaded = await fresh.NewSession(pb.NewSessionRequest(session_id=session))
        assert (loaded.origin, loaded.cwd) == (pb.SESSION_ORIGIN_ACTIVE, str(house.cwd))
        assert not (await fresh.Abort(pb.AbortRequest(session_id=session))).was_running


async def test_new_session_reports_how_the_session_was_found(house: House, stub: "Stub", tmp_path: Path) -> None:
    new = pb.NewSessionRequest(session_id="mine", name="my work", cwd=str(house.cwd))
    assert (await stub.NewSession(new)).origin == pb.SESSION_ORIGIN_CREATED
    assert (await stub.NewSession(new)).origin == pb.SESSION_ORIGIN_ACTIVE
    async with stub_of(House(tmp_path, TURNS)) as fresh:
        response = await fresh.NewSession(new)
        assert response.origin == pb.SESSION_ORIGIN_LOADED
        assert (await fresh.GetState(pb.GetStateRequest(session_id="mine"))).name == "my work"


async def test_settings_of_a_created_session(house: House, stub: "Stub") -> None:
    settings = pb.SessionSettings(
        provider="other",
        thinking=pb.THINKING_LEVEL_HIGH,
        dry_run=True,
        append_system_prompt="Be kind.",
        tools=pb.ToolSelection(names=["echo"]),
        compaction=pb.CompactionSettings(reserve_tokens=99),
    )
    made = await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd), settings=settings))
    state = await stub.GetState(pb.GetStateRequest(session_id=made.session_id))
    assert state.settings.provider == "other"
    assert state.settings.thinking == pb.THINKING_LEVEL_HIGH
    assert state.settings.dry_run
    assert state.settings.system_prompt.endswith("Be kind.")
    assert list(state.settings.tools.names) == ["echo"]
    assert state.settings.compaction == pb.CompactionSettings(
        enabled=True, reserve_tokens=99, keep_recent_tokens=8192, model=""
    )
    assert (state.version, state.provider.name) == ("1.2.3", "other")


async def test_changed_settings_persist(house: House, stub: "Stub", tmp_path: Path) -> None:
    session = await first(house, stub)
    settings = pb.SessionSettings(thinking=pb.THINKING_LEVEL_LOW, dry_run=True, provider="other")
    request = pb.ConfigureSessionRequest(session_id=session, settings=settings, name="renamed")
    changed = (await stub.ConfigureSession(request)).settings
    assert (changed.thinking, changed.dry_run, changed.provider) == (pb.THINKING_LEVEL_LOW, True, "other")
    async with stub_of(House(tmp_path, TURNS)) as fresh:
        state = await fresh.GetState(pb.GetStateRequest(session_id=session))
        assert (state.name, state.settings.dry_run, state.settings.provider) == ("renamed", True, "other")


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.PromptRequest(text=" \n"), "text"),
        (pb.PromptRequest(text="x", cwd="relative"), "cwd"),
        (pb.PromptRequest(text="x", cwd="/does/not/exist"), "cwd"),
        (pb.PromptRequest(text="x", images=[pb.Image(media_type="text/html", data=b"x")]), "images[0].media_type"),
        (pb.PromptRequest(text="x", settings=pb.SessionSettings(thinking=99)), "settings.thinking"),  # pyright: ignore[reportArgumentType]
        (
            pb.PromptRequest(text="x", settings=pb.SessionSettings(permissions=9)),  # pyright: ignore[reportArgumentType]
            "settings.permissions",
        ),
        (
            pb.PromptRequest(text="x", settings=pb.SessionSettings(tools=pb.ToolSelection(names=["hammer"]))),
            "settings.tools.names",
        ),
    ],
)
async def test_an_invalid_field_is_named(stub: "Stub", house: House, request_: pb.PromptRequest, field: str) -> None:
    if not request_.cwd:
        request_.cwd = str(house.cwd)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await play(stub, request_)
    assert caught.value.code() is S.INVALID_ARGUMENT
    assert (caught.value.details() or "").startswith(f"{field}: ")
    assert not list(house.sessions.rglob("*.jsonl"))


async def test_a_text_over_the_limit_is_rejected(house: House, stub: "Stub") -> None:
    status = await refused(play(stub, house.prompt("x" * (MAX_TEXT_BYTES + 1))))
    assert status == (S.RESOURCE_EXHAUSTED, "TOO_LARGE")


async def test_an_unknown_provider_is_rejected(house: House, stub: "Stub") -> None:
    request = house.prompt()
    request.settings.provider = "nobody"
    assert await refused(play(stub, request)) == (S.FAILED_PRECONDITION, "PROVIDER_SETUP")


async def test_messages_are_paged_with_their_full_content(house: House, stub: "Stub") -> None:
    session = await first(house, stub)
    page = await stub.GetMessages(pb.GetMessagesRequest(session_id=session, limit=3))
    assert page.has_more
    user, asked, result = page.messages
    assert user.content[0].text.text == "go"
    assert asked.content[1].tool_call == pb.ToolCallBlock(id="c1", name="echo", arguments_json='{"text":"hi"}')
    assert (asked.provider, asked.stop_reason) == ("scripted", pb.STOP_REASON_TOOL_USE)
    assert (result.tool_call_id, result.tool_name, result.content[0].text.text) == ("c1", "echo", "hi")
    assert result.time.ToJsonString() == "2023-11-14T22:13:20Z"
    rest = await stub.GetMessages(pb.GetMessagesRequest(session_id=session, after=result.id))
    assert [message.content[0].text.text for message in rest.messages] == ["done"]
    assert not rest.has_more
    state = await stub.GetState(pb.GetStateRequest(session_id=session))
    assert rest.sequence == state.sequence
    assert rest.epoch == state.epoch != ""


async def test_events_are_replayed_then_live_for_several_clients(house: House, stub: "Stub") -> None:
    session = await first(house, stub)
    epoch = (await stub.GetState(pb.GetStateRequest(session_id=session))).epoch
    whole = stub.StreamEvents(pb.StreamEventsRequest(session_id=session, after_sequence=0, epoch=epoch))
    replayed = [await read(whole) for _ in range(5)]
    assert [response.event.sequence for response in replayed] == [1, 2, 3, 4, 5]
    assert [bool(response.epoch) for response in replayed] == [True, False, False, False, False]
    live = stub.StreamEvents(pb.StreamEventsRequest(session_id=session))
    waiting = asyncio.ensure_future(read(live))
    await house.open_gate("gate")
    events = await play(stub, house.prompt("more", session))
    assert (await waiting).event == events[0]
    batched = stub.StreamEvents(
        pb.StreamEventsRequest(session_id=session, after_sequence=events[0].sequence - 1, batch=True)
    )
    response = await read(batched)
    assert [response.event, *response.more] == events


async def test_a_batch_waits_briefly_but_not_after_the_end(house: House, stub: "Stub") -> None:
    house.servicer.streams.batch_window = 60.0  # so that only the end of the run ends it
    responses = [response async for response in stub.Prompt(house.prompt(batch=True))]
    assert len(responses) == 1
    assert responses[0].more[-1].HasField("agent_end")
    assert responses[0].event.HasField("agent_start")


async def test_a_stream_opens_before_the_first_event(house: House, stub: "Stub") -> None:
    session = await first(house, stub)
    watching = stub.StreamEvents(pb.StreamEventsRequest(session_id=session))
    async with asyncio.timeout(30):
        await watching.wait_for_connection()
    watching.cancel()


async def test_another_epoch_replays_from_the_start(house: House, stub: "Stub") -> None:
    session = await first(house, stub)
    stale = stub.StreamEvents(pb.StreamEventsRequest(session_id=session, after_sequence=3, epoch="yesterday"))
    assert (await read(stale)).event.sequence == 1


async def test_sessions_are_listed_newest_first(house: House, stub: "Stub", tmp_path: Path) -> None:
    one = await first(house, stub)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    made = await stub.NewSession(pb.NewSessionRequest(cwd=str(elsewhere), name="far"))
    listed = await stub.ListSessions(pb.ListSessionsRequest(cwd=str(house.cwd)))
    assert [(summary.session_id, summary.title, summary.active) for summary in listed.sessions] == [(one, "go", True)]
    everywhere = await stub.ListSessions(pb.ListSessionsRequest(scope=pb.SESSION_SCOPE_ALL))
    assert {summary.session_id for summary in everywhere.sessions} == {one, made.session_id}
    only = await stub.ListSessions(pb.ListSessionsRequest(scope=pb.SESSION_SCOPE_ALL, limit=1))
    assert len(only.sessions) == 1


async def test_models_are_listed(stub: "Stub") -> None:
    listed = await stub.ListModels(pb.ListModelsRequest())
    assert (listed.provider, [model.name for model in listed.models]) == ("scripted", ["scripted"])


async def test_an_ephemeral_session_leaves_nothing_on_disk(house: House, stub: "Stub") -> None:
    events = await play(stub, house.prompt(ephemeral=True))
    assert events[-1].agent_end.reason == pb.END_REASON_COMPLETED
    assert not list(house.sessions.rglob("*"))


async def test_a_draining_service_rejects_prompts(house: House, stub: "Stub") -> None:
    house.servicer.drain()
    assert await refused(play(stub, house.prompt())) == (S.UNAVAILABLE, "DRAINING")


async def test_a_bug_is_reported_with_an_id_that_is_logged(
    house: House, stub: "Stub", monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(house.providers, "get", broken)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await play(stub, house.prompt())
    details = caught.value.details() or ""
    assert caught.value.code() is S.INTERNAL
    assert "secret" not in details
    assert details.rpartition(" ")[2] in caplog.text


async def test_a_status_can_always_be_sent(house: House, stub: "Stub") -> None:
    request = house.prompt(session_id="\u20ac" * 3000)
    assert await refused(play(stub, request)) == (S.INVALID_ARGUMENT, "INVALID_ARGUMENT")


async def test_absurd_token_counts_keep_a_session_usable(house: House, stub: "Stub", tmp_path: Path) -> None:
    huge = {"usage": {"input": 1 << 80, "output": (1 << 64) - 1, "cacheRead": (1 << 64) - 1}}
    (tmp_path / "script.json").write_text(json.dumps([[{"text": "a"}, huge]]))
    events = await play(stub, house.prompt())
    assert events[-1].agent_end.reason == pb.END_REASON_COMPLETED
    session = events[0].session_id
    state = await stub.GetState(pb.GetStateRequest(session_id=session))
    assert 0 < state.context_tokens < 10_000  # what cannot be is not believed
    usage = (await stub.GetMessages(pb.GetMessagesRequest(session_id=session))).messages[1].usage
    assert (usage.input, usage.output) == (translation.MAX_COUNT, translation.MAX_COUNT)
    again = await play(stub, house.prompt(session_id=session))
    assert again[-1].agent_end.reason == pb.END_REASON_COMPLETED


async def test_an_empty_id_is_rejected_and_a_part_resolves_only_for_reads(house: House, stub: "Stub") -> None:
    session = await first(house, stub)
    for request in (
        stub.GetState(pb.GetStateRequest()),
        stub.GetMessages(pb.GetMessagesRequest()),
        stub.ConfigureSession(pb.ConfigureSessionRequest(name="x")),
    ):
        assert await refused(request) == (S.INVALID_ARGUMENT, "INVALID_ARGUMENT")
    assert (await stub.GetState(pb.GetStateRequest(session_id=session[:12]))).session_id == session
    change = stub.ConfigureSession(pb.ConfigureSessionRequest(session_id=session[:12], name="x"))
    assert await refused(change) == (S.NOT_FOUND, "SESSION_UNKNOWN")


async def test_a_name_is_bounded(house: House, stub: "Stub") -> None:
    new = stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd), name="x" * (MAX_NAME_CHARACTERS + 1)))
    assert await refused(new) == (S.INVALID_ARGUMENT, "INVALID_ARGUMENT")


async def test_unused_sessions_are_evicted_and_used_ones_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    house = House(tmp_path, TURNS, service=ServiceSettings(sessions=2))
    async with stub_of(house) as stub:
        await make_room(house, stub, monkeypatch)


async def make_room(house: House, stub: "Stub", monkeypatch: pytest.MonkeyPatch) -> None:
    new = pb.NewSessionRequest(cwd=str(house.cwd))
    one = (await stub.NewSession(new)).session_id
    two = (await stub.NewSession(new)).session_id
    assert await refused(stub.NewSession(new)) == (S.RESOURCE_EXHAUSTED, "TOO_MANY")
    monkeypatch.setattr(loaded_session, "RECENT_USE_SECONDS", -1.0)
    watching = stub.StreamEvents(pb.StreamEventsRequest(session_id=one, after_sequence=0))
    prompted = await play(stub, house.prompt(session_id=one))
    assert (await read(watching)).event == prompted[0]
    await stub.NewSession(new)
    assert await refused(stub.Abort(pb.AbortRequest(session_id=two))) == (S.NOT_FOUND, "SESSION_NOT_ACTIVE")
    assert not (await stub.Abort(pb.AbortRequest(session_id=one))).was_running


async def test_a_session_whose_file_was_removed_is_unknown(house: House, stub: "Stub") -> None:
    session = await first(house, stub)
    for path in house.sessions.rglob(f"{session}.jsonl"):
        path.unlink()
    state = stub.GetState(pb.GetStateRequest(session_id=session))
    assert await refused(state) == (S.NOT_FOUND, "SESSION_UNKNOWN")


async def test_a_batch_is_bounded_in_bytes(house: House, stub: "Stub", tmp_path: Path) -> None:
    pieces = [{"text": chr(97 + number) * 700_000} for number in range(10)]
    (tmp_path / "script.json").write_text(json.dumps([pieces]))
    responses = [response async for response in stub.Prompt(house.prompt(batch=True))]
    assert max(response.ByteSize() for response in responses) < 2 * MAX_BATCH_BYTES
    events = [event for response in responses for event in (response.event, *response.more)]
    assert "".join(event.text_delta.text for event in events) == "".join(piece["text"] for piece in pieces)


def test_every_rpc_is_tested(house: House) -> None:
    methods = {method.name for method in pb.DESCRIPTOR.services_by_name["AgentService"].methods}
    assert house.servicer.handlers.keys() == methods


def test_every_code_has_a_status() -> None:
    assert set(STATUS_BY_CODE) == set(Code)
