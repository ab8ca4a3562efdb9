"""Payloads of completed actions contain no key; those that can still stop a call contain the original."""

import json
from pathlib import Path
from typing import Any

import pytest

from doubles.hooking import hooks
from doubles.house import House, play, stub_of
from doubles.rig import call
from yarrow.agent.hooks import Contributions, HookName
from yarrow.config.settings import CompactionSettings
from yarrow.v1 import agent_pb2 as pb

KEY = "sk-proj-7Q2xF9hLw4"
ENDS = [{"text": "b"}], [{"error": {"code": "AUTH", "message": f"wrong key {KEY}"}}]
BEFORE = {"BeforeToolCall", "ModifyInput"}
"""Hooks that are asked before anything is done or recorded."""


@pytest.mark.parametrize("end", ENDS)
async def test_payloads_of_hooks_are_redacted(tmp_path: Path, end: list[dict[str, Any]]) -> None:
    told: dict[str, str] = {}

    def watch(payload: dict[str, Any], about: dict[str, Any]) -> None:
        told[about["hook"]] = told.get(about["hook"], "") + json.dumps(payload)

    everywhere = Contributions(hooks(**dict.fromkeys(map(str, HookName), watch)))
    answer = [{"text": f"it is {KEY}"}, call("act", KEY)]
    summary = [{"text": f"notes: {KEY}"}]
    briefly = CompactionSettings(reserve_tokens=1000, keep_recent_tokens=1500)
    house = House(tmp_path, [answer, end, [{"text": "c"}], summary], keys=[KEY], added=everywhere, compaction=briefly)
    async with stub_of(house) as stub:
        await play(stub, house.prompt(f"{'The quick brown fox. ' * 400}{KEY}", "s1"))
        await play(stub, house.prompt("The quick brown fox. " * 400, "s1"))
        events = [
            one.event async for one in stub.Compact(pb.CompactRequest(session_id="s1", instructions=f"mind {KEY}"))
        ]
        requests = (await house.scripted()).requests
    assert KEY not in str(events)
    assert KEY not in repr(requests)
    assert "mind [redacted]" in repr(requests[-1])
    assert house.act.ran == [KEY]
    assert {name for name, payload in told.items() if KEY in payload} == BEFORE
    assert "did [redacted]" in told["AfterToolCall"]
    assert "it is [redacted]" in told["AfterProviderResponse"]
    assert ("wrong key [redacted]" in told["AgentEnd"]) == ("error" in end[0])
    assert "notes: [redacted]" in told["AfterCompact"]
