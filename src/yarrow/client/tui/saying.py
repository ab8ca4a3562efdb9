"""Takes what a person writes, here or in an editor of their own, with its pictures, and sends or runs it."""

import asyncio
import os
from typing import TYPE_CHECKING

from grpc import aio

from yarrow.client.by_hand import request_of
from yarrow.client.command import WrongWords
from yarrow.client.failure import refusal
from yarrow.client.tui.clipboard import NoClipboard, read_image
from yarrow.client.tui.editor.external import NoEditor, edit
from yarrow.client.tui.editor.pictures import LARGEST, image_of, pasted, pictures
from yarrow.client.tui.renewing import renew
from yarrow.client.tui.suspending import NO_SHELL, has_shell, stopped
from yarrow.v1 import agent_pb2 as pb

if TYPE_CHECKING:
    from yarrow.client.tui.app import App
    from yarrow.client.tui.commands import Typed

OUTLIVES = "the run goes on in the service"
STANDS_STILL = "the run stands still until fg goes on with it"


async def say(app: "App", typed: "Typed") -> None:
    """Send a text: as a prompt, or to the run that is going on.

    Raises `WrongWords` for pictures that cannot go with it, and `aio.AioRpcError` when the service refuses.
    """
    request = pb.PromptRequest(text=typed.text, images=await _images(app, typed.text))
    await renew(app, typed.text)
    if not app.scene.status.running and await _prompted(app, request):
        return
    # A run goes on, perhaps one that began just now, by this client or another.
    try:
        await app.driver.queue(typed.text, request.images, follow_up=typed.follow_up)
    except aio.AioRpcError as error:
        if refusal(error).reason != "NOT_RUNNING":
            raise
        # It ended just now, or what goes on is no run.
        if not await _prompted(app, request):
            raise WrongWords("something else goes on: send the text when it is over, or press Esc to end it") from None


async def _prompted(app: "App", request: pb.PromptRequest) -> bool:
    """Send a prompt; return False when the session is busy. Raises `aio.AioRpcError` for all else."""
    try:
        await app.driver.prompt(request)
    except aio.AioRpcError as error:
        if refusal(error).reason != "BUSY":
            raise
        return False
    return True


async def shell(app: "App", line: str) -> None:
    """Run a command for the person, such as `!ls`; with two signs the model is not told of it.

    Raises `WrongWords` while the agent runs, and `aio.AioRpcError` when the service refuses.
    """
    if app.scene.status.running:
        raise WrongWords("the agent is running: run the command when it is over, or press Esc to end it")
    await renew(app, line)
    request = request_of(app.driver.session_id, line)
    app.call(line)
    await app.driver.run_tool(request)


async def write_outside(app: "App") -> None:
    """Write what is in the editor in the person's own."""
    try:
        async with app.screen.aside():
            text = await edit(app.editor.whole, os.environ, app.screen.descriptor)
        app.editor.set_text(text)
    except NoEditor as error:
        app.note("error", str(error))
    app.screen.refresh()


async def suspend(app: "App") -> None:
    """Give the terminal back to the shell until that goes on with the program."""
    was_stopped = False
    if has_shell():
        async with app.screen.aside():
            if app.scene.status.running:
                app.screen.leave(f"{OUTLIVES if app.opening.outlives else STANDS_STILL}\n")
            was_stopped = await stopped()
    if not was_stopped:
        app.note("notice", NO_SHELL)
    app.redraw()


async def paste_picture(app: "App") -> None:
    """Put the picture in the clipboard into the text."""
    if not app.scene.status.has_images:
        app.note("error", f"{_model(app)} takes no images")
        return
    try:
        data = await read_image(os.environ)
    except NoClipboard as error:
        app.note("error", str(error))
        return
    image = image_of(data)
    if image is None:
        app.note("notice", "there is no picture in the clipboard")
    elif len(data) > LARGEST:
        app.note("error", f"the picture in the clipboard has {_size(len(data))}: at most {_size(LARGEST)} are sent")
    else:
        app.editor.put(app.editor.attached.add(image) + " ")
        app.screen.refresh()


def dropped(app: "App", text: str) -> str:
    """Return what is put in for paths of pictures that are pasted; empty for any other text."""
    found = pasted(text, app.scene.cwd)
    if found and not app.scene.status.has_images:
        app.note("notice", f"{_model(app)} takes no images: what is pasted stays the name of a file")
        return ""
    return "".join(f"{app.editor.attached.add(image, name)} " for name, image in found.items())


async def _images(app: "App", text: str) -> list[pb.Image]:
    attached = app.editor.attached.of(text)
    mentioned = await asyncio.to_thread(pictures, text, app.scene.cwd) if "@" in text else {}
    if not app.scene.status.has_images:
        if attached:
            raise WrongWords(f"{_model(app)} takes no images: take [image ...] out, or choose another model")
        if mentioned:
            app.note("notice", f"{_model(app)} takes no images: @{', @'.join(mentioned)} is sent as a name")
        return []
    images = [*attached, *mentioned.values()]
    if (size := sum(len(image.data) for image in images)) > LARGEST:
        raise WrongWords(f"the pictures have {_size(size)} together: at most {_size(LARGEST)} go with one text")
    return images


def _model(app: "App") -> str:
    return app.scene.status.model or "the model"


def _size(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB"
