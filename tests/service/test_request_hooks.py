"""BeforeProviderRequest: every request to a model goes through it and says what it is for."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from doubles.hooking import hooks
from doubles.house import House, play, read, stub_of
from doubles.rig import call
from yarrow.agent.hooks import Contributions
from yarrow.config.settings import CompactionSettings
from yarrow.v1 import agent_pb2 as pb

if TYPE_CHECKING:
    from yarrow.v1.agent_pb2_grpc import AgentServiceAsyncStub as Stub

LONG = "The quick brown fox jumps over the lazy dog again and again. " * 160
NOTES = [{"text": "## Goal\nnotes"}]
Payload = dict[str, Any]


def cool(request: Payload) -> Payload:
    return request | {"temperature": 0.42}


def rename(request: Payload) -> Payload:
    return request | {"purpose": "mine", "temperature": 0.42}


def house_of(folder: Path, hook: Any, *turns: Any) -> House:
    compaction = CompactionSettings(reserve_tokens=1000, keep_recent_tokens=1500)
    return House(folder, turns, added=Contributions(hooks(BeforeProviderRequest=hook)), compaction=compaction)


async def compact(stub: "Stub", session_id: str) -> list[pb.AgentEvent]:
    return [response.event async for response in stub.Compact(pb.CompactRequest(session_id=session_id))]


async def test_case_RM_02_the_hook_sees_requests_of_every_purpose(tmp_path: Path) -> None:
    seen: list[str] = []

    def watch(request: Payload) -> Payload:
        seen.append(request["purpose"])
        return cool(request)

    step = [call("echo", LONG)]
    house = house_of(tmp_path, watch, [{"text": "a"}], step, step, [{"text": "b"}], *[NOTES] * 6)
    async with stub_of(house) as stub:
        await play(stub, house.prompt(LONG, "s1"))
        await play(stub, house.prompt("go", "s1"))
        assert (await compact(stub, "s1"))[-1].HasField("compaction_end")
        await play(stub, house.prompt("other", "s2"))
        await stub.RebaseSession(pb.RebaseSessionRequest(session_id="s1", indices=[0], squash=True))
        await stub.MergeSession(pb.MergeSessionRequest(session_id="s1", other_session_id="s2", summary=True))
        requests = (await house.scripted()).requests
    assert seen == [*["turn"] * 4, "compaction", "turnPrefix", "turn", "squash", "summary", "merge"]
    assert [request.purpose for request in requests] == seen
    assert {request.temperature for request in requests} == {0.42}


async def test_a_change_of_the_purpose_is_ignored_with_a_notice(tmp_path: Path) -> None:
    house = house_of(tmp_path, rename, [call("echo", "x")], [{"text": LONG}], [{"text": "b"}], NOTES)
    async with stub_of(house) as stub:
        events = await play(stub, house.prompt(LONG, "s1"))
        await play(stub, house.prompt(LONG, "s1"))
        events += await compact(stub, "s1")
        requests = (await house.scripted()).requests
    assert [request.purpose for request in requests] == ["turn", "turn", "turn", "compaction"]
    assert {request.temperature for request in requests} == {0.42}
    notices = [event.notice.text for event in events if event.HasField("notice")]
    assert notices == ["BeforeProviderRequest hook rename changed purpose, which is read-only: ignored"] * 2


async def test_a_payload_may_omit_the_purpose(tmp_path: Path) -> None:
    def forgetful(request: Payload) -> Payload:
        del request["purpose"]
        return cool(request)

    house = house_of(tmp_path, forgetful, [{"text": "a"}], [{"text": "b"}], NOTES)
    async with stub_of(house) as stub:
        for _ in range(2):
            await play(stub, house.prompt(LONG, "s1"))
        events = await compact(stub, "s1")
        requests = (await house.scripted()).requests
    assert not any(event.HasField("notice") for event in events)
    assert [request.purpose for request in requests] == ["turn", "turn", "compaction"]


async def test_each_attempt_at_a_summary_goes_through_the_hook(tmp_path: Path) -> None:
    failed = [{"error": {"code": "SERVER_ERROR", "message": "boom", "retryable": True}}]
    house = house_of(tmp_path, cool, [{"text": "a"}], [{"text": "b"}], failed, NOTES)
    async with stub_of(house) as stub:
        for _ in range(2):
            await play(stub, house.prompt(LONG, "s1"))
        assert not (await compact(stub, "s1"))[-1].compaction_end.HasField("error")
        requests = (await house.scripted()).requests
    assert [request.temperature for request in requests] == [0.42] * 4


async def test_a_failed_hook_of_a_merge_is_an_event_of_its_session(tmp_path: Path) -> None:
    def broken(request: Payload) -> Payload:
        if request["purpose"] == "merge":
            raise ValueError("no")
        return request

    house = house_of(tmp_path, broken, [{"text": "a"}], [{"text": "b"}], NOTES)
    async with stub_of(house) as stub:
        for session_id in ("s1", "s2"):
            await play(stub, house.prompt("go", session_id))
        await stub.MergeSession(pb.MergeSessionRequest(session_id="s1", other_session_id="s2"))
        watching = stub.StreamEvents(pb.StreamEventsRequest(session_id="s1", after_sequence=0))
        while not (event := (await read(watching)).event).HasField("notice"):
            pass
        watching.cancel()
        assert len((await house.scripted()).requests) == 3
    assert event.notice.code == "HOOK_FAILED"
