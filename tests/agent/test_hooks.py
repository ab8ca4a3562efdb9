"""Hooks through a whole run: what each is given, what it may change, and that a bad one costs a notice."""

import asyncio
import threading
from typing import Any

import msgspec
import pytest

from doubles.hooking import hook, hooks
from doubles.rig import Rig, call
from yarrow.agent import hooks as seam
from yarrow.agent.hooks import HookName, HookRegistry
from yarrow.event import events as ev
from yarrow.message import Role

TURNS = [[{"text": "a"}, call("echo", "one"), call("act", "two")], [{"text": "done"}]]
Payload = dict[str, Any]


def rig_with(turns: Any, with_hooks: HookRegistry, **settings: Any) -> Rig:
    rig = Rig(turns, **settings)
    rig.hooks = with_hooks
    return rig


def notices(bodies: list[ev.Body]) -> list[str]:
    return [body.text for body in bodies if isinstance(body, ev.Notice)]


async def test_hooks_are_called_at_every_point_of_a_run_in_order() -> None:
    seen: list[tuple[str, Payload, Payload]] = []

    def watch(payload: Payload, about: Payload) -> None:
        seen.append((about["hook"], payload, about))

    rig = rig_with(TURNS, hooks(**{name.value: watch for name in HookName}), dry_run=False)
    run_id = await rig.start("go")
    bodies = await rig.finish()
    assert notices(bodies) == []
    before_a_message = ["TurnStart", "ModifySystemPrompt", "BeforePrompt", "ModifyContext", "BeforeProviderRequest"]
    tools = ["BeforeToolCall", "AfterToolCall"] * 2
    assert [name for name, _, _ in seen] == [
        "ModifyInput",
        "AgentStart",
        *before_a_message,
        "AfterProviderResponse",
        *tools,
        "TurnEnd",
        *before_a_message,
        "AfterProviderResponse",
        "TurnEnd",
        "AgentEnd",
    ]
    assert {about["sessionId"] for _, _, about in seen} == {"session"}
    assert {about["runId"] for name, _, about in seen if name != "ModifyInput"} == {run_id}
    assert {about["dryRun"] for _, _, about in seen} == {False}
    given = {name: payload for name, payload, _ in seen}
    assert given["ModifyInput"] == {"text": "go", "images": [], "how": "prompt"}
    assert given["BeforeToolCall"]["call"]["arguments"] == {"text": "two"}
    assert given["BeforeToolCall"]["contained"] is False
    assert given["AfterToolCall"]["text"] == "did two"
    assert given["AfterProviderResponse"]["message"]["content"] == [{"type": "text", "text": "done"}]
    assert given["AgentEnd"]["reason"] == "COMPLETED"


async def test_a_hook_may_change_any_field_of_the_request() -> None:
    def change(request: Payload) -> Payload:
        return request | {
            "model": "n",
            "system": "other",
            "temperature": 0.1,
            "maxTokens": 7,
            "thinking": "high",
            "tools": [{"name": "echo", "description": "d", "parameters": {"type": "object"}}],
            "toolChoice": "none",
            "messages": request["messages"][:1],
            "streamOpts": {"chunkSize": 3},
        }

    rig = rig_with([[{"text": "a"}]], hooks(BeforeProviderRequest=change))
    await rig.run()
    (request,) = rig.provider.requests
    assert (request.model, request.system, request.temperature, request.max_tokens) == ("n", "other", 0.1, 7)
    assert (request.thinking, request.tool_choice, request.stream_opts.chunk_size) == ("high", "none", 3)
    assert [tool.name for tool in request.tools] == ["echo"]
    assert [message.text for message in request.messages] == ["go"]


async def test_a_tool_that_a_hook_removed_is_not_run() -> None:
    def without_act(request: Payload) -> Payload:
        return request | {"tools": [tool for tool in request["tools"] if tool["name"] != "act"]}

    rig = rig_with([[call("act", "x")], [{"text": "done"}]], hooks(BeforeProviderRequest=without_act))
    await rig.run()
    assert rig.act.ran == []
    assert "Unknown tool 'act'" in next(m.text for m in rig.messages if m.role is Role.TOOL)


async def test_hooks_run_in_order_and_each_receives_the_previous_result() -> None:
    def one(request: Payload) -> Payload:
        return request | {"system": request["system"] + "1"}

    def mutates_and_returns_nothing(request: Payload) -> None:
        request["system"] = "lost"
        request["messages"].clear()

    async def two(request: Payload) -> Payload:
        return request | {"system": request["system"] + "2"}

    rig = rig_with([[{"text": "a"}]], hooks(BeforeProviderRequest=[one, mutates_and_returns_nothing, two]))
    await rig.run()
    assert rig.provider.requests[0].system == "be good12"
    assert len(rig.provider.requests[0].messages) == 1


