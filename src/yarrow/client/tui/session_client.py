"""Open session of the terminal UI: follows its events, across lost connections, and sends the user's input."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from functools import partial

from grpc import aio
from msgspec import Struct

from yarrow.client.event_stream import EventStream, StreamCursor
from yarrow.client.front_end import InputLine, SessionChange
from yarrow.client.permission_texts import PermissionReply
from yarrow.client.reconnect_backoff import ConnectionState, retry_while_lost
from yarrow.client.rpc_errors import parse_rpc_error
from yarrow.client.session_lookup import read_messages_after
from yarrow.client.slash_command import CommandError
from yarrow.client.stub import Stub
from yarrow.client.tui.conversation_items import make_history
from yarrow.client.tui.input_actions import ImageInput
from yarrow.client.tui.view_state import OpenSession, ViewState
from yarrow.v1 import agent_pb2 as pb

_PROBLEMS: dict[ConnectionState, str] = {
    "connected": "",
    "reconnecting": "the service cannot be reached; reconnecting",
    "deleted": "the session was deleted",
    "unauthenticated": "the service has a new token; quit and attach again",
}
"""Messages about the connection, by its state."""


class SessionListener(Struct, frozen=True):
    """Receiver of events and of changes of the connection."""

    on_events: Callable[[Sequence[pb.AgentEvent]], None]
    on_connection: Callable[[str], None]
    """Called with a message while the service is unreachable, and with an empty text when it is reachable again."""
    on_end: Callable[[asyncio.Task[None]], None]
    """Called with the task that followed the events when it ends, so that a bug in it is reported."""


class SessionClient:
    """Client of one session at a time. Calls raise `aio.AioRpcError` if the service refuses."""

    def __init__(self, stub: Stub, listener: SessionListener) -> None:
        self.stub = stub
        self.session_id = ""
        self.settings = pb.SessionSettings()
        """Settings of the session when they were last requested."""
        self._queued: list[str] = []
        """Texts that this client queued for the current run."""
        self._listener = listener
        self._follow_task: asyncio.Task[None] | None = None

    async def open_session(self, session_id: str) -> OpenSession:
        """Switch to a session and follow it from now on; a current run is replayed from its beginning."""
        await self.close()
        state = await self.stub.GetState(pb.GetStateRequest(session_id=session_id))
        messages = [one async for one in read_messages_after(self.stub, session_id, "")]
        self.session_id = session_id
        self.settings = state.settings
        self._queued = []
        # A current run is replayed from its beginning, and `reduce_history` drops what the session has recorded of it.
        cursor = StreamCursor.from_state(state)
        self._follow_task = asyncio.create_task(self._follow(cursor), name=f"events of {session_id}")
        self._follow_task.add_done_callback(self._listener.on_end)
        return OpenSession(state, make_history(messages))

    async def close(self) -> None:
        """Stop following the session."""
        if self._follow_task is not None:
            self._follow_task.cancel()
            await asyncio.wait([self._follow_task])
            self._follow_task = None

    async def send_prompt(self, request: pb.PromptRequest) -> None:
        """Send a prompt; return when it is accepted. Its events arrive with all others."""
        request.session_id = self.session_id
        call = self.stub.Prompt(request)
        try:
            # The first event confirms that the prompt is on disk; the run does not end with this call.
            async for _ in call:
                return
        finally:
            call.cancel()

    async def queue_text(self, text: str, images: Sequence[pb.Image], *, follow_up: bool) -> None:
        """Queue a text for the run: for now, or for its end."""
        self._queued.append(text)
        if follow_up:
            await self.stub.FollowUp(pb.FollowUpRequest(session_id=self.session_id, text=text, images=images))
        else:
            await self.stub.Steer(pb.SteerRequest(session_id=self.session_id, text=text, images=images))

    def find_undelivered(self, events: Sequence[pb.AgentEvent]) -> str:
        """Return the texts of this client that the run ending with these events did not deliver."""
        texts: list[str] = []
        for event in events:
            if event.HasField("agent_end"):
                left = [one.typed or one.text for one in event.agent_end.undelivered]
                texts += [text for text in self._queued if text in left]
                self._queued = []
        return "\n".join(texts)

    async def abort(self) -> None:
        """Abort the run; errors, such as that there is none, are ignored."""
        with suppress(aio.AioRpcError):
            await self.stub.Abort(pb.AbortRequest(session_id=self.session_id))

    async def state(self) -> pb.GetStateResponse:
        """Return the state of the session, and remember its settings."""
        state = await self.stub.GetState(pb.GetStateRequest(session_id=self.session_id))
        self.settings = state.settings
        return state

    async def answer(self, request_id: str, reply: PermissionReply) -> None:
        """Answer a permission request."""
        request = pb.AnswerPermissionRequest(
            session_id=self.session_id, request_id=request_id, answer=reply.answer, text=reply.text
        )
        # A lost connection loses no answer: sending the same one again is not an error.
        await retry_while_lost(partial(self.stub.AnswerPermission, request))

    async def run_tool(self, request: pb.RunToolRequest) -> None:
        """Run a tool for the user and return when it is done; its events arrive with all others."""
        async for _ in self.stub.RunTool(request):
            pass

    async def _follow(self, cursor: StreamCursor) -> None:
        stream = EventStream(self.stub, cursor, answers_permissions=True, is_patient=True, on_state=self._on_state)
        with suppress(aio.AioRpcError):  # the state says why the stream ended
            async with aclosing(stream.follow()) as batches:
                async for batch in batches:
                    self._listener.on_events([event for event, _ in batch])

    def _on_state(self, state: ConnectionState) -> None:
        self._listener.on_connection(_PROBLEMS[state])


class ScreenSession:
    """Session whose events are drawn as they arrive; a line does not wait for the run that it starts."""

    def __init__(
        self,
        client: SessionClient,
        view_state: ViewState,
        images: ImageInput,
        *,
        on_open: Callable[[OpenSession, SessionChange], None],
        on_change: Callable[[], None],
    ) -> None:
        """`on_open` is called once a session is open; `on_change` is called when the view must be drawn again."""
        self._client = client
        self._view_state = view_state
        self._images = images
        self._on_open = on_open
        self._on_change = on_change

    @property
    def session_id(self) -> str:
        """Id of the session."""
        return self._client.session_id

    @property
    def cwd(self) -> str:
        """Working directory of the session."""
        return self._view_state.cwd

    @property
    def settings(self) -> pb.SessionSettings:
        """Settings of the session when they were last requested."""
        return self._client.settings

    @property
    def is_running(self) -> bool:
        """True while the agent is busy."""
        return self._view_state.status.is_running

    async def open(self, session_id: str, change: SessionChange) -> None:
        """Switch to a session and print its last entries, or show its settings again."""
        if change == "configured":
            self._view_state.set_state(await self._client.state())
            self._on_change()
            return
        opened = await self._client.open_session(session_id)
        self._view_state.open_session(opened)
        self._on_open(opened, change)

    async def run(self, line: InputLine, request: pb.RunToolRequest | None) -> None:
        """Run a shell command, or send a text as a prompt or to the current run.

        Raises `CommandError` for images that cannot be sent with it, and `aio.AioRpcError` if the service refuses.
        """
        if request is None:
            await self._send_text(line)
            return
        self._view_state.add_command(line.text.rstrip())
        self._on_change()
        await self._client.run_tool(request)

    async def find_last_answer(self) -> str:
        """Return the text of the model's last message that has text, also while it is written; empty if none has."""
        return self._view_state.find_last_answer()

    async def _send_text(self, line: InputLine) -> None:
        request = pb.PromptRequest(text=line.text, images=await self._images.collect(line.text))
        if not self.is_running and await self._try_prompt(request):
            return
        # There is a run, perhaps one that this client or another has just started.
        try:
            await self._client.queue_text(line.text, request.images, follow_up=line.follow_up)
        except aio.AioRpcError as error:
            if parse_rpc_error(error).reason != "NOT_RUNNING":
                raise
            # The run has just ended, or the agent is busy with something other than a run.
            if not await self._try_prompt(request):
                raise CommandError("Busy. Send again when it's done, or press Esc to stop it.") from None

    async def _try_prompt(self, request: pb.PromptRequest) -> bool:
        """Send a prompt; return False if the session is busy. Raises `aio.AioRpcError` for any other refusal."""
        try:
            await self._client.send_prompt(request)
        except aio.AioRpcError as error:
            if parse_rpc_error(error).reason != "BUSY":
                raise
            return False
        return True
