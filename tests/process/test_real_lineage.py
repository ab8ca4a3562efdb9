"""A merge, and a compaction inside a turn, on a real model: what is made of what it says, not what it says.

The model is the starter model behind its real server, in the child process that people get; the set-up fetched it.
"""

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from doubles import outsider
from doubles.world import World
from yarrow.message import Message, Role
from yarrow.provider.local.model_files import STARTER_FILE, list_installed, models_dir
from yarrow.session.record import Compaction
from yarrow.session.session_file_reader import StoredSession, load_session
from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceStub

if TYPE_CHECKING:
    from yarrow.v1.agent_pb2_grpc import AgentServiceAsyncStub as Stub

pytestmark = [pytest.mark.real_model, pytest.mark.timeout(400)]

SMALL_STEPS = str(Path(__file__).parents[2] / "scripts" / "small_steps.py")
PROMPT = "Use ls on the folder docs."


@pytest.fixture
def real(world: World) -> World:
    assert STARTER_FILE in list_installed(os.environ), f"make setup puts {STARTER_FILE} into {models_dir(os.environ)}"
    world.environment["XDG_CACHE_HOME"] = str(models_dir(os.environ).parents[1])
    world.configure({"provider": "local", "compaction": {"reserveTokens": 400, "keepRecentTokens": 1}})
    (world.project / "docs").mkdir()
    (world.project / "docs" / "guide.md").write_text("# Guide\n")
    return world


@contextlib.asynccontextmanager
async def served(world: World, socket: Path) -> AsyncGenerator["Stub"]:
    service = await asyncio.create_subprocess_exec(
        sys.executable, SMALL_STEPS, "serve", "--socket", str(socket),
        cwd=world.project, env=world.environment, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    assert service.stderr is not None
    assert b"listening" in await service.stderr.readline()
    try:
        async with outsider.channel(socket) as channel:
            yield AgentServiceStub(channel)
    finally:
        service.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(service.wait(), 60) == 0


async def prompted(world: World, stub: "Stub", session_id: str, text: str = PROMPT) -> None:
    request = pb.PromptRequest(session_id=session_id, text=text, cwd=str(world.project))
    events = [response.event async for response in stub.Prompt(request)]
    end = events[-1].agent_end
    # So small a model often writes on to its limit: such a run ends in an error, and its answer is kept all the same.
    assert end.reason == pb.END_REASON_COMPLETED or end.error.code == "OUTPUT_LIMIT", end


def loaded(world: World, session_id: str) -> StoredSession:
    (path,) = [path for path in world.session_files() if path.stem == session_id]
    found = load_session(path)
    assert not found.report.warnings()
    return found


def messages(found: StoredSession) -> list[Message]:
    return [stored.value for stored in found.records if isinstance(stored.value, Message)]


def check_went_on(now: list[Message], before: list[Message]) -> None:
    """Does not depend on whether so small a model calls the tool again."""
    assert now[: len(before)] == before
    new = [one.role for one in now[len(before) :]]
    assert (new[0], new[-1]) == (Role.USER, Role.ASSISTANT)
    assert now[-1].text.strip() or now[-1].tool_calls


TURN = [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]


async def test_keys_in_a_merge_are_redacted(real: World, tmp_path: Path) -> None:
    # A text of this model goes on to its limit, which is a part of the window.
    window = {"local": {"contextWindow": 1600}}
    real.configure({"provider": "local", "providers": window, "compaction": {"enabled": False}})
    async with served(real, tmp_path / "run" / "yarrow.sock") as stub:
        await prompted(real, stub, "first")
        branch = (await stub.BranchSession(pb.BranchSessionRequest(session_id="first", index=0))).session_id
        await prompted(real, stub, branch)
        for summary in (False, True):
            request = pb.MergeSessionRequest(session_id="first", other_session_id=branch, summary=summary)
            made = (await stub.MergeSession(request)).session_id
            found = loaded(real, made)
            told = messages(found)
            brought = [Role.USER] if summary else messages(loaded(real, branch))[1:]
            assert len(told) == len(TURN) + len(brought) + 2
            assert (found.header.parent_id, found.header.merged_from) == ("first", branch)
            assert told[: len(TURN)] == messages(loaded(real, "first"))
            assert [one.role for one in told[-2:]] == [Role.USER, Role.ASSISTANT]
            assert told[-1].text.strip()
            assert (told[-1].provider, told[-1].model) == ("local", STARTER_FILE)
            assert all(one.text.strip() for one in told[len(TURN) :] if one.role is Role.USER)
            await prompted(real, stub, made)
            check_went_on(messages(loaded(real, made)), told)


async def test_a_compaction_within_a_turn(real: World, tmp_path: Path) -> None:
    for number in range(120):  # a result that is worth to be summed up
        (real.project / "docs" / f"chapter-{number:03}.md").write_text("# Guide\n")
    async with served(real, tmp_path / "run" / "yarrow.sock") as stub:
        await prompted(real, stub, "long")
        assert [one.role for one in messages(loaded(real, "long"))] == TURN
        events = [response.event async for response in stub.Compact(pb.CompactRequest(session_id="long"))]
        end = events[-1].compaction_end
        assert not end.HasField("error"), end
        record = loaded(real, "long").records[-1].value
        assert isinstance(record, Compaction)
        assert record.split_turn
        assert record.first_kept_message_id == messages(loaded(real, "long"))[-1].id
        assert 0 < record.tokens_after == end.tokens_after < record.tokens_before
        assert record.summary.startswith("<!-- yarrow-summary -->\n")
        assert "Turn Prefix Summary" in record.summary
        assert record.model == STARTER_FILE
        assert record.usage is not None
        assert record.usage.output > 1
        (counted,) = (await stub.GetStats(pb.GetStatsRequest(session_id="long"))).compactions
        assert (counted.reason, counted.tokens_after) == ("manual", record.tokens_after)
        told = messages(loaded(real, "long"))
        await prompted(real, stub, "long")
        check_went_on(messages(loaded(real, "long")), told)
