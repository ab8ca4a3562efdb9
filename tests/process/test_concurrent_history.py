"""Clients that do anything at any time to a service that is killed and started again: the files explain what they saw.

The one clock counts beginnings and answers of calls in this process; what was answered before another call began is
before it in the session's file, so each file is one order of what was said that everybody could have seen.
"""

import asyncio
import contextlib
import random
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import grpc
import pytest

from doubles import outsider
from doubles.history import History, Said
from doubles.house import reason_of
from doubles.received import check_stream
from doubles.soak import seeds
from doubles.world import World
from yarrow.session.session_file_reader import load_session
from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceStub

CLIENTS, ACTS, KILLS = 6, 40, 3
MOST_SESSIONS = 6
REFUSALS = {"BUSY", "NOT_RUNNING", "SESSION_NOT_ACTIVE", "SESSION_UNKNOWN"}
"""Possible answers to a call besides success; a killed service answers UNAVAILABLE."""
ENDED_SECONDS = 60.0


def turns(dice: random.Random) -> list[list[dict[str, Any]]]:
    """The model's answers: mostly quick, with calls, pauses, failures and silences among them."""
    kinds: list[list[dict[str, Any]]] = [
        [{"text": "Done."}],
        [{"text": "Wait"}, {"delay": 0.03}, {"text": " and see."}],
        [{"text": "Look. "}, {"call": {"name": "ls", "arguments": {}}}],
        [{"call": {"name": "ls", "arguments": {}}}, {"call": {"name": "nothing", "arguments": {}}}],
        [{"text": "Oh"}, {"error": {"code": "OVERLOADED", "message": "busy", "retryable": True}}],
        [{"error": {"code": "AUTH", "message": "no"}}],
        [],
    ]
    return [dice.choices(kinds, [4, 6, 6, 2, 1, 1, 1])[0] for _ in range(600)]


class Service:
    """A service that is killed and started again; clients wait while there is none."""

    def __init__(self, world: World, socket: Path) -> None:
        self._world = world
        self._socket = socket
        self._up = asyncio.Event()
        self._process: Process

    async def __aenter__(self) -> None:
        await self.start()

    async def __aexit__(self, *_: object) -> None:
        """Leave no service behind when something failed."""
        if self._process.returncode is None:
            await self.kill()

    async def start(self) -> None:
        self._process = await self._world.start("serve", "--socket", str(self._socket))
        assert self._process.stderr is not None
        line = await asyncio.wait_for(self._process.stderr.readline(), 30)
        assert b"listening" in line, line
        self._up.set()

    async def kill(self) -> None:
        self._up.clear()
        self._process.kill()
        await self._process.wait()

    async def end(self) -> None:
        self._process.send_signal(signal.SIGTERM)
        assert await asyncio.wait_for(self._process.wait(), 30) == 0

    @contextlib.asynccontextmanager
    async def stub(self) -> AsyncGenerator[Any]:
        """A client's own connection; a call on it ends when the service is killed."""
        await self._up.wait()
        async with outsider.channel(self._socket) as channel:
            yield AgentServiceStub(channel)


