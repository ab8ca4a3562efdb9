"""Speaks with the service about one session: follows its events, also after a cut, and passes on what is typed."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from grpc import StatusCode, aio
from msgspec import Struct

from yarrow.client.message_history import read_messages_after
from yarrow.client.permission_texts import PermissionReply
from yarrow.client.reconnection import retry_while_lost
from yarrow.client.session_setup import session_exists
from yarrow.client.stream_cursor import make_synthetic_end
from yarrow.client.stub import Stub
from yarrow.client.tui.history import SessionHistory, make_history
from yarrow.v1 import agent_pb2 as pb

RECONNECT_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
"""How long is waited before each try to follow a session again; the last one goes on for ever."""


class OpenSession(Struct, frozen=True):
    """A session as it is when it is opened."""

    state: pb.GetStateResponse
    history: SessionHistory


class SessionListener(Struct, frozen=True):
    """Who is told."""

    on_events: Callable[[Sequence[pb.AgentEvent]], None]
    on_connection: Callable[[str], None]
    """Told a sentence while the service cannot be reached, and an empty text when it can again."""
    on_end: Callable[[asyncio.Task[None]], None]
    """Given what followed the events when that ends, so that a bug in it is heard of."""


class SessionClient:
    """One session of the service at a time. Calls raise `aio.AioRpcError` when the service refuses."""

    def __init__(self, stub: Stub, listener: SessionListener) -> None:
        self.stub = stub
        self.session_id = ""
        self.settings = pb.SessionSettings()
        """How the session was set when that was last asked."""
        self._queued: list[str] = []
        """What this client gave to the run that goes on."""
        self._listener = listener
        self._follow_task: asyncio.Task[None] | None = None

    async def open_session(self, session_id: str) -> OpenSession:
        """Turn to a session and follow it from now on; a run that is going on is told from its beginning."""
        await self.close()
        fetch_state = await self.stub.GetState(pb.GetStateRequest(session_id=session_id))
        messages = [one async for one in read_messages_after(self.stub, session_id, "")]
        self.session_id = session_id
        self.settings = fetch_state.settings
        self._queued = []
        # A run that goes on is replayed from its beginning, and `fold` lets go of what it recorded already.
        at = _StreamPosition(0 if fetch_state.run_id else fetch_state.sequence, fetch_state.epoch)
        self._follow_task = asyncio.create_task(self._follow(session_id, at), name=f"events of {session_id}")
        self._follow_task.add_done_callback(self._listener.on_end)
        return OpenSession(fetch_state, make_history(messages))

    async def close(self) -> None:
        """Follow nothing any more."""
        if self._follow_task is not None:
            self._follow_task.cancel()
            await asyncio.wait([self._follow_task])
            self._follow_task = None

    async def send_prompt(self, request: pb.PromptRequest) -> None:
        """Send a prompt; returns when it is accepted. Its events come with all the others."""
        request.session_id = self.session_id
        call = self.stub.Prompt(request)
        try:
            # The first event says that it is on disk; the run does not end with this call.
            async for _ in call:
                return
        finally:
            call.cancel()

    async def queue_text(self, text: str, images: Sequence[pb.Image], *, follow_up: bool) -> None:
        """Give a text to the run: now, or for when it would end."""
        self._queued.append(text)
        if follow_up:
            await self.stub.FollowUp(pb.FollowUpRequest(session_id=self.session_id, text=text, images=images))
        else:
            await self.stub.Steer(pb.SteerRequest(session_id=self.session_id, text=text, images=images))

    def find_undelivered(self, events: Sequence[pb.AgentEvent]) -> str:
        """Return what this client gave to a run that ends with these events, and the run did not take."""
        texts: list[str] = []
        for event in events:
            if event.HasField("agent_end"):
                left = [one.typed or one.text for one in event.agent_end.undelivered]
                texts += [text for text in self._queued if text in left]
                self._queued = []
        return "\n".join(texts)

    async def abort(self) -> None:
        """End the run; nothing is said when there is none."""
        with suppress(aio.AioRpcError):
            await self.stub.Abort(pb.AbortRequest(session_id=self.session_id))

    async def state(self) -> pb.GetStateResponse:
        """Return what the agent is doing."""
        state = await self.stub.GetState(pb.GetStateRequest(session_id=self.session_id))
        self.settings = state.settings
        return state

    async def session_exists(self) -> bool:
        """Whether the session is there still, which somebody may have deleted."""
        return await session_exists(self.stub, self.session_id)

    async def answer(self, request_id: str, reply: PermissionReply) -> None:
        """Answer a request for permission."""
        request = pb.AnswerPermissionRequest(
            session_id=self.session_id, request_id=request_id, answer=reply.answer, text=reply.text
        )
        # A connection that is cut loses no answer: the same one again is no failure.
        await retry_while_lost(partial(self.stub.AnswerPermission, request))

    async def run_tool(self, request: pb.RunToolRequest) -> None:
        """Run a tool for the person and return when it is done; its events come with all the others."""
        async for _ in self.stub.RunTool(request):
            pass

    async def _follow(self, session_id: str, at: "_StreamPosition") -> None:
        tries = 0
        while True:
            try:
                if tries:
                    at = await self._reconnect(session_id, at)
                async for response in self.stub.StreamEvents(at.make_request(session_id)):
                    tries = 0
                    events = [response.event, *response.more]
                    at = at.advance(response.epoch, events)
                    self._listener.on_events(events)
                # The service let go of the session, as it does of one that is idle for long.
                await self.stub.GetState(pb.GetStateRequest(session_id=session_id))
            except aio.AioRpcError as error:
                if error.code() is StatusCode.NOT_FOUND:
                    self._listener.on_connection("the session was deleted")
                    return
                if error.code() is StatusCode.UNAUTHENTICATED:
                    self._listener.on_connection("the service has another token now; leave and attach again")
                    return
                self._listener.on_connection("the service cannot be reached; trying again")
            await asyncio.sleep(RECONNECT_SECONDS[min(tries, len(RECONNECT_SECONDS) - 1)])
            tries += 1

    async def _reconnect(self, session_id: str, at: "_StreamPosition") -> "_StreamPosition":
        """Return where to go on after a cut. A run of a service that was started again since then is over."""
        # Loads the session where it is not in memory.
        state = await self.stub.GetState(pb.GetStateRequest(session_id=session_id))
        self._listener.on_connection("")
        if state.epoch == at.epoch:
            return at
        if at.run_id:
            self._listener.on_events(make_synthetic_end(session_id, at.run_id))
        return _StreamPosition(0 if state.run_id else state.sequence, state.epoch)


class _StreamPosition(Struct, frozen=True):
    """Up to where the events of a session were told."""

    sequence: int
    epoch: str
    run_id: str = ""
    """Of the run that goes on there; empty when there is none, or when nothing of it was told yet."""

    def make_request(self, session_id: str) -> pb.StreamEventsRequest:
        """Return the request for what follows."""
        return pb.StreamEventsRequest(
            session_id=session_id,
            after_sequence=self.sequence,
            epoch=self.epoch,
            batch=True,
            answers_permissions=True,
        )

    def advance(self, epoch: str, events: Sequence[pb.AgentEvent]) -> "_StreamPosition":
        """Return the place after some events."""
        sequence, run_id = self.sequence, self.run_id
        for event in events:
            if event.HasField("gap"):
                sequence = event.gap.last_sequence
            elif event.sequence:
                sequence = event.sequence
                run_id = "" if event.HasField("agent_end") else event.run_id
        return _StreamPosition(sequence, epoch or self.epoch, run_id)
