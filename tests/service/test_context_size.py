"""The size of a context that a new process shows before its first run."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from doubles.house import House, play, stub_of
from yarrow.config.settings import CompactionSettings
from yarrow.service.servicer import Servicer
from yarrow.v1 import agent_pb2 as pb

if TYPE_CHECKING:
    from yarrow.v1.agent_pb2_grpc import AgentServiceAsyncStub as Stub

LONG = "The quick brown fox jumps over the lazy dog again and again. " * 160
"""About 2,000 tokens."""
STARTS = count(1_700_000_000, 1_000_000)
"""Start times of the processes; each is later than the last one."""


def answer(tokens: int, text: str = "fine") -> list[dict[str, Any]]:
    return [{"text": text}, {"usage": {"input": tokens, "output": 10}}]


@asynccontextmanager
async def service(folder: Path, *turns: Any) -> AsyncGenerator[tuple[House, "Stub"]]:
    """A process with the sessions of the folder."""
    compaction = CompactionSettings(reserve_tokens=1000, keep_recent_tokens=1500)
    house = House(folder, turns, compaction=compaction)
    times = count(next(STARTS))
    house.servicer = Servicer(replace(house.parts, now=lambda: float(next(times))))
    async with stub_of(house) as stub:
        yield house, stub


async def shown(stub: "Stub", session_id: str) -> int:
    """The size in GetState, which must equal the one in GetStats."""
    # GetMessages loads the session; nothing runs.
    await stub.GetMessages(pb.GetMessagesRequest(session_id=session_id))
    state = await stub.GetState(pb.GetStateRequest(session_id=session_id))
    stats = await stub.GetStats(pb.GetStatsRequest(session_id=session_id))
    assert state.context_tokens == stats.context_tokens
    return state.context_tokens


async def compacted(stub: "Stub", session_id: str) -> int:
    events = [one.event async for one in stub.Compact(pb.CompactRequest(session_id=session_id))]
    return events[-1].compaction_end.tokens_after


async def test_case_RM_06_a_compaction_of_another_process_counts(tmp_path: Path) -> None:
    async with service(tmp_path, answer(2_100), answer(4_200), answer(5, "## Goal\nnotes")) as (house, stub):
        for _ in range(2):
            await play(stub, house.prompt(LONG, "s1"))
        after = await compacted(stub, "s1")
    async with service(tmp_path) as (_, stub):
        assert await shown(stub, "s1") == after < 4_200


async def test_an_answer_after_the_compaction_counts(tmp_path: Path) -> None:
    turns = answer(2_100), answer(4_200), answer(5, "## Goal\nnotes"), answer(2_300)
    async with service(tmp_path, *turns) as (house, stub):
        for _ in range(2):
            await play(stub, house.prompt(LONG, "s1"))
        await compacted(stub, "s1")
        await play(stub, house.prompt("go", "s1"))
    async with service(tmp_path) as (_, stub):
        assert await shown(stub, "s1") == 2_310


async def test_an_answer_that_a_rebase_took_along_does_not_count(tmp_path: Path) -> None:
    async with service(tmp_path, answer(2_100), answer(90_000)) as (house, stub):
        for text in (LONG, "short"):
            await play(stub, house.prompt(text, "s1"))
    async with service(tmp_path) as (_, stub):
        made = await stub.RebaseSession(pb.RebaseSessionRequest(session_id="s1", indices=[2, 3]))
        fork = await stub.ForkSession(pb.ForkSessionRequest(session_id="s1"))
    async with service(tmp_path) as (_, stub):
        assert 0 < await shown(stub, made.session_id) < 2_000
        assert await shown(stub, fork.session_id) == 90_010


async def test_an_empty_session_has_no_context(tmp_path: Path) -> None:
    async with service(tmp_path) as (house, stub):
        made = await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd)))
        assert await shown(stub, made.session_id) == 0
