"""Replacement of an open session that another client deleted, and the messages about it."""

from typing import TYPE_CHECKING

from grpc import aio

from yarrow.client.rpc_errors import parse_rpc_error
from yarrow.client.session_setup import SESSION_DELETED, SESSION_NEEDED, recreate_session
from yarrow.client.slash_command import CommandError

if TYPE_CHECKING:
    from yarrow.client.tui.app import App


async def replace_if_deleted(app: "App", text: str) -> None:
    """Switch to a new session with the same settings if the open one was deleted; `text` is sent to it next.

    A session cannot be deleted while it runs. Raises `aio.AioRpcError`, and `CommandError` if no session can be
    created.
    """
    if app.view_state.status.is_running or await app.session_client.session_exists():
        return
    if app.options.make_session is None:
        raise CommandError(SESSION_NEEDED)
    settings, said = app.session_client.settings, (*app.view_state.user_texts(), text)
    await app.open_session(
        await recreate_session(app.stub, app.options.make_session, app.view_state.cwd, settings=settings)
    )
    app.editor.set_history(said)
    app.add_note("error", SESSION_DELETED)


async def explain_refusal(app: "App", error: aio.AioRpcError) -> str:
    """Return why a call was refused, in a message of its own if the session no longer exists."""
    refused = parse_rpc_error(error)
    if refused.reason != "SESSION_UNKNOWN":
        return refused.message
    return f"{refused.message}; /tree lists them" if await app.session_client.session_exists() else SESSION_NEEDED
