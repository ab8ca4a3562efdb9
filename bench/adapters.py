"""Benchmark of the adapters against the vendors' own clients: `python bench/adapters.py`.

A server in another process replays a captured answer with its first delta repeated, each in a separate HTTP chunk and
write. The adapter and the client read it alternately in one process, whose CPU time is divided by the number of deltas.
Imports are timed in fresh interpreters, also alternately. Figures are medians. Requires the development dependencies.
"""

import argparse
import asyncio
import re
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from parts import Found, Table, at_most, figure, parser, tell

from yarrow.config.settings import ProviderSettings, Settings
from yarrow.message import Message, Role, Text
from yarrow.provider.base import CompletionRequest, Provider, TextPiece
from yarrow.provider.factory import ProviderContext, create_provider

WIRE = Path(__file__).parents[1] / "tests" / "fixtures" / "wire"
DELTA = re.compile(rb'"content":"[^"]+"|"text_delta"|"text":"[^"]+"')
PROMPT = "hi"
MOST = 10.0
"""Maximum microseconds of CPU per delta, for adapters without a vendor's library."""


class Case(NamedTuple):
    """An adapter, the capture it reads, and the client to compare with."""

    capture: str
    base: str
    client: str
    module: str


CASES = {
    "ollama": Case("ollama-style/01-plain-text.ndjson", "", "ollama", "ollama"),
    "llamacpp": Case("llamacpp-style/01-plain-text-usage-timings.sse", "/v1", "openai", "openai"),
    "openai": Case("openai-style/01-plain-text-usage.sse", "/v1", "openai", "openai"),
    "messages": Case("messages-style/captures/01-plain-text.sse", "", "anthropic", "anthropic"),
    "gemini": Case("gemini-style/01-plain-text.sse", "", "google-genai", "google.genai"),
}


def answer(case: Case, deltas: int) -> list[bytes]:
    """Return the events of an answer, with its first delta repeated `deltas` times."""
    body = (WIRE / case.capture).read_bytes()
    end = b"\n" if case.capture.endswith(".ndjson") else b"\n\n"
    events = [event + end for event in body.replace(b"\r\n", b"\n").split(end) if event.strip()]
    first = next(at for at, event in enumerate(events) if DELTA.search(event))
    return events[:first] + events[first : first + 1] * deltas + events[first + 1 :]


async def serve(deltas: int) -> None:
    """Print a port and serve it until the process is terminated; the first part of the path selects the case."""
    answers = {kind: answer(case, deltas) for kind, case in CASES.items()}

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = re.search(rb"content-length: (\d+)", head)
                await reader.readexactly(int(length[1]) if length else 0)
                path = head.split(b" ", 2)[1].decode()
                asks = re.search(r"/(chat|completions|messages)$|streamgeneratecontent", path)
                if not asks:
                    writer.write(b"HTTP/1.1 404 X\r\ncontent-length: 2\r\n\r\n{}")
                    continue
                kind = path.split("/")[1].removesuffix("-like")
                type_ = b"application/x-ndjson" if kind == "ollama" else b"text/event-stream"
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n" % type_)
                for event in answers[kind]:
                    writer.write(b"%x\r\n%b\r\n" % (len(event), event))
                    await writer.drain()
                writer.write(b"0\r\n\r\n")

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def adapter(provider: Provider) -> Callable[[], Awaitable[int]]:
    """Return a function that reads an answer with an adapter and counts its characters."""
    message = Message(id="u", role=Role.USER, content=(Text(PROMPT),), timestamp="")
    request = CompletionRequest(model="m", messages=(message,))

    async def read() -> int:
        return sum([len(event.text) async for event in provider.stream(request) if isinstance(event, TextPiece)])

    return read


