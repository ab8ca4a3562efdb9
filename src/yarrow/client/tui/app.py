"""The terminal UI itself: what is typed goes to the service, and what the service tells is shown."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, TypeVar

from grpc import aio
from msgspec import Struct
from prompt_toolkit.filters import Condition
from prompt_toolkit.key_binding import ConditionalKeyBindings, merge_key_bindings

from yarrow.client.by_hand import SIGN
from yarrow.client.command import Failed, WrongWords
from yarrow.client.failure import SessionNotFound
from yarrow.client.files import WrongPath
from yarrow.client.stub import Stub
from yarrow.client.tui.commands import Typed, do
from yarrow.client.tui.driver import Driver, Watcher
from yarrow.client.tui.editor.editor import Editor
from yarrow.client.tui.history import NoteKind
from yarrow.client.tui.items import PROMPT_SIGN
from yarrow.client.tui.keys import Action, bindings
from yarrow.client.tui.questions import Questions
from yarrow.client.tui.renewing import why
from yarrow.client.tui.saying import OUTLIVES, dropped, paste_picture, suspend, write_outside
from yarrow.client.tui.scene import Scene
from yarrow.client.tui.screen import Parts, Screen, Terminal
from yarrow.client.tui.sources import sources_of
from yarrow.client.tui.views.ask import Asked, Host, Question
from yarrow.client.tui.waiting import Waiting
from yarrow.v1 import agent_pb2 as pb

T = TypeVar("T")

FRAME_SECONDS = 1 / 15
"""Between two drawings of what is streamed; keys are answered at once."""
CLOCK_SECONDS = 1.0
"""Between two looks at the clock while the agent is busy."""
QUIT_SECONDS = 2.0
"""Within this time a second Ctrl+C quits."""


class Opening(Struct, frozen=True):
    """What the terminal UI begins with."""

    session_id: str
    notices: tuple[str, ...] = ()
    make: Callable[[str], Awaitable[str]] | None = None
    """Makes another session of a working directory, set as on the command line, for /new; returns its id."""
    typed_ahead: Callable[[], str] = str
    """Returns what was typed before keys were taken."""
    outlives: bool = False
    """Whether the service lives on when the terminal UI ends, and with it a run that is going on."""


class App:
    """One run of the terminal UI."""

    def __init__(self, stub: Stub, opening: Opening, terminal: Terminal) -> None:
        self.stub = stub
        self.opening = opening
        self.scene = Scene(terminal.look)
        self._terminal = terminal
        self.driver = Driver(stub, Watcher(self._take, self._connection, self._ended))
        sources = sources_of(stub, lambda: self.driver.session_id, lambda: self.scene.cwd)
        sign = PROMPT_SIGN if terminal.look.has_signs else "> "
        self.editor = Editor(sources, sign=sign, drop=partial(dropped, self))
        self._changed = asyncio.Event()
        self.question = Question(self._host())
        self._questions = Questions(self._ask, self.driver.answer, partial(self.note, "error"))
        self.waiting = Waiting(self._waits)
        self._tasks: set[asyncio.Task[None]] = set()
        self._asked_to_quit = 0.0
        self.screen = Screen(terminal, self._parts())

    async def run(self) -> str:
        """Run until it is quit; return the id of the session that was open last. Raises `aio.AioRpcError`."""
        await self.open(self.opening.session_id)
        for notice in self.opening.notices:
            self.note("notice", notice)
        try:
            await self._until_quit()
        except EOFError:
            # The terminal is gone.
            pass
        except asyncio.CancelledError:
            self._say_the_rest()
            raise
        else:
            self._say_the_rest()
        return self.driver.session_id

    async def _until_quit(self) -> None:
        """Take keys until the end; when it comes nothing of what was started goes on."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(self._failed)
        for work in (self._frames(), self._clock()):
            self.start(work)
        try:
            await self.screen.run(self.opening.typed_ahead())
        finally:
            loop.set_exception_handler(None)
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self.driver.close()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside everything else; a bug in it ends the program."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def open(self, session_id: str) -> None:
        """Turn to a session and print the end of it."""
        opened = await self.driver.open(session_id)
        self.scene.open(opened)
        self.editor.remember(self.scene.said())
        self._questions.begin(opened.state.permission_requests)
        self._changed.set()

    def note(self, kind: NoteKind, text: str) -> None:
        """Print something that the person should know."""
        self.scene.note(kind, text)
        self._changed.set()

    def submit(self, *, follow_up: bool = False) -> None:
        """Take what is written in the editor and do it."""
        if text := self.editor.take():
            self.do(Typed(text, follow_up))

    def do(self, typed: Typed) -> None:
        """Do what a line says; what goes wrong is shown."""
        self.start(self._do(typed))

    def abort(self) -> None:
        """End what is going on; with the keys at a question, leave that."""
        if self.question.back():
            return
        if self.editor.buffer.complete_state is not None:
            self.editor.buffer.complete_state = None
        elif not self.waiting.give_up() and self.scene.status.running:
            self.start(self.driver.abort())

    def clear(self) -> None:
        """Clear the editor; asked twice, quit."""
        now = time.monotonic()
        if not self.editor.text and now - self._asked_to_quit < QUIT_SECONDS:
            self.quit()
            return
        self._asked_to_quit = now
        if self.editor.text:
            self.editor.clear()
        else:
            self.note("notice", "Ctrl+C again quits" + ("; Esc aborts the run" if self.scene.status.running else ""))

    def quit(self) -> None:
        """End the program."""
        self.screen.end()

    def call(self, command: str) -> None:
        """Show a command that the person runs; what comes of it follows."""
        self.scene.call(command)
        self._changed.set()

    async def view(self, show: Callable[[Terminal], Awaitable[T]]) -> T:
        """Give the whole screen to a view, and return what comes of it."""
        async with self.screen.aside(raw=True):
            result = await show(self._terminal)
        self._changed.set()
        return result

    def _ask(self, asked: Asked | None) -> None:
        self.question.show(asked)
        self.screen.refresh()

    def _host(self) -> Host:
        return Host(
            answer=lambda answered: self.start(self._questions.give(answered)),
            enter=lambda: self.screen.focus(self.question.container),
            leave=lambda: self.screen.focus(self.editor.container),
            has_focus=lambda: self.screen.has_focus(self.question.container),
            screen_rows=lambda: self.screen.size[1],
            look=lambda: self._terminal.look,
            cwd=lambda: self.scene.cwd,
        )

    def _parts(self) -> Parts:
        """Return what the screen is made of."""
        editor, question = self.editor, self.question
        is_writing = Condition(lambda: self.screen.has_focus(editor.container))
        outside = question.keys_outside(
            is_empty=lambda: not editor.text, has_menu=lambda: editor.buffer.complete_state is not None
        )
        return Parts(
            self._status_line,
            question.container,
            lambda: question.wanted(self.screen.size[0]),
            editor.container,
            merge_key_bindings([bindings(self._actions()), ConditionalKeyBindings(editor.keys(), is_writing), outside]),
            question.key,
            question.away,
            self._terminal.look.colours,
            self.scene.background,
            self._changed.set,
        )

    async def reload_status(self) -> None:
        """Ask how the session is set and what its model can do."""
        self.scene.state(await self.driver.state())
        self.screen.refresh()

    def redraw(self) -> None:
        """Lay out everything anew: much may have happened."""
        self._changed.set()

    def fold(self, *, thinking: bool) -> None:
        """Show from now on in short what was shown whole, or the other way round."""
        self.note("notice", self.scene.fold(thinking=thinking))

    def _actions(self) -> dict[Action, Callable[[], None]]:
        return {
            "submit": self.submit,
            "follow_up": partial(self.submit, follow_up=True),
            "abort": self.abort,
            "clear": self.clear,
            "leave": self._leave,
            "think": partial(self.do, Typed("/thinking more", by_key=True)),
            "models": partial(self.do, Typed("/model", by_key=True)),
            "edit": lambda: self.start(write_outside(self)),
            "picture": lambda: self.start(paste_picture(self)),
            "outside": self._run_outside,
            "suspend": lambda: self.start(suspend(self)),
            "help": partial(self.do, Typed("/help", by_key=True)),
            "fold_output": partial(self.fold, thinking=False),
            "fold_thinking": partial(self.fold, thinking=True),
        }

    def _leave(self) -> None:
        if not self.editor.text:
            self.quit()

    def _run_outside(self) -> None:
        """Have the last command that the sandbox stopped run outside: by the model, or by a line of the user's own."""
        text = self.scene.way_out()
        if not text:
            self.note("notice", "No command to run outside the sandbox")
        elif not text.startswith(SIGN):
            self.do(Typed(text, by_key=True))
        elif not self.editor.text:
            self.editor.set_text(text)
            self.screen.refresh()

    async def _do(self, typed: Typed) -> None:
        try:
            await do(self, typed)
        except aio.AioRpcError as error:
            self._refused(typed, await why(self, error))
        except (WrongWords, WrongPath, Failed, SessionNotFound) as error:
            self._refused(typed, str(error))

    def _refused(self, typed: Typed, why: str) -> None:
        self.note("error", why)
        if not self.editor.text and not typed.by_key:
            # What was typed is not lost, and a command is not in the way of the next one.
            self.editor.set_text(typed.text, chosen=typed.text.startswith(("/", SIGN)))
        self.screen.refresh()

    def _take(self, events: Sequence[pb.AgentEvent]) -> None:
        for piece, settled in self._questions.see(events):
            self.scene.take(piece)
            if settled:
                self.note("allowed" if settled.is_allowed else "denied", settled.text)
        if (left := self.driver.handed_back(events)) and not self.editor.text:
            self.editor.set_text(left)
        self._changed.set()
        if self.scene.status.cost is not None and any(event.HasField("message_end") for event in events):
            self.start(self._reload_cost())

    def _waits(self, doing: str, since: float) -> None:
        self.scene.waits(doing, since)
        self.screen.refresh()

    async def _reload_cost(self) -> None:
        try:
            self.scene.cost(await self.driver.state())
        except aio.AioRpcError:
            # The figure stays as it was; that the service cannot be reached is told elsewhere.
            return
        self.screen.refresh()

    def _connection(self, problem: str) -> None:
        self.scene.connection(problem)
        self._changed.set()

    async def _frames(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if not self.scene.replays:
                self._draw()
            await asyncio.sleep(FRAME_SECONDS)

    async def _clock(self) -> None:
        while True:
            await asyncio.sleep(CLOCK_SECONDS)
            if self.scene.status.ticks:
                self.screen.refresh()

    def _draw(self) -> None:
        frame = self.scene.frame(*self.screen.size)
        if self.screen.show(frame.scrollback, frame.live):
            self.scene.printed(frame)
        else:
            # The terminal is somebody else's for now; what is to be printed waits.
            self._changed.set()

    def _say_the_rest(self) -> None:
        """Print what was not printed when the program ends, once; what is unfinished as it stands."""
        if self.scene.status.running:
            self.scene.note("notice", OUTLIVES if self.opening.outlives else "aborted: the run ends here")
        self.screen.leave(self.scene.rest(self.screen.size[0]))

    def _status_line(self) -> str:
        return self.scene.status_line(self.screen.size[0] - 1)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.screen.end(error)

    def _failed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Take what a key's handler raised: the terminal is restored before anybody hears of it."""
        error = context.get("exception")
        self.screen.end(error if isinstance(error, BaseException) else RuntimeError(str(context.get("message"))))
