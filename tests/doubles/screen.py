"""The installed command on a terminal of its own: keys are sent to it, and what it draws is read by an emulator."""

import asyncio
import fcntl
import os
import pty
import struct
import sys
import termios
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import pyte

from doubles.emulator import Emulator
from doubles.world import World
from yarrow.client.tui.item_lines import PROMPT_SIGN as SIGN

SECONDS = 20.0
"""How long anything that is waited for may take; then the test fails and shows the screen."""
PRESS_SECONDS = 0.1
"""Between two presses of a key that is pressed again."""
MODES = {"?1000", "?1002", "?1003", "?1006", "?1015"}
"""By which programs capture the mouse."""
# Makes the terminal the controlling one, so that it hangs up when it is closed, and becomes the command.
_BEGIN = "import fcntl,os,sys,termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"

Condition = str | Callable[["Screen"], object]
"""A text that is somewhere on the screen, or whatever holds of it."""


class Screen:
    """A command on a pty; start it with `async with`. Everything waits at most `SECONDS`."""

    def __init__(
        self,
        world: World,
        *arguments: str,
        size: tuple[int, int] = (80, 24),
        env: Mapping[str, str] | None = None,
        command: Sequence[str] = (sys.executable, "-m", "yarrow"),
    ) -> None:
        self.world = world
        self.drawn = bytearray()
        """All bytes that were written to the terminal."""
        self._command = [*command, *arguments]
        self._env = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"} | dict(env or {})
        self._size = size
        self._seen = asyncio.Event()
        self._written = bytearray()
        self.emulator = Emulator(*size)
        self._stream: Any = pyte.ByteStream(self.emulator)

    async def __aenter__(self) -> Self:
        self._master, self._slave = pty.openpty()
        os.set_blocking(self._master, False)
        self._set_size()
        self.cooked = termios.tcgetattr(self._slave)
        asyncio.get_running_loop().add_reader(self._master, self._read)
        self.process: Process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-IS",
            "-c",
            _BEGIN,
            *self._command,
            cwd=self.world.project,
            env=self.world.environment | self._env,
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            start_new_session=True,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()
        self.close()
        os.close(self._slave)

    @property
    def rows(self) -> list[str]:
        """The rows of the screen."""
        return self.emulator.rows

    @property
    def text(self) -> str:
        """The screen as one text."""
        return "\n".join(self.rows)

    @property
    def whole(self) -> list[str]:
        """The scrollback, and the screen below it."""
        return [*self.emulator.scrolled_out, *self.rows]

    @property
    def cursor(self) -> tuple[int, int]:
        """Column and row of the cursor, from 0."""
        return self.emulator.cursor.x, self.emulator.cursor.y

    @property
    def editor(self) -> list[str]:
        """Text of the editor, row by row, up to an empty one."""
        rows = self.rows
        first = self._editor_row()
        rows = [rows[first].removeprefix(SIGN).removeprefix(SIGN.strip()), *rows[first + 1 :]]
        return rows[: rows.index("")] if "" in rows else rows

    @property
    def place(self) -> tuple[int, int]:
        """Column and row of the cursor, the row counted from the editor's first."""
        return self.emulator.cursor.x, self.emulator.cursor.y - self._editor_row()

    @property
    def takes_keys(self) -> bool:
        """True if keys are passed one by one and not echoed."""
        return not termios.tcgetattr(self._slave)[3] & (termios.ICANON | termios.ECHO)

    def send(self, keys: str | bytes) -> None:
        """Type; what the terminal does not take at once follows when it does."""
        self._written += keys.encode() if isinstance(keys, str) else keys
        self._write()

    def paste(self, text: str) -> None:
        """Paste like a terminal that marks pastes."""
        assert self.emulator.marks_pastes
        self.send(f"\x1b[200~{text}\x1b[201~".replace("\n", "\r"))

    def resize(self, columns: int, rows: int) -> None:
        """Resize the window. The emulator truncates lines and does not rewrap them."""
        self._size = (columns, rows)
        self._set_size()
        self.emulator.resize(rows, columns)

    async def until(self, condition: Condition, *, seconds: float = SECONDS) -> None:
        """Wait until something holds of the screen."""
        end = time.monotonic() + seconds
        while not self._holds(condition):
            left = end - time.monotonic()
            if left <= 0 or not await self._more(left):
                raise AssertionError(f"never drawn: {condition!r}\n{self.picture()}")

    async def press_until(self, keys: str, condition: Condition, *, every: float = PRESS_SECONDS) -> None:
        """Press keys until something holds: those that are dropped at first are pressed again."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            self.send(keys)
            try:
                await self.until(condition, seconds=every)
            except AssertionError:
                continue
            return
        await self.until(condition, seconds=0)

    async def ready(self) -> None:
        """Wait until it can be typed into."""
        await self.until(lambda screen: screen.emulator.marks_pastes and any(map(is_editor, screen.rows)))

    async def ended(self, *, seconds: float = SECONDS) -> int:
        """Wait until the command ended and return its exit code."""
        await asyncio.wait_for(self.process.wait(), seconds)
        self._read()
        assert self.process.returncode is not None
        return self.process.returncode

    def close(self) -> None:
        """Close the terminal, as a window is closed."""
        if self._master >= 0:
            asyncio.get_running_loop().remove_reader(self._master)
            asyncio.get_running_loop().remove_writer(self._master)
            os.close(self._master)
            self._master = -1

    def left_behind(self) -> list[str]:
        """Terminal settings that differ from those before the command started."""
        emulator, found = self.emulator, list[str]()
        if not emulator.shows_cursor:
            found.append("the cursor is hidden")
        if emulator.marks_pastes:
            found.append("pastes are marked")
        if emulator.is_alternate:
            found.append("the alternate screen is shown")
        if termios.tcgetattr(self._slave) != self.cooked:
            found.append("the line is not cooked")
        if self.drawn.rfind(b"\x1b[?2026h") > self.drawn.rfind(b"\x1b[?2026l"):
            found.append("a frame is not ended")
        found += [f"the mouse is captured: {mode}" for mode in MODES if f"\x1b[{mode}h".encode() in self.drawn]
        return found

    def picture(self) -> str:
        """The screen in a frame, for the message of a failed test."""
        width = self._size[0]
        rows = "\n".join(f"|{row:<{width}}|" for row in self.rows)
        return f"{rows}\ncursor {self.cursor}, exit code {self.process.returncode}"

    def _editor_row(self) -> int:
        return max((row for row, text in enumerate(self.rows) if is_editor(text)), default=0)

    def _holds(self, condition: Condition) -> bool:
        return condition in self.text if isinstance(condition, str) else bool(condition(self))

    async def _more(self, seconds: float) -> bool:
        self._seen.clear()
        try:
            await asyncio.wait_for(self._seen.wait(), seconds)
        except TimeoutError:
            return False
        return True

    def _read(self) -> None:
        if self._master < 0:
            return
        try:
            while data := os.read(self._master, 1 << 16):
                self.drawn += data
                self._stream.feed(data)
        except OSError:
            # Nothing more for now, or the other end is closed.
            pass
        self._seen.set()

    def _write(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._written:
                del self._written[: os.write(self._master, self._written[:4096])]
        except BlockingIOError:
            loop.add_writer(self._master, self._write)
        else:
            loop.remove_writer(self._master)

    def _set_size(self) -> None:
        columns, rows = self._size
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def is_editor(row: str) -> bool:
    """True if a row is the first of the editor."""
    return row.startswith((SIGN.strip(), ">"))
