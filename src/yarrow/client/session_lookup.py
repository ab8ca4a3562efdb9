"""Sessions of the service: find, create and open one, and read its messages."""

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial

from grpc import aio
from msgspec import Struct

from yarrow.client.reconnect_backoff import retry_while_lost
from yarrow.client.rpc_errors import SessionNotFound, parse_rpc_error
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb

MAX_SEARCHED_SESSIONS = 50
"""Maximum sessions searched for one that is not empty; if all of them are empty, the newest is used."""
SESSION_DELETED = (
    "This session was deleted elsewhere. Your text starts a new session; the model does not know the deleted one."
)
SESSION_NEEDED = "This session was deleted elsewhere. Send a text or run /new to start another."


class SessionInfo(Struct, frozen=True):
    """A session that is ready for a prompt."""

    session_id: str
    cwd: str
    provider: str
    model: str
    version: str
    """Version of the service."""
    message_count: int
    provider_reason: str = ""
    """Why this provider was chosen; empty if it was named."""
    warnings: tuple[str, ...] = ()
    """Warnings about parts of the session file that were skipped."""
    dry_run: bool = False
    settings: pb.SessionSettings | None = None
    """Settings of the session; None for those of the service."""


async def make_session(stub: Stub, prompt: pb.PromptRequest) -> SessionInfo:
    """Create the session that a prompt asks for: its working directory, its settings, and whether it is saved."""
    made = await stub.NewSession(
        pb.NewSessionRequest(
            session_id=prompt.session_id,
            cwd=prompt.cwd,
            settings=prompt.settings,
            ephemeral=prompt.options.ephemeral,
        )
    )
    return _make_info(await stub.GetState(pb.GetStateRequest(session_id=made.session_id)))


async def make_similar_session(stub: Stub, prompt: pb.PromptRequest, cwd: str) -> SessionInfo:
    """Create a session with the settings of a prompt but another working directory."""
    request = pb.PromptRequest()
    request.CopyFrom(prompt)
    request.cwd = cwd
    return await make_session(stub, request)


async def recreate_session(
    stub: Stub, make: Callable[[str], Awaitable[str]], cwd: str, *, settings: pb.SessionSettings
) -> str:
    """Create a session that replaces a deleted one and has its settings; return its id.

    Settings of the deleted session, such as a dry run, were meant for what is being sent now.
    """
    made = await make(cwd)
    await stub.ConfigureSession(pb.ConfigureSessionRequest(session_id=made, settings=settings))
    return made


async def open_session(stub: Stub, session_id: str, settings: pb.SessionSettings) -> SessionInfo:
    """Load a session and apply `settings`. Raises `aio.AioRpcError` with NOT_FOUND if the session does not exist."""
    request = pb.GetStateRequest(session_id=session_id)
    state = await stub.GetState(request)
    if settings.ByteSize():
        await stub.ConfigureSession(pb.ConfigureSessionRequest(session_id=session_id, settings=settings))
        state = await stub.GetState(request)
    return _make_info(state)


async def session_exists(stub: Stub, session_id: str) -> bool:
    """Return whether a session still exists: another client may have deleted it.

    A prompt to a session that does not exist creates another.
    """
    try:
        await stub.GetState(pb.GetStateRequest(session_id=session_id))
    except aio.AioRpcError as error:
        if parse_rpc_error(error).reason != "SESSION_UNKNOWN":
            raise
        return False
    return True


async def find_newest_session(stub: Stub, cwd: str) -> str:
    """Return the id of the most recently changed session of a working directory. Raises `SessionNotFound`.

    Empty sessions, such as that of a terminal UI that was opened and closed, come after all others.
    """
    request = pb.ListSessionsRequest(scope=pb.SESSION_SCOPE_PROJECT, cwd=cwd, limit=MAX_SEARCHED_SESSIONS)
    sessions = (await stub.ListSessions(request)).sessions
    if not sessions:
        raise SessionNotFound(f"no session to continue in {cwd}")
    return next((one for one in sessions if one.title or one.name), sessions[0]).session_id


async def find_session(stub: Stub, word: str) -> str:
    """Return the id that a word refers to: a full id, four or more characters from either end, or a name.

    The service resolves the word; it raises `aio.AioRpcError` if none or several sessions match.
    """
    return (await stub.GetState(pb.GetStateRequest(session_id=word))).session_id


def _make_info(state: pb.GetStateResponse) -> SessionInfo:
    return SessionInfo(
        session_id=state.session_id,
        cwd=state.cwd,
        provider=state.provider.name or state.settings.provider,
        model=state.provider.model or state.settings.model,
        version=state.version,
        message_count=state.message_count,
        provider_reason=state.provider_reason,
        warnings=tuple(state.warnings),
        dry_run=state.settings.dry_run,
        settings=state.settings,
    )


def make_tool_output(message: pb.Message, text: str) -> pb.ToolOutput:
    """Return the output that a recorded result was; `text` is the text to show for it."""
    return pb.ToolOutput(
        tool_call_id=message.tool_call_id,
        name=message.tool_name,
        text=text,
        is_error=message.is_error,
        diff=message.diff,
        message_id=message.id,
    )


def join_text(message: pb.Message) -> str:
    """Return the text of a message."""
    return "".join(block.text.text for block in message.content)


async def read_messages_after(stub: Stub, session_id: str, anchor: str, *, skip: int = 0) -> AsyncIterator[pb.Message]:
    """Yield the messages after the message `anchor` (from the first one if it is empty), without the first `skip`.

    Reconnects when the connection is lost.
    """
    more = True
    while more:
        request = pb.GetMessagesRequest(session_id=session_id, after=anchor)
        page = await retry_while_lost(partial(stub.GetMessages, request))
        for message in page.messages[skip:]:
            yield message
        skip = max(0, skip - len(page.messages))
        more = page.has_more and bool(page.messages)
        anchor = page.messages[-1].id if page.messages else anchor
