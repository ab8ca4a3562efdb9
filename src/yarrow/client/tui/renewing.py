"""Goes on in another session where somebody deleted the one that is open, and says so."""

from typing import TYPE_CHECKING

from grpc import aio

from yarrow.client.command import WrongWords
from yarrow.client.failure import refusal
from yarrow.client.session import DELETED, NEEDS_SESSION, renewed

if TYPE_CHECKING:
    from yarrow.client.tui.app import App


async def renew(app: "App", text: str) -> None:
    """Turn to another session, set as the present one was, where that was deleted; `text` is sent to it then.

    A session cannot be deleted while it runs. Raises `aio.AioRpcError`, and `WrongWords` where none can be made.
    """
    if app.scene.status.running or await app.driver.is_there():
        return
    if app.opening.make is None:
        raise WrongWords(NEEDS_SESSION)
    settings, said = app.driver.settings, (*app.scene.said(), text)
    await app.open(await renewed(app.stub, app.opening.make, app.scene.cwd, settings=settings))
    app.editor.remember(said)
    app.note("error", DELETED)


async def why(app: "App", error: aio.AioRpcError) -> str:
    """Return why a call was refused: in words of its own where the session is there no more."""
    refused = refusal(error)
    if refused.reason != "SESSION_UNKNOWN":
        return refused.message
    return f"{refused.message}; /tree lists them" if await app.driver.is_there() else NEEDS_SESSION
