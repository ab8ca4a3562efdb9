"""Terminal UI application: sends what the user types to the service and shows the events of the service."""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from grpc import aio
from msgspec import Struct
from prompt_toolkit.filters import Condition
from prompt_toolkit.key_binding import ConditionalKeyBindings, merge_key_bindings

from yarrow.client.bang_command import BANG
from yarrow.client.clipboard import Clipboard
from yarrow.client.conversation import Conversation, LineRejected
from yarrow.client.front_end import InputLine, MakeSession, SessionChange
from yarrow.client.slash_command import ChatParts, LongOperation
from yarrow.client.stub import Stub
from yarrow.client.tui.conversation_items import NoteKind
from yarrow.client.tui.editor.completion import make_sources
from yarrow.client.tui.editor.editor import Editor
from yarrow.client.tui.input_actions import (
    RUN_CONTINUES,
    RUN_PAUSED,
    EditorError,
    ImageInput,
    edit_externally,
    suspend_program,
)
from yarrow.client.tui.item_lines import PROMPT_SIGN
from yarrow.client.tui.key_bindings import KeyAction, make_bindings
from yarrow.client.tui.live_screen import Screen, ScreenComponents, Terminal
from yarrow.client.tui.permission_queue import PermissionQueue
from yarrow.client.tui.screen_front_end import ScreenFrontEnd
from yarrow.client.tui.session_client import ScreenSession, SessionClient, SessionListener
from yarrow.client.tui.view_state import OpenSession, ViewState
from yarrow.client.tui.views.permission_question import PermissionQuestion, QuestionHost, QueuedRequest
from yarrow.v1 import agent_pb2 as pb

T = TypeVar("T")

FRAME_SECONDS = 1 / 15
"""Minimum seconds between two frames of streamed output; keys are handled at once."""
CLOCK_SECONDS = 1.0
"""Seconds between clock updates while the agent is busy."""
QUIT_SECONDS = 2.0
"""Seconds within which a second Ctrl+C quits."""


class AppOptions(Struct, frozen=True):
    """Start options of the terminal UI."""

    session_id: str
    notices: tuple[str, ...] = ()
    make_session: MakeSession | None = None
    """Creates a session for /new, with the settings of the command line."""
    take_type_ahead: Callable[[], str] = str
    """Returns what was typed before the UI started to read keys."""
    run_continues: bool = False
    """True if the service, including a current run, outlives the terminal UI."""


