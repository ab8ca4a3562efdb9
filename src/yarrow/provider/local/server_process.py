"""Server process of the local model, and the metadata in its file."""

import asyncio
import os
import secrets
import signal
import struct
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, cast

import msgspec
from msgspec import Struct

from yarrow.errors import Code, ProviderError
from yarrow.provider.local.model_files import find_unavailable_reason, is_starter
from yarrow.provider.local.worker import WorkerReply, WorkerRequest

DEFAULT_CONTEXT_TOKENS = 8192
"""Context in tokens if none is configured."""
MAX_START_SECONDS = 300.0
"""Timeout in seconds for loading a model."""
MAX_END_SECONDS = 2.0
"""Grace period in seconds for the child to exit after its input is closed, and again after SIGTERM."""
MAX_TAIL_BYTES = 4096
"""Maximum bytes kept from the end of the child's standard error; earlier output is dropped."""
MAX_QUOTED_CHARACTERS = 300
"""Maximum characters of it that an error quotes."""
TOOL_TEMPLATE = "yarrow-tools"
"""Yarrow's own chat template, for models that were not trained to call tools."""
PASSED_VARIABLES = (
    "PATH",
    "HOME",
    "LANG",
    "TMPDIR",
    "SYSTEMROOT",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "OMP_NUM_THREADS",
)
"""Variables passed to the child; it needs no keys."""
PASSED_PREFIXES = ("LC_", "GGML_", "CUDA_", "HIP_")
ERROR_ADVICE = {
    "error loading model: ": "download it again, or choose another model",
    "failed to initialize the context: ": "set a smaller contextWindow",
    "common_chat_templates_init: error: ": "correct its chatTemplate",
    "chat template parsing error: ": "correct its chatTemplate",
}
"""Text before the reason in the library's log, and the advice for it."""


class LocalSettings(Struct, frozen=True):
    """Settings of the model to serve."""

    model_path: str
    context_window: int = 0
    """In tokens, at most the trained window; 0 uses the trained one, at most `DEFAULT_CONTEXT_TOKENS`."""
    chat_template: str = ""
    """`yarrow-tools`, the path of a Jinja file, or empty for the model's own (`yarrow-tools` for the starter model)."""
    threads: int = 0
    """0 uses the library's default, one per core; for the starter model it means one."""


class LocalServer:
    """A running child; call `start` to create it, `close` to stop it."""

    def __init__(self, process: Process, key: str) -> None:
        self.base_url = ""
        """`http://127.0.0.1:PORT`."""
        self.key = key
        """Key required of every request: other programs and users of this machine can reach the port too."""
        self._process = process
        self._tail = b""
        self._reading = asyncio.create_task(self._read_errors())

    @classmethod
    async def start(cls, settings: LocalSettings, *, load_seconds: float = MAX_START_SECONDS) -> "LocalServer":
        """Start the child and return once the model is loaded.

        Raises ProviderError (PROVIDER_SETUP) with advice.
        """
        request = _make_request(settings)
        server = cls(await _spawn_worker(), request.key)
        try:
            async with asyncio.timeout(load_seconds):
                server.base_url = await server._load(request)
        except TimeoutError:
            await server.close()
            sentence = f"the model {request.model} did not load within {load_seconds:g} s: try a smaller one"
            raise _setup_error(sentence) from None
        except BaseException:  # also on cancellation: only this function holds the child
            await server.close()
            raise
        return server

    async def close(self) -> None:
        """Stop the child: by closing its input, then SIGTERM, then SIGKILL. No effect if it has exited."""
        process = self._process
        cast("asyncio.StreamWriter", process.stdin).close()
        for end in (process.terminate, process.kill):
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), MAX_END_SECONDS)
                break
            with suppress(ProcessLookupError):
                end()
        await process.wait()
        await self._reading

    async def _load(self, request: WorkerRequest) -> str:
        stdin = cast("asyncio.StreamWriter", self._process.stdin)
        with suppress(ConnectionError):  # a child that died immediately gives its reason below
            stdin.write(msgspec.json.encode(request) + b"\n")
            await stdin.drain()
        line = await cast("asyncio.StreamReader", self._process.stdout).readline()
        report = msgspec.json.decode(line, type=WorkerReply) if line else WorkerReply()
        if report.address:
            return report.address
        status = await self._process.wait()
        await self._reading
        log = self._tail.decode("utf-8", "replace")
        if report.error:
            reason, advice = _find_reason(log) or (report.error, "choose another model")
            raise _setup_error(f"cannot serve the model {request.model} ({reason}): {advice}")
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        said = " ".join(log.split())[-MAX_QUOTED_CHARACTERS:] or "no output"
        sentence = f"the model server died while loading {request.model} ({how}; {said}): try a smaller model"
        raise _setup_error(sentence)

    async def _read_errors(self) -> None:
        stderr = cast("asyncio.StreamReader", self._process.stderr)
        while piece := await stderr.read(MAX_TAIL_BYTES):
            self._tail = (self._tail + piece)[-MAX_TAIL_BYTES:]