async def test_changed_system_prompt_note_and_context_apply_to_one_request() -> None:
    turn = 0

    def system(payload: Payload) -> Payload:
        return {"system": payload["system"] + "!"}

    def note(payload: Payload) -> Payload:
        nonlocal turn
        turn += 1
        return payload | {"note": f"note {turn}: {payload['text']}"}

    def context(payload: Payload) -> Payload:
        return {"messages": payload["messages"]}

    changing = hooks(ModifySystemPrompt=system, BeforePrompt=note, ModifyContext=context)
    rig = rig_with([[call("echo")], [{"text": "done"}]], changing)
    await rig.run()
    first, second = rig.provider.requests
    assert [first.system, second.system] == ["be good!", "be good!"]
    assert [m.text for m in first.messages] == ["go", "note 1: go"]
    assert [m.text for m in second.messages][-1] == "note 2: go"
    assert "note 1" not in str(second.messages)
    assert "note" not in str(rig.log.records)


async def test_input_is_changed_before_it_is_recorded() -> None:
    def louder(payload: Payload) -> Payload:
        return payload | {"text": payload["text"].upper() + " " + payload["how"]}

    rig = rig_with([[call("act")], [{"text": "a"}], [{"text": "b"}]], hooks(ModifyInput=louder))
    rig.act.gate = asyncio.Event()
    await rig.start("go")
    await rig.act.started.wait()
    await rig.agent.steer((ev_text("turn"),))
    await rig.agent.steer((ev_text("then"),), follow_up=True)
    rig.act.gate.set()
    await rig.finish()
    assert [m.text for m in rig.messages if m.role is Role.USER] == ["GO prompt", "TURN steer", "THEN followUp"]


async def test_input_that_a_hook_empties_stays_unchanged() -> None:
    rig = rig_with([[{"text": "a"}]], hooks(ModifyInput=lambda payload: payload | {"text": " "}))
    await rig.run("keep me")
    assert rig.messages[0].text == "keep me"


async def test_a_hook_answers_in_place_of_a_tool() -> None:
    def guard(payload: Payload) -> Payload | None:
        if payload["call"]["name"] != "act" or payload["readOnly"]:
            return None
        return payload | {"answer": {"text": "not today", "isError": True}}

    rig = rig_with(TURNS, hooks(BeforeToolCall=guard))
    bodies = await rig.run()
    assert rig.act.ran == []
    outputs = [(o.text, o.is_error) for o in bodies if isinstance(o, ev.ToolOutput)]
    assert outputs == [("one", False), ("not today", True)]


async def test_hooks_are_not_called_for_a_call_that_cannot_run() -> None:
    asked: list[Payload] = []
    rig = rig_with([[call("act", arguments="{broken")], [{"text": "done"}]], hooks(BeforeToolCall=asked.append))
    bodies = await rig.run()
    assert asked == []
    assert [o.is_error for o in bodies if isinstance(o, ev.ToolOutput)] == [True]


async def test_a_result_is_changed_before_it_is_recorded_and_stays_within_the_limits() -> None:
    def rewrite(payload: Payload) -> Payload:
        return payload | {"text": payload["text"] + "\x00 x" * 100_000, "isError": payload["call"]["name"] == "act"}

    rig = rig_with(TURNS, hooks(AfterToolCall=rewrite))
    await rig.run()
    results = [m for m in rig.messages if m.role is Role.TOOL]
    assert [m.is_error for m in results] == [False, True]
    assert all(m.text.startswith(("one", "did two")) and len(m.text) < 60_000 and "\x00" not in m.text for m in results)


# ---- hooks that misbehave ----


def raises(_payload: Payload) -> Payload:
    raise ValueError("no\x1b[31m")


BAD: dict[str, Any] = {
    "raises": raises,
    "a list": lambda _: [1],
    "a text": lambda _: "request",
    "a number": lambda _: 5,
    "too little": lambda _: {"model": "n"},
    "a wrong type": lambda payload: payload | {"temperature": "hot"},
    "a wrong message": lambda payload: payload | {"messages": [{"role": "user"}]},
    "an unknown role": lambda payload: payload | {"messages": [payload["messages"][0] | {"role": "boss"}]},
    "an unknown key": lambda payload: payload | {"max_tokens": 5},
    "an unknown level": lambda payload: payload | {"thinking": "a lot"},
    "no JSON": lambda _: object(),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_failing_hook_only_causes_a_notice(name: str) -> None:
    after: list[Payload] = []
    rig = rig_with([[{"text": "a"}]], hooks(BeforeProviderRequest=[BAD[name], after.append]))
    bodies = await rig.run()
    (said,) = notices(bodies)
    assert said.startswith("BeforeProviderRequest hook ")
    assert "was skipped" in said
    assert len(after) == 1
    assert after[0]["model"] == "m"
    assert rig.provider.requests[0].system == "be good"
    assert isinstance(bodies[-1], ev.AgentEnd)
    assert bodies[-1].reason is ev.EndReason.COMPLETED


async def test_an_unknown_key_is_reported_with_the_valid_keys() -> None:
    rig = rig_with([[{"text": "a"}]], hooks(BeforeProviderRequest=BAD["an unknown key"]))
    (said,) = notices(await rig.run())
    assert "'max_tokens'" in said
    assert "maxTokens" in said


async def test_a_slow_hook_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seam, "HOOK_SECONDS", 0.01)
    never = asyncio.Event()

    async def slow(_payload: Payload) -> None:
        await never.wait()

    rig = rig_with([[{"text": "a"}]], hooks(BeforeProviderRequest=slow))
    (said,) = notices(await rig.run())
    assert "it took more than 0.01 s" in said


