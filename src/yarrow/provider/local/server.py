"""A model server in a child process: it answers on a loopback port and ends with its parent.

The server is native code; in a process of its own, a crash costs a run and not the service.
"""

import asyncio
import os
import secrets
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from yarrow.errors import Code, ProviderError
from yarrow.provider.local.gguf import context_length
from yarrow.provider.local.models import is_starter

USUAL_CONTEXT = 8192
"""Tokens of context when nothing is configured and the model was trained for more."""
START_SECONDS = 300.0
"""How long a model may take to load."""
END_SECONDS = 2.0
"""How long the child may take to end after its input was closed, and again after SIGTERM."""
TAIL_LINES = 20
"""Last lines of the child's standard error that are kept; the older ones are dropped."""
TEMPLATE = "yarrow-tools"
"""The chat template of our own, for models that were never taught to call tools."""
_PASSED = ("PATH", "HOME", "LANG", "TMPDIR", "LD_LIBRARY_PATH", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "SYSTEMROOT")


class LocalSettings(Struct, frozen=True):
    """What is served. `chat_template` is `yarrow-tools`, the path of a file, or empty for the model's own."""

    model_path: str
    context_window: int = 0
    """In tokens; 0 takes what the model was trained for, at most `USUAL_CONTEXT`."""
    chat_template: str = ""


class Order(Struct, frozen=True):
    """What the child is told on its standard input, as one line of JSON."""

    model: str
    context: int
    template: str
    key: str


class Report(Struct, frozen=True):
    """What the child answers on its standard output, as one line of JSON."""

    address: str = ""
    error: str = ""


class LocalServer:
    """A running child. Made by `start`, ended by `close`."""

    def __init__(self, process: Process, key: str) -> None:
        self.base_url = ""
        """`http://127.0.0.1:PORT`."""
        self.key = key
        """What the server wants to be shown: other programs of this machine can reach its port too."""
        self._process = process
        self._tail: deque[bytes] = deque(maxlen=TAIL_LINES)
        self._reading = asyncio.create_task(self._read_errors())

    @classmethod
    async def start(cls, settings: LocalSettings) -> "LocalServer":
        """Start the child and return when the model is loaded. Raises `ProviderError` (PROVIDER_SETUP)."""
        trained = context_length(Path(settings.model_path))
        context = settings.context_window or min(trained or USUAL_CONTEXT, USUAL_CONTEXT)
        template = _template(settings)
        key = secrets.token_urlsafe(24)
        # -P: a folder that somebody opens must not be where Python looks for modules.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "yarrow.provider.local.child",
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd="/",
            env={name: os.environ[name] for name in _PASSED if name in os.environ},
            start_new_session=True,
        )
        server = cls(process, key)
        try:
            order = Order(settings.model_path, context, template, key)
            server.base_url = await asyncio.wait_for(server._load(order), START_SECONDS)
        except TimeoutError:
            await server.close()
            raise _failed(
                f"{settings.model_path} was not loaded after {START_SECONDS:.0f} s: try a smaller model"
            ) from None
        except BaseException:
            await server.close()
            raise
        return server

    async def close(self) -> None:
        """End the child: by closing its input, else by SIGTERM, else by SIGKILL. Without effect when it has ended."""
        process = self._process
        if process.stdin is not None:
            process.stdin.close()
        for end in (process.terminate, process.kill):
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), END_SECONDS)
                break
            with suppress(ProcessLookupError):
                end()
        await process.wait()
        await self._reading

    async def _load(self, order: Order) -> str:
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None:
            raise AssertionError("the child was started without pipes")
        with suppress(ConnectionError):  # a child that died at once says why below
            stdin.write(msgspec.json.encode(order) + b"\n")
            await stdin.drain()
        line = await stdout.readline()
        if not line:
            await self._process.wait()
            await self._reading
            tail = b" ".join(self._tail).decode("utf-8", "replace")[-500:].strip()
            raise _failed(f"the model server died while it loaded {order.model}: {tail or 'it said nothing'}")
        report = msgspec.json.decode(line, type=Report)
        if report.error:
            raise _failed(report.error)
        return report.address

    async def _read_errors(self) -> None:
        stream = self._process.stderr
        if stream is None:
            return
        while piece := await stream.read(4096):
            self._tail.extend(line.strip() for line in piece.splitlines() if line.strip())


def _template(settings: LocalSettings) -> str:
    """Return the text of the chat template; empty is the model's own."""
    chosen = settings.chat_template or (TEMPLATE if is_starter(settings.model_path) else "")
    if not chosen:
        return ""
    path = Path(__file__).with_name("tool_call.jinja") if chosen == TEMPLATE else Path(chosen).expanduser()
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        sentence = f"chatTemplate {chosen!r} cannot be read ({error}): name {TEMPLATE!r} or the path of a Jinja file"
        raise _failed(sentence) from None


def _failed(sentence: str) -> ProviderError:
    return ProviderError(Code.PROVIDER_SETUP, sentence)
