"""The real command line in a world of its own: an empty home, a project, and a provider that plays a script."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from yarrow.session.record import Record
from yarrow.session.session_file_reader import load_session

UNASKED = {"permissions": {"rules": {"bash": "auto"}}}
SECONDS = 60.0
"""How long one command may take; then the test fails."""


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Standard output as JSON lines; fails when one is not JSON."""
        return [json.loads(line) for line in self.out.splitlines()]


class World:
    """A home and a project under one folder."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.project = folder / "project"
        self.home.mkdir()
        self.project.mkdir()
        self.environment = {
            "HOME": str(self.home),
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
            "LC_ALL": "C",
            **{name: value for name, value in os.environ.items() if name.startswith("COVERAGE")},
        }

    def script(self, *turns: Sequence[Mapping[str, Any]], **more: Any) -> None:
        """Configure a scripted provider; bash runs unasked unless `permissions` says otherwise."""
        path = self.home / "script.json"
        path.write_text(json.dumps(turns))
        self.configure({"provider": "scripted", "providers": {"scripted": {"script": str(path)}}, **UNASKED} | more)

    def serve_by(self, root: str, **more: Any) -> None:
        """Configure an OpenAI-compatible provider at a loopback address."""
        provider = {"type": "openai", "baseUrl": f"{root}/v1"}
        soon = {"retry": {"baseDelay": 0.01}}
        self.configure({"provider": "mock", "model": "m", "providers": {"mock": provider}, **UNASKED, **soon} | more)

    def configure(self, settings: Mapping[str, Any]) -> None:
        folder = self.home / ".yarrow"
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(settings))

    async def start(self, *arguments: str, stdin: int | None = asyncio.subprocess.DEVNULL, **more: Any) -> Process:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "yarrow",
            *arguments,
            cwd=more.pop("cwd", self.project),
            env=self.environment | more.pop("env", {}),
            stdin=stdin,
            stdout=PIPE,
            stderr=PIPE,
            **more,
        )

    async def run(self, *arguments: str, stdin: bytes | None = None, **more: Any) -> Ended:
        process = await self.start(*arguments, stdin=PIPE if stdin is not None else asyncio.subprocess.DEVNULL, **more)
        return await self.finish(process, stdin)

    async def finish(self, process: Process, stdin: bytes | None = None) -> Ended:
        try:
            out, err = await asyncio.wait_for(process.communicate(stdin), SECONDS)
        except TimeoutError:
            process.kill()
            raise
        assert process.returncode is not None
        ended = Ended(process.returncode, out.decode(), err.decode())
        assert "Traceback" not in ended.err, ended.err
        return ended

    def session_files(self) -> list[Path]:
        return sorted((self.home / ".yarrow" / "sessions").rglob("*.jsonl"))

    def records(self) -> list[Record]:
        """The records of the one session there is."""
        (path,) = self.session_files()
        return [stored.value for stored in load_session(path).records]  # pyright: ignore[reportReturnType]
