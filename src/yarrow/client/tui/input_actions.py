"""Actions on the input: attach images, edit the text in the user's own editor, suspend the program."""

import asyncio
import os
import shlex
import signal
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp

from yarrow.client.clipboard import ClipboardError, read_image
from yarrow.client.slash_command import CommandError
from yarrow.client.tui.conversation_items import NoteKind
from yarrow.client.tui.editor.attachments import (
    MAX_IMAGE_BYTES,
    ImageAttachments,
    find_mentioned_images,
    find_pasted_images,
    make_image,
)
from yarrow.client.tui.editor.editor import Editor
from yarrow.client.tui.keyboard import NO_SHELL_NOTICE, has_shell, stop_process
from yarrow.client.tui.live_screen import Screen
from yarrow.client.tui.view_state import ViewState
from yarrow.platform import system
from yarrow.platform.search_path import find_program
from yarrow.v1 import agent_pb2 as pb

RUN_CONTINUES = "The run continues in the service"
RUN_PAUSED = "The run is suspended; fg resumes it"
MAX_END_SECONDS = 1.0
"""Grace period in seconds for a terminated editor to restore the terminal, before it is killed."""


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


class EditorError(Exception):
    """The editor could not be run, or failed; the message says why and what to set."""


async def edit_text(text: str, environment: Mapping[str, str], terminal: int | None = None) -> str:
    """Return the text as edited by the user. Raises `EditorError`; the text is unchanged then.

    `terminal` is the descriptor that the editor draws on; None for that of this process.
    """
    named = environment.get("VISUAL") or environment.get("EDITOR") or system.DEFAULT_EDITOR
    descriptor, name = mkstemp(prefix="yarrow-", suffix=".md")
    path = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        # Split without a shell, so that nothing in a name is executed.
        program, *options = shlex.split(named)
        found = find_program(program, environment)
        if found is None:
            # Imported here because only an error needs it.
            import shutil

            is_planted = shutil.which(program, path=environment.get("PATH"))
            place = "is inside the workspace and is not run" if is_planted else "was not found"
            raise EditorError(f"the editor {program!r} {place}: set VISUAL or EDITOR")
        process = await asyncio.create_subprocess_exec(found, *options, name, stdout=terminal, stderr=terminal)
        try:
            code = await process.wait()
        finally:
            if process.returncode is None:
                await _terminate(process)
        if code:
            raise EditorError(f"{named} exited with code {code}; the text is unchanged")
        return path.read_text("utf-8", "replace").removesuffix("\n")
    except (OSError, ValueError) as error:
        raise EditorError(f"{named!r} cannot be run ({error}): set VISUAL or EDITOR") from None
    finally:
        with suppress(OSError):
            path.unlink()


async def _terminate(process: Process) -> None:
    """Terminate an editor and its descendants with the program; otherwise they keep reading from the terminal."""
    pids = [process.pid, *_find_descendants(process.pid)]
    _signal(pids, signal.SIGTERM)
    ended = asyncio.ensure_future(process.wait())
    late = asyncio.get_running_loop().call_later(MAX_END_SECONDS, _signal, pids, system.KILL_SIGNAL)
    while not ended.done():
        # Another cancellation does not speed this up: it takes at most a second.
        with suppress(asyncio.CancelledError):
            await asyncio.shield(ended)
    late.cancel()
    _signal(pids[1:], system.KILL_SIGNAL)


def _signal(pids: Sequence[int], number: signal.Signals) -> None:
    for one in pids:
        with suppress(OSError):
            os.kill(one, number)


def _find_descendants(pid: int) -> list[int]:
    """Return the descendants of a process, where the system lists them."""
    try:
        children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [*children, *(one for child in children for one in _find_descendants(child))]