def client(kind: str, url: str) -> Callable[[], Awaitable[int]]:
    """Return a function that reads an answer with a vendor's client and counts its characters."""
    said: Any = [{"role": "user", "content": PROMPT}]
    texts: Callable[[], AsyncIterator[str | None]]
    match kind:
        case "ollama":
            from ollama import AsyncClient

            ollama = AsyncClient(host=url)

            async def texts() -> AsyncIterator[str | None]:
                async for part in await ollama.chat(model="m", messages=said, stream=True):
                    yield part.message.content
        case "messages":
            from anthropic import AsyncAnthropic

            anthropic = AsyncAnthropic(base_url=url, api_key="k")

            async def texts() -> AsyncIterator[str | None]:
                async for event in await anthropic.messages.create(
                    model="m", messages=said, max_tokens=99, stream=True
                ):
                    if event.type == "content_block_delta" and event.delta.type == "text_delta":
                        yield event.delta.text
        case "gemini":
            from google.genai import Client
            from google.genai.types import HttpOptions

            google = Client(api_key="k", vertexai=False, http_options=HttpOptions(base_url=url)).aio

            async def texts() -> AsyncIterator[str | None]:
                async for chunk in await google.models.generate_content_stream(model="m", contents=PROMPT):
                    yield chunk.text
        case _:
            from openai import AsyncOpenAI

            openai = AsyncOpenAI(base_url=url, api_key="k")

            async def texts() -> AsyncIterator[str | None]:
                async for chunk in await openai.chat.completions.create(model="m", messages=said, stream=True):
                    if chunk.choices:
                        yield chunk.choices[0].delta.content

    async def read() -> int:
        return sum([len(text or "") async for text in texts()])

    return read


async def deltas(kind: str, root: str, options: argparse.Namespace) -> tuple[float, float]:
    """Return the microseconds of CPU per delta of the adapter and of the vendor's client."""
    url = f"{root}/{kind}-like{CASES[kind].base}"
    settings = ProviderSettings(type=kind, base_url=url, headers={"x-api-key": "k"}, context_window=8192)
    created = await create_provider("bench", "m", ProviderContext(Settings(providers={"bench": settings}), {}))
    sides = [adapter(created.provider), client(kind, url)]
    seen: list[list[float]] = [[], []]
    for _ in range(options.runs + 1):
        told: list[int] = []
        for side, times in zip(sides, seen, strict=True):
            start = time.process_time()
            told.append(await side())
            times.append((time.process_time() - start) / options.deltas * 1e6)
        if told[0] != told[1] or told[0] < options.deltas:
            raise SystemExit(f"{kind}: the adapter read {told[0]} characters, the client {told[1]}")
    await created.provider.close()
    first, second = (statistics.median(times[1:]) for times in seen)
    return first, second


def importing(modules: dict[str, str], runs: int) -> dict[str, float]:
    """Return the milliseconds of CPU of each import in a fresh interpreter."""
    seen: dict[str, list[float]] = {name: [] for name in modules}
    for _ in range(runs + 1):
        for name, module in modules.items():
            code = f"import time\nt = time.process_time()\nimport {module}\nprint(time.process_time() - t)"
            done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
            seen[name].append(float(done.stdout) * 1_000)
    return {name: statistics.median(times[1:]) for name, times in seen.items()}


async def compare(root: str, options: argparse.Namespace) -> dict[str, tuple[float, float]]:
    return {kind: await deltas(kind, root, options) for kind in CASES}


def streamed(options: argparse.Namespace) -> dict[str, tuple[float, float]]:
    command = [sys.executable, __file__, "--serve", "--deltas", str(options.deltas)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            return asyncio.run(compare(f"http://127.0.0.1:{server.stdout.readline().strip()}", options))
        finally:
            server.terminate()


def measure(options: argparse.Namespace) -> Found:
    found = streamed(options)
    rows = [
        (
            kind, figure(ours), CASES[kind].client, figure(theirs), f"{ours / theirs:.2f}",
            at_most(ours, MOST) if kind != "gemini" else "",
        )
        for kind, (ours, theirs) in found.items()
    ]  # fmt: skip
    modules = {f"the adapter {kind}": f"yarrow.provider.{kind}.build" for kind in CASES}
    modules["the adapter gemini, at its first call"] = "yarrow.provider.gemini.httpx_transport"
    modules |= {f"the client {case.client}": case.module for case in CASES.values()}
    imports = importing(modules, options.runs)
    tables = [
        Table(("adapter", "µs a delta", "its client", "µs a delta", "ratio", "goal"), rows),
        Table(("import, in a fresh interpreter", "ms of CPU"), [(name, figure(ms)) for name, ms in imports.items()]),
    ]
    return Found(tables, {"deltas": found, "imports": imports})


def main() -> None:
    made = parser(__doc__, runs=5)
    made.add_argument("--deltas", type=int, default=20_000)
    made.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = made.parse_args()
    if options.serve:
        asyncio.run(serve(options.deltas))
        return
    if options.small:
        options.deltas = 1_000
    tell(measure(options), options.json)


if __name__ == "__main__":
    main()
