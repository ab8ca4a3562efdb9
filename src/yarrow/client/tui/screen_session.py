"""Open session of the terminal UI, as a conversation uses it: prompts, shell commands, change of the session."""

from collections.abc import Callable

from grpc import aio

from yarrow.client.front_end import InputLine, SessionChange
from yarrow.client.rpc_errors import parse_rpc_error
from yarrow.client.slash_command import CommandError
from yarrow.client.tui.input_actions import ImageInput
from yarrow.client.tui.session_client import OpenSession, SessionClient
from yarrow.client.tui.view_state import ViewState
from yarrow.v1 import agent_pb2 as pb


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