async def test_a_huge_result_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seam, "MAX_RESULT", 1000)
    rig = rig_with([[{"text": "a"}]], hooks(ModifySystemPrompt=lambda _: {"system": "x" * 1000}))
    (said,) = notices(await rig.run())
    assert "the limit is 1,000" in said
    assert rig.provider.requests[0].system == "be good"


async def test_a_hook_that_always_fails_is_disabled_with_one_notice() -> None:
    called = 0

    def fails(_payload: Payload) -> None:
        nonlocal called
        called += 1
        raise ValueError("again")

    turns = [[call("echo", str(n))] for n in range(6)] + [[{"text": "done"}]]
    rig = rig_with(turns, hooks(TurnStart=fails))
    said = notices(await rig.run())
    assert called == seam.MAX_FAILURES
    assert len(said) == seam.MAX_FAILURES + 1
    assert said[-1].startswith("TurnStart hook fails is off")


async def test_a_hook_that_fails_occasionally_stays_enabled() -> None:
    called = 0

    def sometimes(_payload: Payload) -> None:
        nonlocal called
        called += 1
        if called % seam.MAX_FAILURES:
            raise ValueError("again")

    turns = [[call("echo", str(n))] for n in range(8)] + [[{"text": "done"}]]
    await rig_with(turns, hooks(TurnStart=sometimes)).run()
    assert called == 9


async def test_an_abort_while_a_hook_looks_at_a_message_answers_its_calls() -> None:
    at_message, never = asyncio.Event(), asyncio.Event()

    async def waits(_payload: Payload) -> None:
        at_message.set()
        await never.wait()

    rig = rig_with(TURNS, hooks(AfterProviderResponse=waits))
    await rig.start()
    await at_message.wait()
    rig.agent.abort()
    bodies = await rig.finish()
    assert isinstance(bodies[-1], ev.AgentEnd)
    assert bodies[-1].reason is ev.EndReason.ABORTED
    assert [m.role for m in rig.messages] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.TOOL]
    assert rig.act.ran == []


@pytest.mark.parametrize("name", ["ModifyInput", "AgentStart", "BeforeProviderRequest", "TurnStart", "BeforeToolCall"])
async def test_an_abort_in_any_hook_ends_the_run_and_the_next_prompt_works(name: str) -> None:
    inside, release = asyncio.Event(), asyncio.Event()

    async def waits(_payload: Payload) -> None:
        inside.set()
        await release.wait()

    rig = rig_with([*TURNS, [{"text": "again"}]], hooks(**{name: waits}))
    starting = asyncio.ensure_future(rig.start())
    await inside.wait()
    rig.agent.abort()
    if name == "ModifyInput":
        release.set()
    await starting
    bodies = await rig.finish()
    assert isinstance(bodies[-1], ev.AgentEnd)
    assert bodies[-1].reason is ev.EndReason.ABORTED
    release.set()
    rig.hooks = HookRegistry()
    assert isinstance((await rig.run("next"))[-1], ev.AgentEnd)


async def test_two_sessions_share_hooks_without_mixing_payloads() -> None:
    told: dict[str, list[str]] = {"a": [], "b": []}
    lock = threading.Lock()

    def watch(payload: Payload) -> None:
        with lock:
            told[payload["text"]].append(payload["text"])

    shared = hooks(AgentStart=watch)
    rigs = [rig_with([[{"text": "x"}]], shared), rig_with([[{"text": "x"}]], shared)]
    await asyncio.gather(rigs[0].run("a"), rigs[1].run("b"))
    assert told == {"a": ["a"], "b": ["b"]}


def ev_text(text: str) -> Any:
    from yarrow.message import Text

    return Text(text)


async def test_a_failing_guard_hook_refuses_the_call_every_time() -> None:
    def guard(_payload: Payload) -> None:
        raise ValueError("out of order")

    turns = [[call("act", str(number))] for number in range(seam.MAX_FAILURES + 2)] + [[{"text": "done"}]]
    failing = hooks(BeforeToolCall=guard)
    rig = rig_with(
        turns, HookRegistry({HookName.BEFORE_TOOL_CALL: [msgspec.structs.replace(hook(guard), required=True)]})
    )
    await rig.run()
    assert rig.act.ran == []
    results = [m for m in rig.messages if m.role is Role.TOOL]
    assert all(m.is_error and "the hook guard failed" in m.text for m in results)
    assert len(results) == seam.MAX_FAILURES + 2
    rig = rig_with(turns, failing)
    await rig.run()
    assert len(rig.act.ran) == seam.MAX_FAILURES + 2
