"""Content of the session file of format version 1 as values: every kind of line, block and field."""

import hashlib
from pathlib import Path

from yarrow.config.settings import CompactionSettings, PermissionMode
from yarrow.message import Image, Message, Opaque, Role, StopReason, Text, Thinking, ThinkingLevel, ToolCall, Usage
from yarrow.session.record import (
    Change,
    Compaction,
    Header,
    PermissionAnswered,
    PermissionAsked,
    Queued,
    Record,
    Undelivered,
)

FOLDER = Path(__file__).parents[1] / "fixtures" / "sessions"
LONG = "the same line again\n" * 4000
"""A tool's output that lies in a file of its own."""
PICTURE = "iVBORw0KGgo" + "A" * 90_001
LARGE = CompactionSettings(enabled=False, reserve_tokens=1, keep_recent_tokens=2, model="small")
HEADER = Header(
    id="kept",
    parent_id="parent",
    parent_message_index=3,
    forked_from="forked",
    rebased_from="rebased",
    merged_from="merged",
    imported_from="imported",
    cwd="/t/ä 🌍",
    name="a name",
    provider="p",
    model="m",
    thinking=ThinkingLevel.XHIGH,
    system_prompt="You are.",
    tools=("read", "bash"),
    compaction=LARGE,
    dry_run=True,
    permissions=PermissionMode.PLAN,
    created_at="2026-11-28T00:00:00.000Z",
    updated_at="2026-11-28T00:00:00.001Z",
)
USAGE = Usage(1, 2, 3, 4, 5)
RECORDS: list[Record] = [
    Message(
        id="m1",
        role=Role.USER,
        content=(Text("look\u2028at", opaque='{"a":1}'), Image("image/png", PICTURE)),
        timestamp="2026-11-28T00:00:01.000Z",
        typed="/look",
    ),
    Message(
        id="m2",
        role=Role.ASSISTANT,
        content=(
            Thinking("hm", opaque='{"signature":"s"}'),
            Text("I look."),
            ToolCall("c1", "read", '{"path":"a"}', opaque='"o"'),
            ToolCall("c2", "read", "{}", invalid_arguments="{bad"),
            Opaque('{"type":"redacted"}'),
        ),
        timestamp="2026-11-28T00:00:02.000Z",
        usage=USAGE,
        stop_reason=StopReason.TOOL_USE,
        provider="p",
        model="m",
    ),
    PermissionAsked(
        id="q1", timestamp="2026-11-28T00:00:03.000Z", tool_call_id="c1", tool="read", reason="outside the workspace"
    ),
    PermissionAnswered(id="q1", timestamp="2026-11-28T00:00:04.000Z", answer="no", by="person", text="not that one"),
    Message(
        id="m3",
        role=Role.TOOL,
        content=(Text(LONG),),
        timestamp="2026-11-28T00:00:05.000Z",
        tool_call_id="c1",
        tool_name="read",
        is_error=True,
        diff="-a\n+b\n",
    ),
    Message(
        id="m4",
        role=Role.ASSISTANT,
        content=(Text("cut"),),
        timestamp="2026-11-28T00:00:06.000Z",
        incomplete=True,
    ),
    Queued(id="m5", timestamp="2026-11-28T00:00:07.000Z", mode="steer", content=(Text("wait"),), typed="/wait"),
    Undelivered(id="m5", timestamp="2026-11-28T00:00:08.000Z"),
    Change(
        timestamp="2026-11-28T00:00:09.000Z",
        provider="p2",
        model="m2",
        thinking=ThinkingLevel.LOW,
        name="another",
        system_prompt="You were.",
        tools=None,
        compaction=CompactionSettings(),
        dry_run=False,
        permissions=PermissionMode.ASK,
    ),
    Compaction(
        timestamp="2026-11-28T00:00:10.000Z",
        summary="<!-- yarrow-summary -->\nThey looked.",
        first_kept_message_id="m4",
        tokens_before=900,
        tokens_after=90,
        reason="manual",
        read_files=("a",),
        modified_files=("b",),
        split_turn=True,
        model="small",
        usage=USAGE,
    ),
]


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