class App:
    """One run of the terminal UI."""

    def __init__(self, stub: Stub, options: AppOptions, terminal: Terminal) -> None:
        self._options = options
        self._view_state = ViewState(terminal.theme)
        self._terminal = terminal
        self._changed = asyncio.Event()
        self._client = SessionClient(stub, SessionListener(self._on_events, self._on_connection, self._on_task_end))
        self._images = ImageInput(self._view_state, self.add_note)
        sources = make_sources(stub, lambda: self._client.session_id, lambda: self._view_state.cwd)
        sign = PROMPT_SIGN if terminal.theme.has_signs else "> "
        self._editor = Editor(
            sources, sign=sign, attachments=self._images.attachments, on_paste=self._images.attach_pasted
        )
        self._permission_question = PermissionQuestion(self._make_question_host())
        self._permission_queue = PermissionQueue(
            self._show_question, self._client.answer, partial(self.add_note, "error")
        )
        self._tasks: set[asyncio.Task[None]] = set()
        self._quit_asked_at = 0.0
        self._operation = LongOperation(self._on_operation)
        self._screen = Screen(terminal, self._make_screen_components())
        self._session = ScreenSession(
            self._client, self._view_state, self._images, on_open=self._on_open, on_change=self._changed.set
        )
        self._conversation = Conversation(stub, self._make_chat_parts(), make_session=options.make_session)

    async def run(self) -> str:
        """Run until the user quits; return the id of the session open last. Raises `aio.AioRpcError`."""
        await self._session.open(self._options.session_id, "switched")
        for notice in self._options.notices:
            self.add_note("notice", notice)
        try:
            await self._until_quit()
        except EOFError:
            # The terminal was closed.
            pass
        except asyncio.CancelledError:
            self._print_rest()
            raise
        else:
            self._print_rest()
        return self._client.session_id

    async def _until_quit(self) -> None:
        """Handle keys until the end, then stop everything that was started."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._on_exception)
        for work in (self._draw_frames(), self._run_clock()):
            self._start_task(work)
        try:
            await self._screen.run(self._options.take_type_ahead())
        finally:
            loop.set_exception_handler(None)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._client.close()

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task in the background; a bug in it ends the program."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_end)

    def add_note(self, kind: NoteKind, text: str) -> None:
        """Print a note for the user."""
        self._view_state.add_note(kind, text)
        self._changed.set()

    def _submit(self, *, follow_up: bool = False) -> None:
        """Empty the editor and handle its text."""
        self._permission_question.explain_misplaced(self._editor.text)
        if text := self._editor.take():
            self._handle_line(InputLine(text, follow_up))

    def _handle_line(self, typed: InputLine) -> None:
        """Handle an input line; errors are shown."""
        self._start_task(self._dispatch_line(typed))

    def _abort(self) -> None:
        """Go back from a question, close the completion menu, or stop the current operation or run."""
        if self._permission_question.go_back():
            return
        if self._editor.buffer.complete_state is not None:
            self._editor.buffer.complete_state = None
        elif not self._operation.cancel() and self._view_state.status.is_running:
            self._start_task(self._client.abort())

    def _clear(self) -> None:
        """Clear the editor; if it is empty, quit on the second call within `QUIT_SECONDS`."""
        now = time.monotonic()
        if not self._editor.text and now - self._quit_asked_at < QUIT_SECONDS:
            self._quit()
            return
        self._quit_asked_at = now
        if self._editor.text:
            self._editor.clear()
        else:
            self.add_note(
                "notice",
                "Press Ctrl+C again to quit" + (", Esc to stop the run" if self._view_state.status.is_running else ""),
            )

    def _quit(self) -> None:
        """End the program."""
        self._screen.end()

    async def _show_view(self, show: Callable[[Terminal], Awaitable[T]]) -> T:
        """Give the whole screen to a view and return its result."""
        async with self._screen.suspend(raw=True):
            result = await show(self._terminal)
        self._changed.set()
        return result

    def _show_question(self, asked: QueuedRequest | None) -> None:
        self._permission_question.show(asked)
        self._screen.refresh()

    def _make_question_host(self) -> QuestionHost:
        return QuestionHost(
            answer=lambda answered: self._start_task(self._permission_queue.send_reply(answered)),
            focus_question=lambda: self._screen.focus(self._permission_question.container),
            focus_editor=lambda: self._screen.focus(self._editor.container),
            has_focus=lambda: self._screen.has_focus(self._permission_question.container),
            screen_rows=lambda: self._screen.size[1],
            theme=lambda: self._terminal.theme,
            cwd=lambda: self._view_state.cwd,
        )

    def _make_chat_parts(self) -> ChatParts:
        front_end = ScreenFrontEnd(
            self._view_state, self._show_view, on_change=self._changed.set, size=lambda: self._screen.size
        )
        return ChatParts(front_end, self._session, self._operation, Clipboard(os.environ, self._screen.copy))

    def _make_screen_components(self) -> ScreenComponents:
        editor, question = self._editor, self._permission_question
        is_writing = Condition(lambda: self._screen.has_focus(editor.container))
        outside = question.make_outside_bindings(
            is_empty=lambda: not editor.text, has_menu=lambda: editor.buffer.complete_state is not None
        )
        return ScreenComponents(
            self._status_line,
            question.container,
            lambda: question.count_rows(self._screen.size[0]),
            editor.container,
            merge_key_bindings(
                [
                    make_bindings(self._make_actions()),
                    ConditionalKeyBindings(editor.make_bindings(), is_writing),
                    outside,
                ]
            ),
            question.on_key,
            question.on_return,
            self._terminal.theme.colours,
            self._view_state.set_background,
            self._changed.set,
        )

    def _toggle_fold(self, *, thinking: bool) -> None:
        """Switch thinking, or the output of tools, between short and full display."""
        self.add_note("notice", self._view_state.toggle_fold(thinking=thinking))

    def _make_actions(self) -> dict[KeyAction, Callable[[], None]]:
        return {
            "submit": self._submit,
            "follow_up": partial(self._submit, follow_up=True),
            "abort": self._abort,
            "clear": self._clear,
            "leave": self._quit_if_empty,
            "think": partial(self._handle_line, InputLine("/thinking more", is_from_key=True)),
            "models": partial(self._handle_line, InputLine("/model", is_from_key=True)),
            "edit": lambda: self._start_task(self._edit_externally()),
            "picture": lambda: self._start_task(self._paste_image()),
            "outside": self._rerun_unsandboxed,
            "suspend": lambda: self._start_task(self._suspend()),
            "help": partial(self._handle_line, InputLine("/help", is_from_key=True)),
            "fold_output": partial(self._toggle_fold, thinking=False),
            "fold_thinking": partial(self._toggle_fold, thinking=True),
        }

    def _quit_if_empty(self) -> None:
        if not self._editor.text:
            self._quit()

    def _rerun_unsandboxed(self) -> None:
        """Rerun outside the sandbox the last command that it stopped: ask the model, or put a line into the editor."""
        text = self._view_state.find_rerun()
        if not text:
            self.add_note("notice", "No command to run outside the sandbox")
        elif not text.startswith(BANG):
            self._handle_line(InputLine(text, is_from_key=True))
        elif self._editor.text:
            self.add_note("notice", f"Send or clear your draft, then press Alt+O again: it writes {text}")
        else:
            self._editor.set_text(text)
            self._screen.refresh()

    async def _dispatch_line(self, line: InputLine) -> None:
        try:
            if not await self._conversation.handle_line(line):
                self._quit()
        except LineRejected as error:
            self._show_refusal(line, str(error))

    async def _edit_externally(self) -> None:
        try:
            await edit_externally(self._editor, self._screen)
        except EditorError as error:
            self.add_note("error", str(error))

    async def _paste_image(self) -> None:
        if text := await self._images.attach_clipboard():
            self._editor.insert(text)
            self._screen.refresh()

    async def _suspend(self) -> None:
        run_note = RUN_CONTINUES if self._options.run_continues else RUN_PAUSED
        if notice := await suspend_program(self._screen, run_note if self._view_state.status.is_running else ""):
            self.add_note("notice", notice)
        self._changed.set()

    def _show_refusal(self, typed: InputLine, why: str) -> None:
        self.add_note("error", why)
        if not self._editor.text and not typed.is_from_key:
            # The user's text is not lost; a command is selected, so that typing replaces it.
            self._editor.set_text(typed.text, chosen=typed.text.startswith(("/", BANG)))
        self._screen.refresh()

    def _on_open(self, opened: OpenSession, change: SessionChange) -> None:
        # The texts sent to a deleted session can still be sent to the one that replaces it.
        if change == "switched":
            self._editor.set_history(self._view_state.user_texts())
        self._permission_queue.reset(opened.state.permission_requests)
        self._changed.set()

    def _on_events(self, events: Sequence[pb.AgentEvent]) -> None:
        for piece, settled in self._permission_queue.process_events(events):
            self._view_state.apply_events(piece)
            if settled:
                self._view_state.add_outcome(settled)
        if (left := self._client.find_undelivered(events)) and not self._editor.text:
            self._editor.set_text(left)
        self._changed.set()
        if self._view_state.status.cost is not None and any(event.HasField("message_end") for event in events):
            self._start_task(self._reload_cost())

    def _on_operation(self, doing: str, since: float) -> None:
        self._view_state.set_operation(doing, since)
        self._screen.refresh()

    async def _reload_cost(self) -> None:
        try:
            self._view_state.set_cost(await self._client.state())
        except aio.AioRpcError:
            # The old figure stays; the event stream reports that the service is unreachable.
            return
        self._screen.refresh()

    def _on_connection(self, problem: str) -> None:
        self._view_state.set_connection(problem)
        self._changed.set()

    async def _draw_frames(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if not self._view_state.is_replaying:
                self._draw()
            await asyncio.sleep(FRAME_SECONDS)

    async def _run_clock(self) -> None:
        while True:
            await asyncio.sleep(CLOCK_SECONDS)
            if self._view_state.status.is_ticking:
                self._screen.refresh()

    def _draw(self) -> None:
        frame = self._view_state.make_frame(*self._screen.size)
        if self._screen.show(frame.scrollback, frame.live):
            self._view_state.mark_printed(frame)
        else:
            # Something else uses the terminal now; the output waits.
            self._changed.set()

    def _print_rest(self) -> None:
        """Print the remaining output when the program ends, once; unfinished items as they are."""
        if self._view_state.status.is_running:
            self._view_state.add_note("notice", RUN_CONTINUES if self._options.run_continues else "Run interrupted")
        self._screen.print_outside(self._view_state.render_rest(self._screen.size[0]))

    def _status_line(self) -> str:
        return self._view_state.format_status(self._screen.size[0] - 1)

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._screen.end(error)

    def _on_exception(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """End with the exception of a key handler: the terminal is restored before the exception is reported."""
        error = context.get("exception")
        self._screen.end(error if isinstance(error, BaseException) else RuntimeError(str(context.get("message"))))
