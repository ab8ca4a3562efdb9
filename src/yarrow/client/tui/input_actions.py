"""Actions on the user's input: send it, run shell commands, edit it elsewhere, suspend; and deleted sessions."""

import asyncio
import os
from typing import TYPE_CHECKING

from grpc import aio

from yarrow.client.rpc_errors import parse_rpc_error
from yarrow.client.session_setup import SESSION_DELETED, SESSION_NEEDED, recreate_session
from yarrow.client.shell_escape import parse_bang
from yarrow.client.slash_command import CommandError
from yarrow.client.tui.clipboard import ClipboardError, read_image
from yarrow.client.tui.editor.attachments import MAX_IMAGE_BYTES, find_mentioned_images, find_pasted_images, make_image
from yarrow.client.tui.editor.external_editor import EditorError, edit_text
from yarrow.client.tui.job_control import NO_SHELL_NOTICE, has_shell, stop_process
from yarrow.v1 import agent_pb2 as pb

if TYPE_CHECKING:
    from yarrow.client.tui.app import App
    from yarrow.client.tui.command_dispatch import InputLine


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


RUN_CONTINUES = "The run continues in the service"
RUN_PAUSED = "The run is suspended; fg resumes it"


async def send_text(app: "App", line: "InputLine") -> None:
    """Send a text as a prompt, or to the current run.

    Raises `CommandError` for images that cannot be sent with it, and `aio.AioRpcError` if the service refuses.
    """
    request = pb.PromptRequest(text=line.text, images=await _collect_images(app, line.text))
    await replace_if_deleted(app, line.text)
    if not app.view_state.status.is_running and await _try_prompt(app, request):
        return
    # There is a run, perhaps one that this client or another has just started.
    try:
        await app.session_client.queue_text(line.text, request.images, follow_up=line.follow_up)
    except aio.AioRpcError as error:
        if parse_rpc_error(error).reason != "NOT_RUNNING":
            raise
        # The run has just ended, or the agent is busy with something other than a run.
        if not await _try_prompt(app, request):
            raise CommandError("Busy. Send again when it's done, or press Esc to stop it.") from None


async def _try_prompt(app: "App", request: pb.PromptRequest) -> bool:
    """Send a prompt; return False if the session is busy. Raises `aio.AioRpcError` for any other refusal."""
    try:
        await app.session_client.send_prompt(request)
    except aio.AioRpcError as error:
        if parse_rpc_error(error).reason != "BUSY":
            raise
        return False
    return True


async def run_shell(app: "App", line: str) -> None:
    """Run a command for the user, such as `!ls`; with two signs the model does not see it.

    Raises `CommandError` while the agent runs, and `aio.AioRpcError` if the service refuses.
    """
    if app.view_state.status.is_running:
        raise CommandError("Can't run a command while the agent is running. Wait, or press Esc to stop it.")
    await replace_if_deleted(app, line)
    request = parse_bang(app.session_client.session_id, line)
    app.add_command(line)
    await app.session_client.run_tool(request)


async def open_external_editor(app: "App") -> None:
    """Edit the text of the editor in the user's own editor."""
    try:
        async with app.screen.suspend():
            text = await edit_text(app.editor.expanded_text, os.environ, app.screen.descriptor)
        app.editor.set_text(text)
    except EditorError as error:
        app.add_note("error", str(error))
    app.screen.refresh()


async def suspend_app(app: "App") -> None:
    """Leave the terminal to the shell until it resumes the program."""
    was_stopped = False
    if has_shell():
        async with app.screen.suspend():
            if app.view_state.status.is_running:
                app.screen.print_outside(f"{RUN_CONTINUES if app.options.run_continues else RUN_PAUSED}\n")
            was_stopped = await stop_process()
    if not was_stopped:
        app.add_note("notice", NO_SHELL_NOTICE)
    app.redraw()


async def paste_clipboard_image(app: "App") -> None:
    """Insert the image in the clipboard into the text."""
    if not app.view_state.status.has_images:
        app.add_note("error", f"{_model_name(app)} can't read images")
        return
    try:
        data = await read_image(os.environ)
    except ClipboardError as error:
        app.add_note("error", str(error))
        return
    image = make_image(data)
    if image is None:
        app.add_note("notice", "No image in the clipboard")
    elif len(data) > MAX_IMAGE_BYTES:
        app.add_note(
            "error",
            f"The image in the clipboard is too large: {_to_mib(len(data))} (at most {_to_mib(MAX_IMAGE_BYTES)})",
        )
    else:
        app.editor.insert(app.editor.attachments.add(image) + " ")
        app.screen.refresh()


def attach_pasted_images(app: "App", text: str) -> str:
    """Return the text to insert for pasted paths of images; empty for any other text."""
    found = find_pasted_images(text, app.view_state.cwd)
    if found and not app.view_state.status.has_images:
        app.add_note("notice", f"{_model_name(app)} can't read images; pasted as a file name")
        return ""
    return "".join(f"{app.editor.attachments.add(image, name)} " for name, image in found.items())


async def _collect_images(app: "App", text: str) -> list[pb.Image]:
    attached = app.editor.attachments.find_images(text)
    mentioned = await asyncio.to_thread(find_mentioned_images, text, app.view_state.cwd) if "@" in text else {}
    if not app.view_state.status.has_images:
        if attached:
            raise CommandError(f"{_model_name(app)} can't read images: remove [image ...], or choose another model")
        if mentioned:
            app.add_note("notice", f"{_model_name(app)} can't read images; @{', @'.join(mentioned)} is sent as a name")
        return []
    images = [*attached, *mentioned.values()]
    if (size := sum(len(image.data) for image in images)) > MAX_IMAGE_BYTES:
        raise CommandError(
            f"The images are too large: {_to_mib(size)} in total (at most {_to_mib(MAX_IMAGE_BYTES)} per message)"
        )
    return images


def _model_name(app: "App") -> str:
    return app.view_state.status.model or "the model"


def _to_mib(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB"
