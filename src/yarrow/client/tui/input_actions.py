"""Actions on the input: attach images, edit the text in the user's own editor, suspend the program."""

import asyncio
import os
from collections.abc import Callable

from yarrow.client.clipboard import ClipboardError, read_image
from yarrow.client.slash_command import CommandError
from yarrow.client.tui.editor.attachments import (
    MAX_IMAGE_BYTES,
    ImageAttachments,
    find_mentioned_images,
    find_pasted_images,
    make_image,
)
from yarrow.client.tui.editor.editor import Editor
from yarrow.client.tui.editor.external_editor import edit_text
from yarrow.client.tui.history import NoteKind
from yarrow.client.tui.job_control import NO_SHELL_NOTICE, has_shell, stop_process
from yarrow.client.tui.screen import Screen
from yarrow.client.tui.view_state import ViewState
from yarrow.v1 import agent_pb2 as pb

RUN_CONTINUES = "The run continues in the service"
RUN_PAUSED = "The run is suspended; fg resumes it"


class ImageInput:
    """Images of the text in the editor, if the model of the session reads images."""

    def __init__(self, view_state: ViewState, add_note: Callable[[NoteKind, str], None]) -> None:
        self.attachments = ImageAttachments()
        self._view_state = view_state
        self._add_note = add_note

    def attach_pasted(self, text: str) -> str:
        """Return the text to insert for pasted paths of images; empty for any other text."""
        found = find_pasted_images(text, self._view_state.cwd)
        if found and not self._view_state.status.has_images:
            self._add_note("notice", f"{self._model} can't read images; pasted as a file name")
            return ""
        return "".join(f"{self.attachments.add(image, name)} " for name, image in found.items())

    async def attach_clipboard(self) -> str:
        """Return the text to insert for the image in the clipboard; empty if there is none, which a note explains."""
        if not self._view_state.status.has_images:
            self._add_note("error", f"{self._model} can't read images")
            return ""
        try:
            data = await read_image(os.environ)
        except ClipboardError as error:
            self._add_note("error", str(error))
            return ""
        image = make_image(data)
        if image is None:
            self._add_note("notice", "No image in the clipboard")
        elif len(data) > MAX_IMAGE_BYTES:
            limit = f"at most {_to_mib(MAX_IMAGE_BYTES)}"
            self._add_note("error", f"The image in the clipboard is too large: {_to_mib(len(data))} ({limit})")
        else:
            return f"{self.attachments.add(image)} "
        return ""

    async def collect(self, text: str) -> list[pb.Image]:
        """Return the images to send with a text. Raises `CommandError` for images that cannot be sent."""
        attached = self.attachments.find_images(text)
        cwd = self._view_state.cwd
        mentioned = await asyncio.to_thread(find_mentioned_images, text, cwd) if "@" in text else {}
        if not self._view_state.status.has_images:
            if attached:
                raise CommandError(f"{self._model} can't read images: remove [image ...], or choose another model")
            if mentioned:
                self._add_note("notice", f"{self._model} can't read images; @{', @'.join(mentioned)} is sent as a name")
            return []
        images = [*attached, *mentioned.values()]
        if (size := sum(len(image.data) for image in images)) > MAX_IMAGE_BYTES:
            limit = f"at most {_to_mib(MAX_IMAGE_BYTES)} per message"
            raise CommandError(f"The images are too large: {_to_mib(size)} in total ({limit})")
        return images

    @property
    def _model(self) -> str:
        return self._view_state.status.model or "the model"


async def edit_externally(editor: Editor, screen: Screen) -> None:
    """Edit the text of the editor in the user's own editor. Raises `EditorError`; the text is unchanged then."""
    try:
        async with screen.suspend():
            text = await edit_text(editor.expanded_text, os.environ, screen.descriptor)
        editor.set_text(text)
    finally:
        screen.refresh()


async def suspend_program(screen: Screen, run_note: str) -> str:
    """Leave the terminal to the shell until it resumes the program; return a notice if that is not possible.

    `run_note` says what happens to the current run; empty if there is none.
    """
    was_stopped = False
    if has_shell():
        async with screen.suspend():
            screen.print_outside(f"{run_note}\n" if run_note else "")
            was_stopped = await stop_process()
    return "" if was_stopped else NO_SHELL_NOTICE


def _to_mib(count: int) -> str:
    return f"{count / (1 << 20):.1f} MiB"
