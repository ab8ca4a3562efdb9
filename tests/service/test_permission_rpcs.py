"""Permissions through the service: connected clients, their events, and the effect of their answers."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest

from doubles.house import House, kinds, play, read, reason_of, stub_of
from yarrow.agent import permission_broker
from yarrow.config.settings import AllowedCall, PermissionSettings
from yarrow.session.record import PermissionAnswered, PermissionAsked
from yarrow.v1 import agent_pb2 as pb

TURNS = [[{"call": {"name": "act", "arguments": {"text": "a"}, "id": "c1"}}], [{"text": "done"}]]


def house_of(folder: Path, **settings: Any) -> House:
    """A house in which `act` is asked."""
    return House(folder, TURNS, rules=settings.pop("rules", {}), **settings)


async def until_asked(call: Any) -> pb.AgentEvent:
    """Read up to the question."""
    async with asyncio.timeout(5):
        while True:
            event = (await read(call)).event
            if event.WhichOneof("event") == "permission_request":
                return event


async def rest_of(call: Any) -> list[pb.AgentEvent]:
    events: list[pb.AgentEvent] = []
    async with asyncio.timeout(5):
        while (response := await read(call)) is not grpc.aio.EOF:
            events.append(response.event)
    return events


def answer(event: pb.AgentEvent, word: str = "ONCE", text: str = "") -> pb.AnswerPermissionRequest:
    return pb.AnswerPermissionRequest(
        session_id=event.session_id,
        request_id=event.permission_request.request_id,
        answer=pb.PermissionAnswer.Value(f"PERMISSION_ANSWER_{word}"),
        text=text,
    )


async def refused(call: Any) -> grpc.aio.AioRpcError:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call
    return caught.value


async def test_a_client_that_can_answer_is_asked(tmp_path: Path) -> None:
    house = house_of(tmp_path)
    async with stub_of(house) as stub:
        call = stub.Prompt(house.prompt(answers_permissions=True))
        event = await until_asked(call)
        request = event.permission_request
        assert (request.tool_call_id, request.tool, request.arguments_json) == ("c1", "act", '{"text":"a"}')
        state = await stub.GetState(pb.GetStateRequest(session_id=event.session_id))
        assert state.state == pb.AGENT_STATE_EXECUTING
        assert list(state.permission_requests) == [request]
        await stub.AnswerPermission(answer(event))
        state = await stub.GetState(pb.GetStateRequest(session_id=event.session_id))
        assert not state.permission_requests
        assert "permission_settled" in kinds(await rest_of(call))
    assert house.act.ran == ["a"]


async def test_case_C_05_without_a_client_that_can_answer_it_denies_at_once(tmp_path: Path) -> None:
    house = house_of(tmp_path)
    async with stub_of(house) as stub:
        events = await asyncio.wait_for(play(stub, house.prompt()), 5)
    assert kinds(events).count("permission_request") == kinds(events).count("permission_settled") == 1
    (output,) = [event.tool_output for event in events if event.WhichOneof("event") == "tool_output"]
    assert output.is_error
    assert "no user can be asked" in output.text
    (settled,) = [e.permission_settled for e in events if e.WhichOneof("event") == "permission_settled"]
    assert (settled.answer, settled.by) == (pb.PERMISSION_ANSWER_NO, "nobody")
    assert events[-1].agent_end.reason == pb.END_REASON_COMPLETED
    assert house.act.ran == []


async def test_a_client_that_only_watches_may_answer(tmp_path: Path) -> None:
    house = house_of(tmp_path)
    async with stub_of(house) as stub:
        session = (await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd)))).session_id
        watching = stub.StreamEvents(pb.StreamEventsRequest(session_id=session, answers_permissions=True))
        reading = asyncio.create_task(until_asked(watching))
        while not (await stub.GetState(pb.GetStateRequest(session_id=session))).dropped:
            await asyncio.sleep(0)  # until it is subscribed
        running = asyncio.create_task(play(stub, house.prompt(session_id=session)))
        await stub.AnswerPermission(answer(await reading))
        await running
        watching.cancel()
    assert house.act.ran == ["a"]


async def test_it_is_denied_when_the_only_client_that_can_answer_stays_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(permission_broker, "MAX_ABSENCE_SECONDS", 0.05)
    house = house_of(tmp_path)
    async with stub_of(house) as stub:
        call = stub.Prompt(house.prompt(answers_permissions=True))
        event = await until_asked(call)
        call.cancel()
        await asyncio.wait_for(house.servicer.wait_until_idle(), 5)
        messages = (await stub.GetMessages(pb.GetMessagesRequest(session_id=event.session_id))).messages
    assert "no user can be asked" in messages[2].content[0].text.text
    assert messages[3].content[0].text.text == "done"


async def test_invalid_answers_are_rejected(tmp_path: Path) -> None:
    house = house_of(tmp_path)
    async with stub_of(house) as stub:
        call = stub.Prompt(house.prompt(answers_permissions=True))
        event = await until_asked(call)
        wrong = await refused(stub.AnswerPermission(answer(event, "UNSPECIFIED")))
        assert wrong.code() is grpc.StatusCode.INVALID_ARGUMENT
        wrong = await refused(stub.AnswerPermission(answer(event, "ONCE", "why not")))
        assert wrong.code() is grpc.StatusCode.INVALID_ARGUMENT
        wrong = await refused(stub.AnswerPermission(answer(event, "NO", "x" * 10_001)))
        assert wrong.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        unknown = answer(event)
        unknown.request_id = "nothing"
        wrong = await refused(stub.AnswerPermission(unknown))
        assert (wrong.code(), reason_of(wrong)) == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")
        unknown.session_id = "nothing"
        wrong = await refused(stub.AnswerPermission(unknown))
        assert (wrong.code(), reason_of(wrong)) == (grpc.StatusCode.NOT_FOUND, "SESSION_UNKNOWN")
        await stub.AnswerPermission(answer(event, "NO", "use make"))
        await stub.AnswerPermission(answer(event, "NO", "use make"))
        wrong = await refused(stub.AnswerPermission(answer(event)))
        assert (wrong.code(), reason_of(wrong)) == (grpc.StatusCode.FAILED_PRECONDITION, "NOT_RUNNING")
        events = await rest_of(call)
    outputs = [event.tool_output.text for event in events if event.WhichOneof("event") == "tool_output"]
    assert outputs == ["Not run: the user denied it and said: use make"]


async def test_always_is_stored_in_the_settings(tmp_path: Path) -> None:
    house = house_of(tmp_path)
    async with stub_of(house) as stub:
        call = stub.Prompt(house.prompt(answers_permissions=True))
        await stub.AnswerPermission(answer(await until_asked(call), "ALWAYS"))
        await rest_of(call)
    assert house.allowed == [AllowedCall("act", '{"text":"a"}', str(house.cwd))]


async def test_request_and_answer_are_recorded(tmp_path: Path) -> None:
    house = house_of(tmp_path)
    async with stub_of(house) as stub:
        call = stub.Prompt(house.prompt(answers_permissions=True))
        event = await until_asked(call)
        loaded = await house.parts.manager.load(event.session_id)
        assert isinstance(loaded.records[-1].value, PermissionAsked)
        await stub.AnswerPermission(answer(event))
        loaded = await house.parts.manager.load(event.session_id)
        assert any(isinstance(one.value, PermissionAnswered) for one in loaded.records)
        await rest_of(call)


@pytest.mark.parametrize(("mode", "ran"), [("AUTO", ["a"]), ("PLAN", []), ("DENY", [])])
async def test_the_mode_of_a_session(tmp_path: Path, mode: str, ran: list[str]) -> None:
    house = house_of(tmp_path)
    number = pb.PermissionMode.Value(f"PERMISSION_MODE_{mode}")
    async with stub_of(house) as stub:
        request = house.prompt()
        request.settings.permissions = number
        events = await play(stub, request)
        state = await stub.GetState(pb.GetStateRequest(session_id=events[0].session_id))
        assert state.settings.permissions == number
        assert "permission_request" not in kinds(events)
    assert house.act.ran == ran


async def test_the_mode_comes_from_the_settings_and_can_be_changed(tmp_path: Path) -> None:
    house = house_of(tmp_path, permissions=PermissionSettings(mode="plan"))
    async with stub_of(house) as stub:
        session = (await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd)))).session_id
        state = await stub.GetState(pb.GetStateRequest(session_id=session))
        assert state.settings.permissions == pb.PERMISSION_MODE_PLAN
        settings = pb.SessionSettings(permissions=pb.PERMISSION_MODE_AUTO)
        changed = await stub.ConfigureSession(pb.ConfigureSessionRequest(session_id=session, settings=settings))
        assert changed.settings.permissions == pb.PERMISSION_MODE_AUTO
        await play(stub, house.prompt(session_id=session))
    assert house.act.ran == ["a"]


async def test_an_import_brings_no_permission(tmp_path: Path) -> None:
    house = house_of(tmp_path)
    async with stub_of(house) as stub:
        settings = pb.SessionSettings(permissions=pb.PERMISSION_MODE_AUTO)
        made = await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd), settings=settings))
        configure = pb.ConfigureSessionRequest(session_id=made.session_id, settings=settings)
        await stub.ConfigureSession(configure)
        export = pb.ExportSessionRequest(session_id=made.session_id, format=pb.EXPORT_FORMAT_JSONL)
        data = b"".join([part.chunk async for part in stub.ExportSession(export)])
        assert b'"permissions":"auto"' in data

        async def chunks() -> AsyncIterator[pb.ImportSessionRequest]:
            yield pb.ImportSessionRequest(chunk=data, cwd=str(house.cwd))

        imported = await stub.ImportSession(chunks())
        state = await stub.GetState(pb.GetStateRequest(session_id=imported.session_id))
        assert state.settings.permissions == pb.PERMISSION_MODE_ASK
        branched = await stub.BranchSession(pb.BranchSessionRequest(session_id=made.session_id))
        state = await stub.GetState(pb.GetStateRequest(session_id=branched.session_id))
        assert state.settings.permissions == pb.PERMISSION_MODE_AUTO


async def test_a_rule_for_an_unknown_tool_causes_a_notice(tmp_path: Path) -> None:
    house = house_of(tmp_path, rules={"act": "auto", "atc(x)": "deny"})
    async with stub_of(house) as stub:
        await play(stub, house.prompt(session_id="s1"))
        (warning,) = (await stub.GetState(pb.GetStateRequest(session_id="s1"))).warnings
    assert "'atc(x)'" in warning
    assert "did you mean 'act'?" in warning


async def test_the_first_of_concurrent_answers_counts_and_others_fail(tmp_path: Path) -> None:
    house = house_of(tmp_path)
    async with stub_of(house) as stub:
        call = stub.Prompt(house.prompt(session_id="s1", answers_permissions=True))
        event = await until_asked(call)
        words = ("ONCE", "NO", "SESSION", "ONCE", "ALWAYS")
        came = await asyncio.gather(
            *(stub.AnswerPermission(answer(event, word)) for word in words), return_exceptions=True
        )
        await rest_of(call)
        late = await refused(stub.AnswerPermission(answer(event, "NO")))
        await play(stub, house.prompt(session_id="s2"))
        foreign = answer(event)
        foreign.session_id = "s2"
        assert reason_of(await refused(stub.AnswerPermission(foreign))) == "NOT_FOUND"
    reasons = [reason_of(one) if isinstance(one, grpc.aio.AioRpcError) else "" for one in came]
    assert reasons == ["", "NOT_RUNNING", "NOT_RUNNING", "", "NOT_RUNNING"]
    assert "was already answered: once (person)" in str(late.details())
    assert house.act.ran == ["a"]
    assert house.allowed == []


async def test_plan_mode_is_inherited_by_derived_sessions(tmp_path: Path) -> None:
    house = house_of(tmp_path, rules={"*": "auto"})
    async with stub_of(house) as stub:
        request = house.prompt(session_id="s1")
        request.settings.permissions = pb.PERMISSION_MODE_PLAN
        await play(stub, request)
        made = [
            (await stub.BranchSession(pb.BranchSessionRequest(session_id="s1"))).session_id,
            (await stub.ForkSession(pb.ForkSessionRequest(session_id="s1"))).session_id,
            (await stub.RebaseSession(pb.RebaseSessionRequest(session_id="s1", indices=[0]))).session_id,
        ]
        for session_id in ("s1", *made):
            by_hand = pb.RunToolRequest(session_id=session_id, tool="act", arguments_json='{"text": "x"}')
            events = [response.event async for response in stub.RunTool(by_hand)]
            assert "plan mode" in events[-1].tool_output.text
    assert house.act.ran == []


async def allowed(stub: Any, session_id: str = "") -> list[pb.AllowedCall]:
    return list((await stub.ListPermissions(pb.ListPermissionsRequest(session_id=session_id))).calls)


@pytest.mark.parametrize("word", ["SESSION", "ALWAYS"])
async def test_an_allowed_call_runs_without_asking_until_it_is_revoked(tmp_path: Path, word: str) -> None:
    house = House(tmp_path, TURNS * 3, rules={})
    async with stub_of(house) as stub:
        call = stub.Prompt(house.prompt(session_id="s1", answers_permissions=True))
        await stub.AnswerPermission(answer(await until_asked(call), word))
        await rest_of(call)
        like = pb.AllowedCall(tool="act", subject='{"text":"a"}', cwd=str(house.cwd), always=word == "ALWAYS")
        assert await allowed(stub, "s1") == [like]
        assert await allowed(stub) == ([like] if word == "ALWAYS" else [])
        await play(stub, house.prompt(session_id="s1"))
        assert house.act.ran == ["a", "a"]
        await stub.RevokePermission(pb.RevokePermissionRequest(session_id="s1", call=like))
        assert await allowed(stub, "s1") == []
        assert house.allowed == []
        events = await play(stub, house.prompt(session_id="s1"))
        assert "permission_request" in kinds(events)
        assert house.act.ran == ["a", "a"]


@pytest.mark.parametrize("field", ["tool", "subject", "cwd", "uncontained", "always"])
async def test_only_an_allowed_call_can_be_revoked(tmp_path: Path, field: str) -> None:
    house = house_of(tmp_path)
    async with stub_of(house) as stub:
        call = stub.Prompt(house.prompt(session_id="s1", answers_permissions=True))
        await stub.AnswerPermission(answer(await until_asked(call), "ALWAYS"))
        await rest_of(call)
        (like,) = await allowed(stub)
        another = pb.AllowedCall()
        another.CopyFrom(like)
        setattr(another, field, not getattr(like, field) if field in {"uncontained", "always"} else "x" * 10_000)
        wrong = await refused(stub.RevokePermission(pb.RevokePermissionRequest(session_id="s1", call=another)))
        assert (wrong.code(), reason_of(wrong)) == (grpc.StatusCode.NOT_FOUND, "NOT_FOUND")
        assert len(wrong.details() or "") < 1_000
        assert await allowed(stub, "s1") == [like]


async def test_a_call_with_a_key_is_listed_without_it_and_can_be_revoked(tmp_path: Path) -> None:
    key = "sk-secret-0123456789"
    turns = [[{"call": {"name": "act", "arguments": {"text": key}, "id": "c1"}}], [{"text": "done"}]]
    house = House(tmp_path, turns, rules={}, keys=[key])
    async with stub_of(house) as stub:
        call = stub.Prompt(house.prompt(session_id="s1", answers_permissions=True))
        event = await until_asked(call)
        assert event.permission_request.rule_file == ""
        assert key not in event.permission_request.rule_json
        await stub.AnswerPermission(answer(event, "ALWAYS"))
        await rest_of(call)
        (like,) = await allowed(stub, "s1")
        assert not like.always
        assert key not in str(like)
        await stub.RevokePermission(pb.RevokePermissionRequest(session_id="s1", call=like))
        assert await allowed(stub, "s1") == []


async def test_a_request_states_the_rule_and_file_of_always(tmp_path: Path) -> None:
    house = house_of(tmp_path)
    async with stub_of(house) as stub:
        call = stub.Prompt(house.prompt(answers_permissions=True))
        event = await until_asked(call)
        request = event.permission_request
        await stub.AnswerPermission(answer(event, "ALWAYS"))
        await rest_of(call)
    assert request.rule_file == "/home/u/config.json"
    assert [msgspec.json.decode(request.rule_json, type=AllowedCall)] == house.allowed


async def test_statistics_list_each_decision(tmp_path: Path) -> None:
    house = House(tmp_path, TURNS * 2, rules={})
    async with stub_of(house) as stub:
        call = stub.Prompt(house.prompt(session_id="s1", answers_permissions=True))
        await stub.AnswerPermission(answer(await until_asked(call), "NO", "use make"))
        await rest_of(call)
        await play(stub, house.prompt(session_id="s1"))
        told = (await stub.GetStats(pb.GetStatsRequest(session_id="s1"))).permissions
    assert [(one.tool, one.call, one.by, one.text) for one in told] == [
        ("act", '{"text":"a"}', "person", "use make"),
        ("act", '{"text":"a"}', "nobody", ""),
    ]
    assert all(one.answer == pb.PERMISSION_ANSWER_NO and one.reason and one.time.seconds for one in told)