def _make_request(settings: LocalSettings) -> WorkerRequest:
    """Return the request to the child. Raises ProviderError if the model cannot be served."""
    if reason := find_unavailable_reason():
        raise _setup_error(reason)
    model = Path(settings.model_path).absolute()
    trained = read_context_length(model)
    context = settings.context_window or DEFAULT_CONTEXT_TOKENS
    starter = is_starter(settings.model_path)
    template = settings.chat_template or (TOOL_TEMPLATE if starter else "")
    return WorkerRequest(
        model=str(model),
        context=min(context, trained or context),
        template=_read_template(template),
        # The template teaches by example, and only the most likely token follows an example.
        greedy=template == TOOL_TEMPLATE,
        avoids_repeats=starter,
        # The model is too small to parallelize: on busy cores two threads mostly wait for each other.
        threads=settings.threads or (1 if starter else 0),
        key=secrets.token_urlsafe(24),
    )


def _read_template(chosen: str) -> str:
    """Return the text of the chat template; empty for the model's own."""
    if not chosen:
        return ""
    path = Path(__file__).with_name("tool_call.jinja") if chosen == TOOL_TEMPLATE else Path(chosen).expanduser()
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        sentence = f"cannot read chatTemplate {chosen!r} ({error}): use {TOOL_TEMPLATE!r} or the path of a Jinja file"
        raise _setup_error(sentence) from None


async def _spawn_worker() -> Process:
    passed = {
        name: text for name, text in os.environ.items() if name in PASSED_VARIABLES or name.startswith(PASSED_PREFIXES)
    }
    return await asyncio.create_subprocess_exec(
        sys.executable,
        # Python must not import modules from the working directory: -P, and no empty entry below.
        "-P",
        "-m",
        "yarrow.provider.local.worker",
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        cwd="/",
        env=passed | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
        start_new_session=True,
    )


def _find_reason(log: str) -> tuple[str, str] | None:
    """Return the reason for the library's failure, from its log, and the advice for it."""
    for before, advice in ERROR_ADVICE.items():
        _, found, rest = log.rpartition(before)
        if found:
            return rest.partition("\n")[0].strip()[:MAX_QUOTED_CHARACTERS], advice
    return None


def _setup_error(sentence: str) -> ProviderError:
    return ProviderError(Code.PROVIDER_SETUP, sentence)


MAGIC = b"GGUF"
MAX_FIELDS = 10_000
"""Maximum header fields searched; a context length after them is not found."""
_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Size in bytes of each fixed-size type."""
_STRING, _ARRAY, _UINT32, _UINT64 = 8, 9, 4, 10
_MAX_STRING = 1 << 26


def read_context_length(path: Path) -> int:
    """Return the context in tokens that a model was trained for, 0 if its file does not contain it.

    Raises `ProviderError` (PROVIDER_SETUP) if the file does not exist or is not GGUF.
    """
    try:
        with path.open("rb") as file:
            if file.read(4) != MAGIC:
                raise _failed(f"{path} is not a GGUF file: use a model in the GGUF format")
            return _find_context_length(file)
    except OSError as error:
        raise _failed(f"cannot read the model {path} ({error.strerror}): use the path of a GGUF file") from None
    except (struct.error, ValueError):
        raise _failed(f"{path} is a damaged GGUF file: download it again") from None


def _find_context_length(file: BinaryIO) -> int:
    _version, _tensors, fields = struct.unpack("<IQQ", file.read(20))
    for _ in range(min(fields, MAX_FIELDS)):
        name = _string(file)
        kind = _number(file, 4)
        if name.endswith(b".context_length") and kind in (_UINT32, _UINT64):
            return _number(file, _SIZES[kind])
        _skip(file, kind)
    return 0


def _skip(file: BinaryIO, kind: int) -> None:
    if kind == _STRING:
        file.seek(_number(file, 8), 1)
    elif kind == _ARRAY:
        inner, count = _number(file, 4), _number(file, 8)
        if inner in _SIZES:
            file.seek(_SIZES[inner] * count, 1)
        elif inner == _STRING:
            for _ in range(count):
                _skip(file, inner)
        else:
            raise ValueError(f"an array of type {inner}")
    elif kind in _SIZES:
        file.seek(_SIZES[kind], 1)
    else:
        raise ValueError(f"unknown type {kind}")


def _string(file: BinaryIO) -> bytes:
    length = _number(file, 8)
    if length > _MAX_STRING:
        raise ValueError("an unterminated string")
    return file.read(length)


def _number(file: BinaryIO, size: int) -> int:
    data = file.read(size)
    if len(data) < size:
        raise ValueError("the file is truncated")
    return int.from_bytes(data, "little")


def _failed(sentence: str) -> ProviderError:
    return ProviderError(Code.PROVIDER_SETUP, sentence)
