"""Finds or makes the session that a prompt goes to, before it is sent."""

from collections.abc import Awaitable, Callable

from grpc import aio
from msgspec import Struct

from yarrow.client.rpc_errors import SessionNotFound, parse_rpc_error
from yarrow.client.stub import Stub
from yarrow.v1 import agent_pb2 as pb

MAX_SEARCHED_SESSIONS = 50
"""Sessions among which one is looked for in which something was said; past them the newest will do."""
SESSION_DELETED = (
    "the session was deleted elsewhere: the model knows nothing of it any more, and what is sent now begins another"
)
SESSION_NEEDED = "the session was deleted elsewhere: /new begins another, and so does a text that is sent"


class SessionInfo(Struct, frozen=True):
    """A session that is ready for a prompt."""

    session_id: str
    cwd: str
    provider: str
    model: str
    version: str
    """The service's."""
    message_count: int
    provider_reason: str = ""
    """Why this provider was chosen; empty when it was named."""
    warnings: tuple[str, ...] = ()
    """What loading the session's file had to skip."""
    dry_run: bool = False
    settings: pb.SessionSettings | None = None
    """How it is set; None is as the service does it."""


async def make_session(stub: Stub, prompt: pb.PromptRequest) -> SessionInfo:
    """Make the session that a prompt asks for: its working directory, settings, and whether it is kept."""
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
    """Make a session that is set as a prompt says, of another working directory than its own."""
    request = pb.PromptRequest()
    request.CopyFrom(prompt)
    request.cwd = cwd
    return await make_session(stub, request)


async def recreate_session(
    stub: Stub, make: Callable[[str], Awaitable[str]], cwd: str, *, settings: pb.SessionSettings
) -> str:
    """Make a session in place of one that was deleted, set as that was, and return its id.

    What held for the deleted one, such as a dry run, was meant for what is said now.
    """
    made = await make(cwd)
    await stub.ConfigureSession(pb.ConfigureSessionRequest(session_id=made, settings=settings))
    return made


async def open_session(stub: Stub, session_id: str, settings: pb.SessionSettings) -> SessionInfo:
    """Load a session and set what `settings` holds. `aio.AioRpcError` with NOT_FOUND when there is none."""
    request = pb.GetStateRequest(session_id=session_id)
    state = await stub.GetState(request)
    if settings.ByteSize():
        await stub.ConfigureSession(pb.ConfigureSessionRequest(session_id=session_id, settings=settings))
        state = await stub.GetState(request)
    return _make_info(state)


async def session_exists(stub: Stub, session_id: str) -> bool:
    """Whether a session is there still, which somebody may have deleted. A prompt to one that is not makes another."""
    try:
        await stub.GetState(pb.GetStateRequest(session_id=session_id))
    except aio.AioRpcError as error:
        if parse_rpc_error(error).reason != "SESSION_UNKNOWN":
            raise
        return False
    return True


async def find_newest_session(stub: Stub, cwd: str) -> str:
    """Return the id of the session of a working directory that changed last. Raises `SessionNotFound`.

    One in which nothing was said, such as that of a terminal UI that was opened and left, comes after all others.
    """
    request = pb.ListSessionsRequest(scope=pb.SESSION_SCOPE_PROJECT, cwd=cwd, limit=MAX_SEARCHED_SESSIONS)
    sessions = (await stub.ListSessions(request)).sessions
    if not sessions:
        raise SessionNotFound(f"there is no session of {cwd} to go on with")
    return next((one for one in sessions if one.title or one.name), sessions[0]).session_id


async def find_session(stub: Stub, word: str) -> str:
    """Return the id that a word names: a whole id, a part of four or more at either end, or a name.

    The service knows them all; it refuses with `aio.AioRpcError` what names none, or several.
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
