"""The command in tmux, which rewraps lines when a window becomes narrower and keeps the scrollback."""

import asyncio
import shlex
import subprocess
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Self

from doubles.screen import SECONDS, is_editor
from doubles.world import World

LOOK_SECONDS = 0.03
"""Seconds between two polls: tmux does not report that a pane changed."""

Condition = str | Callable[[list[str]], object]
"""A text that is somewhere on the screen, or whatever holds of its rows."""


class Tmux:
    """A tmux server of its own with one window; start it with `async with`."""

    def __init__(
        self,
        world: World,
        *arguments: str,
        size: tuple[int, int] = (80, 24),
        term: str = "tmux-256color",
        env: Mapping[str, str] | None = None,
    ) -> None:
        """`env` is for the command alone."""
        self._world = world
        self._size = size
        self._term = term
        more = [f"{name}={value}" for name, value in (env or {}).items()]
        self._command = shlex.join(["env", *more, sys.executable, "-m", "yarrow", *arguments])
        self._socket = str(world.home / "tmux")

    async def __aenter__(self) -> Self:
        settings = self._world.home / "tmux.conf"
        settings.write_text(
            f"set -g default-terminal {self._term}\nset -g history-limit 100000\nset -g remain-on-exit on\n"
            "set -g status off\nset -sg escape-time 0\nset -s set-clipboard on\n"
        )
        columns, rows = map(str, self._size)
        await self._tmux("-f", str(settings), "new-session", "-d", "-x", columns, "-y", rows, self._command)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self._tmux("kill-server")

    async def rows(self) -> list[str]:
        """The rows of the screen."""
        return (await self._tmux("capture-pane", "-p")).split("\n")[:-1]

    async def whole(self) -> list[str]:
        """The scrollback, and the screen below it."""
        return (await self._tmux("capture-pane", "-p", "-S", "-")).split("\n")[:-1]

    async def told(self, form: str) -> str:
        """A tmux format expanded for the pane, such as `#{alternate_on}`."""
        return (await self._tmux("display-message", "-p", form)).rstrip("\n")

    async def keys(self, *names: str) -> None:
        """Press keys, by tmux's names."""
        await self._tmux("send-keys", *names)

    async def type(self, text: str) -> None:
        """Type characters."""
        await self._tmux("send-keys", "-l", "--", text)

    async def paste(self, text: str) -> None:
        """Paste a text, marked when the command asked for that."""
        path = self._world.home / "pasted"
        path.write_text(text)
        await self._tmux("load-buffer", "-b", "one", str(path))
        await self._tmux("paste-buffer", "-p", "-b", "one")

    async def buffer(self) -> str:
        """The last copied text."""
        return await self._tmux("show-buffer")

    async def resize(self, columns: int, rows: int) -> None:
        """Make the window another size."""
        await self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    async def until(self, condition: Condition) -> list[str]:
        """Wait until something holds of the screen and return its rows."""
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            rows = await self.rows()
            if condition in "\n".join(rows) if isinstance(condition, str) else condition(rows):
                return rows
            await asyncio.sleep(LOOK_SECONDS)
        raise AssertionError(f"never drawn: {condition!r}\n" + "\n".join(await self.whole()))

    async def ready(self) -> None:
        """Wait until it can be typed into."""
        await self.until(lambda rows: any(map(is_editor, rows)))

    async def _tmux(self, *arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            "tmux",
            "-S",
            self._socket,
            *arguments,
            cwd=self._world.project,
            env=self._world.environment | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode == 0, err.decode()
        return out.decode()