class Client:
    """One client, which does what its dice say."""

    def __init__(self, history: History, sessions: list[str], dice: random.Random, cwd: Path) -> None:
        self._history = history
        self._sessions = sessions
        self._dice = dice
        self._cwd = str(cwd)

    async def act(self, stub: Any) -> None:
        """Make one call, answered or not, and note what came of it."""
        session = self._dice.choice(self._sessions)
        kinds = [self._prompt, self._steer, self._follow_up, self._abort, self._read, self._branch, self._watch]
        act = self._dice.choices(kinds, [6, 4, 4, 1, 4, 1, 3])[0]
        try:
            await act(stub, session)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE and reason_of(error) not in REFUSALS:
                raise
            if reason_of(error) == "SESSION_NOT_ACTIVE":
                with contextlib.suppress(grpc.aio.AioRpcError):
                    await stub.GetState(pb.GetStateRequest(session_id=session))

    async def _prompt(self, stub: Any, session: str) -> None:
        said = self._history.say(session, "prompt")
        events: list[pb.AgentEvent] = []
        most = self._dice.choice([1, 5, 1000, 1000])
        call = stub.Prompt(pb.PromptRequest(session_id=session, text=said.text, cwd=self._cwd))
        try:
            async with self._noting(said):
                async for response in call:
                    if not events:
                        self._history.answer(said, "accepted", response.event.agent_start.message_id)
                    events.append(response.event)
                    if len(events) == most:
                        break  # the client goes away, the run stays
        finally:
            call.cancel()
            self._look_at(session, events)

    async def _steer(self, stub: Any, session: str) -> None:
        await self._queue(session, "steer", stub.Steer, pb.SteerRequest)

    async def _follow_up(self, stub: Any, session: str) -> None:
        await self._queue(session, "follow-up", stub.FollowUp, pb.FollowUpRequest)

    async def _queue(self, session: str, kind: str, method: Any, request: Any) -> None:
        said = self._history.say(session, kind)
        async with self._noting(said):
            response = await method(request(session_id=session, text=said.text))
            self._history.answer(said, "accepted", response.message_id)

    async def _abort(self, stub: Any, session: str) -> None:
        await stub.Abort(pb.AbortRequest(session_id=session))

    async def _read(self, stub: Any, session: str) -> None:
        began = self._history.now()
        ids = await _ids(stub, session)
        self._history.see(session, ids, began)

    async def _branch(self, stub: Any, session: str) -> None:
        began = self._history.now()
        child = (await stub.BranchSession(pb.BranchSessionRequest(session_id=session))).session_id
        answered = await _ids(stub, child)
        self._history.see(session, answered, began)
        if len(self._sessions) < MOST_SESSIONS:
            self._sessions.append(child)

    async def _watch(self, stub: Any, session: str) -> None:
        events: list[pb.AgentEvent] = []
        call = stub.StreamEvents(pb.StreamEventsRequest(session_id=session, after_sequence=0))
        try:
            async with asyncio.timeout(self._dice.uniform(0.01, 0.3)):
                async for response in call:
                    events.append(response.event)  # noqa: PERF401 (what came is kept when the call fails)
        except TimeoutError:
            call.cancel()
        finally:
            # Events dropped before the stream opened are reported by one gap in front.
            self._look_at(session, [event for event in events if event.WhichOneof("event") != "gap"])

    def _look_at(self, session: str, events: list[pb.AgentEvent]) -> None:
        check_stream(events)
        for event in events:
            back = [text.message_id for text in event.agent_end.undelivered]
            self._history.handed_back += [(session, message_id) for message_id in back]

    @contextlib.asynccontextmanager
    async def _noting(self, said: Said) -> AsyncGenerator[None]:
        """A rejection, which leaves nothing behind, differs from an answer that never arrived."""
        try:
            yield
        except grpc.aio.AioRpcError as error:
            if reason_of(error) and said.outcome == "unknown":
                self._history.answer(said, "refused")
            raise


async def _ids(stub: Any, session: str) -> list[str]:
    response = await stub.GetMessages(pb.GetMessagesRequest(session_id=session))
    assert not response.has_more
    return [message.id for message in response.messages]


@pytest.mark.parametrize("seed", seeds(4))
async def test_clients_observe_one_order_of_the_recorded_messages(world: World, tmp_path: Path, seed: int) -> None:
    dice, socket = random.Random(seed), tmp_path / "run" / "yarrow.sock"
    world.script(*turns(dice), retry={"attempts": 1, "baseDelay": 0.01})
    service, history, sessions = Service(world, socket), History(), ["a", "b"]
    acts = iter(range(CLIENTS * ACTS))
    kills = set(dice.sample(range(CLIENTS, CLIENTS * ACTS), KILLS))
    due = asyncio.Queue[None]()

    async def live(client: Client) -> None:
        while (act := next(acts, None)) is not None:
            if act in kills:
                due.put_nowait(None)
            with contextlib.suppress(grpc.aio.UsageError):
                async with service.stub() as stub:
                    await client.act(stub)

    async def reap() -> None:
        for _ in range(KILLS):
            await due.get()
            await asyncio.sleep(dice.uniform(0, 0.05))  # anywhere in the calls, which is all that it is for
            await service.kill()
            await service.start()

    async with service:
        # One connection stays, so that gRPC keeps its thread: under a tracer on Python 3.11.2 a start may fail.
        async with outsider.channel(socket), asyncio.timeout(ENDED_SECONDS), asyncio.TaskGroup() as group:
            group.create_task(reap())
            for _ in range(CLIENTS):
                group.create_task(live(Client(history, sessions, random.Random(dice.random()), world.project)))
        async with service.stub() as stub:
            for session in sessions:
                began = history.now()
                with contextlib.suppress(grpc.aio.AioRpcError):  # possibly no client prompted it
                    history.see(session, await _ids(stub, session), began)
        await service.end()
    files = {path.stem: load_session(path) for path in world.session_files()}
    assert not [name for name, loaded in files.items() if loaded.report.skipped_count]
    for session in files.keys() & set(sessions):
        history.check(session, files[session])
    accepted = {one.kind for one in history.said if one.outcome == "accepted"}
    assert accepted == {"prompt", "steer", "follow-up"}, "the dice left something out"
