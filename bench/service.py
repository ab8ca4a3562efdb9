"""Benchmark of `yarrow serve`: throughput, latency, many sessions, slow readers: `python bench/service.py`.

The service runs in a separate process with a scripted model; this process is the client, and the slow readers are a
third process. Compared values are measured alternately. The service cannot listen on TCP without TLS, so calls without
TLS use a unix socket. Linux only.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import Any

from parts import Found, Table, Values, at_least, at_most, figure, middle, parser, share, tell
from served import Served, Step, serving

from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceStub

PYTHON = sys.executable
ANSWER = 20
"""Deltas of an answer in the benchmark with many sessions."""
CONNECTIONS = 8
"""Connections for many sessions; each supports 256 concurrent calls."""
SLOW = 50
BURST = 20
PACE = 400
"""Deltas per second of the model in the benchmark with slow readers."""


def answer(deltas: int, *, pace: int = 0) -> list[Step]:
    """Return a turn with `deltas` deltas: `pace` per second or, if 0, with a pause after each, as on a connection."""
    return [step for _ in range(deltas) for step in ({"text": "abcd"}, {"delay": 1 / pace if pace else 0})]


def bursts(deltas: int) -> list[Step]:
    """Return a turn with `deltas` deltas, `BURST` per millisecond."""
    return [step for _ in range(deltas // BURST) for step in (*[{"text": "abcd"}] * BURST, {"delay": 0.001})]


# ---- measurements ----


async def events(folder: Path, options: argparse.Namespace) -> Values:
    """Events per second that reach a client, by transport and kind of response; lost events do not count.

    For single responses the model emits `BURST` deltas per millisecond, because a flood would measure the losses. The
    same is measured for a bare service on gRPC's Python implementation.
    """
    runs: Values = {}
    turns = [bursts(options.deltas), answer(options.deltas)] * (2 * (options.runs + 1))
    async with serving(folder, turns) as served, _bare(folder, options.deltas) as bare:
        ways = {"unix socket": served, "TCP and TLS": served, "unix socket, a bare service": bare}
        for repetition in range(options.runs + 1):
            for way, service in ways.items():
                for batch in (False, True):
                    rate = await _streamed(service, tls=way == "TCP and TLS", batch=batch)
                    if repetition:  # the first round is a warm-up
                        name = f"events a second, {way}, {'batched' if batch else 'single'}"
                        runs.setdefault(name, []).append(rate)
    return runs


async def _streamed(served: Served, *, tls: bool, batch: bool) -> float:
    async with served.channel(tls=tls) as channel:
        request = pb.PromptRequest(text="hi", cwd=str(served.socket.parent), options=pb.PromptOptions(batch=batch))
        count = 0
        began = time.perf_counter()
        async for response in AgentServiceStub(channel).Prompt(request, metadata=served.bearer):
            count += 1 + len(response.more)
        return count / (time.perf_counter() - began)


@asynccontextmanager
async def _bare(folder: Path, deltas: int) -> AsyncGenerator[Served]:
    """Serve `deltas` deltas on a unix socket, from a process with nothing of ours but the messages."""
    socket = folder / "bare.sock"
    program = Path(__file__).with_name("bare_service.py")
    process = await asyncio.create_subprocess_exec(PYTHON, program, socket, str(deltas), stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        await process.stdout.readline()
        yield Served(process.pid, socket, "", "", b"")
    finally:
        process.kill()
        await process.wait()


async def latency(folder: Path, options: argparse.Namespace) -> Values:
    """Milliseconds of a GetState call, with and without TLS; both carry the token."""
    runs: Values = {}
    async with serving(folder, []) as served, served.channel() as plain, served.channel(tls=True) as secured:
        stubs: dict[str, Any] = {
            "over the unix socket, ms": AgentServiceStub(plain),
            "over TCP and TLS, ms": AgentServiceStub(secured),
        }
        made = await AgentServiceStub(plain).NewSession(pb.NewSessionRequest(cwd="/tmp"), metadata=served.bearer)
        request = pb.GetStateRequest(session_id=made.session_id)
        for number in range(options.calls + 50):
            for way, stub in stubs.items():
                began = time.perf_counter()
                await stub.GetState(request, metadata=served.bearer)
                if number >= 50:
                    runs.setdefault(f"unary call {way}", []).append((time.perf_counter() - began) * 1e3)
    return runs


async def many(folder: Path, options: argparse.Namespace) -> Values:
    """Many sessions: memory of each, all prompted at once, then prompted for minutes at a steady rate."""
    steady = int(options.minutes * options.rate)
    turns = [answer(ANSWER)] * (options.sessions + steady + 1)
    limits = {"runs": 2 * options.sessions, "sessions": 2 * options.sessions}
    async with serving(folder, turns, **limits) as served:
        channels = [served.channel() for _ in range(CONNECTIONS)]
        stubs = cycle(map(AgentServiceStub, channels))
        await _prompted(next(stubs), served, "warm")
        empty = served.memory()
        names = [f"s{number}" for number in range(options.sessions)]
        for name in names:
            request = pb.NewSessionRequest(session_id=name, cwd=str(folder))
            await next(stubs).NewSession(request, metadata=served.bearer)
        made = served.memory()
        first = await asyncio.gather(*(_prompted(next(stubs), served, name) for name in names))
        used = served.memory()
        before = served.cpu()
        later, samples = await _steadily(stubs, served, names, options)
        for channel in channels:
            await channel.close()
        return {
            "memory of a session that was made, kB": [(made - empty) / options.sessions / 1e3],
            "memory of a session with one answer, kB": [(used - empty) / options.sessions / 1e3],
            "all at once: first event, ms": [one * 1e3 for one in first],
            "steadily: first event, ms": [one * 1e3 for one in later],
            "steadily: CPU of a prompt, ms": [(served.cpu() - before) / max(1, steady) * 1e3],
            "steadily: memory, MB": [one / 1e6 for one in samples],
        }


async def _prompted(stub: Any, served: Served, session: str) -> float:
    """Prompt a session and wait for the end; return the seconds until its first event."""
    began = time.perf_counter()
    first = 0.0
    request = pb.PromptRequest(text="hi", session_id=session, cwd=str(served.socket.parent))
    async for _ in stub.Prompt(request, metadata=served.bearer):
        first = first or time.perf_counter() - began
    return first


async def _steadily(
    stubs: Any, served: Served, names: Sequence[str], options: argparse.Namespace
) -> tuple[list[float], list[int]]:
    """Prompt at a steady rate; return the seconds until each first event, and the memory at each tenth of the time."""
    count = int(options.minutes * options.rate)
    tasks: list[asyncio.Task[float]] = []
    samples = [served.memory()]
    began = time.perf_counter()
    for number in range(count):
        await asyncio.sleep(began + number * 60 / options.rate - time.perf_counter())
        tasks.append(asyncio.create_task(_prompted(next(stubs), served, names[number % len(names)])))
        if number * 10 // count >= len(samples):
            samples.append(served.memory())
    return await asyncio.gather(*tasks), [*samples, served.memory()]


async def slow(folder: Path, options: argparse.Namespace) -> Values:
    """Seconds of a run by the agent's own clock, without readers and with readers of one event per second.

    At first the connection of each reader buffers as much as fits; in the second half its buffer is full.
    """
    runs: Values = {}
    kinds = {f"{PACE} deltas a second": answer(6 * PACE, pace=PACE), "as fast as it can": answer(options.deltas)}
    turns = [turn for turn in kinds.values() for _ in range(2 * (options.runs + 1))]
    async with serving(folder, turns) as served, served.channel() as channel:
        stub: Any = AgentServiceStub(channel)
        made = await stub.NewSession(pb.NewSessionRequest(cwd=str(folder)), metadata=served.bearer)
        for kind in kinds:
            for repetition in range(options.runs + 1):
                for readers in (0, SLOW):
                    async with _readers(stub, served, made.session_id, readers):
                        whole, half = await _own_time(stub, served, made.session_id)
                    if repetition:
                        name = f"{kind}, {readers} slow readers"
                        runs.setdefault(f"{name}: a run, s", []).append(whole)
                        runs.setdefault(f"{name}: its second half, s", []).append(half)
    return runs


@asynccontextmanager
async def _readers(stub: Any, served: Served, session: str, count: int) -> AsyncGenerator[None]:
    """Start `count` readers of one event per second in a separate process, and wait until all are subscribed."""
    reader = Path(__file__).with_name("slow_readers.py")
    process = await asyncio.create_subprocess_exec(PYTHON, reader, served.socket, session, str(count))
    try:
        await _until_watched(stub, served, session, count)
        yield
    finally:
        with suppress(ProcessLookupError):  # with a count of 0 it has already ended
            process.kill()
        await process.wait()
        await _until_watched(stub, served, session, 0)


async def _until_watched(stub: Any, served: Served, session: str, count: int) -> None:
    request = pb.GetStateRequest(session_id=session)
    while len((await stub.GetState(request, metadata=served.bearer)).dropped) != count:  # noqa: ASYNC110
        await asyncio.sleep(0.05)


async def _own_time(stub: Any, served: Served, session: str) -> tuple[float, float]:
    """Run a prompt; return the seconds of the run and of the second half of its events."""
    request = pb.PromptRequest(text="hi", session_id=session, options=pb.PromptOptions(batch=True))
    told: list[pb.AgentEvent] = []
    async for response in stub.Prompt(request, metadata=served.bearer):
        told += (response.event, *response.more)
    last = told[-1]
    middle = next(event for event in told if event.sequence >= (told[0].sequence + last.sequence) // 2)
    begun, halved, ended = (event.time.ToMicroseconds() / 1e6 for event in (told[0], middle, last))
    return ended - begun, ended - halved


MEASURES: dict[str, Callable[[Path, argparse.Namespace], Any]] = {
    "events": events,
    "latency": latency,
    "many": many,
    "slow": slow,
}


GOALS: dict[str, Callable[[list[float]], str]] = {
    "events a second, unix socket, single": lambda values: at_least(middle(values), 15_000),
    "events a second, unix socket, batched": lambda values: at_least(middle(values), 100_000),
    "steadily: first event, ms": lambda values: at_most(share(values, 0.99), 250.0, " at p99"),
    "memory of a session that was made, kB": lambda values: at_most(middle(values), 150.0),
    "memory of a session with one answer, kB": lambda values: at_most(middle(values), 150.0),
}


def measure(options: argparse.Namespace) -> Found:
    runs: Values = {}
    for name in options.only or MEASURES:
        with tempfile.TemporaryDirectory() as folder:
            runs |= asyncio.run(MEASURES[name](Path(folder), options))
    rows = [
        (
            label,
            *map(figure, (middle(values), share(values, 0.99), min(values), max(values))),
            GOALS[label](values) if label in GOALS else "",
        )
        for label, values in runs.items()
    ]
    return Found([Table(("the service", "median", "p99", "least", "most", "goal"), rows)], runs)


def main() -> None:
    made = parser(__doc__, runs=7)
    made.add_argument("--only", choices=MEASURES, action="append")
    made.add_argument("--deltas", type=int, default=20_000)
    made.add_argument("--calls", type=int, default=2_000)
    made.add_argument("--sessions", type=int, default=1_000)
    made.add_argument("--minutes", type=float, default=3.0)
    made.add_argument("--rate", type=float, default=1_000.0, help="prompts a minute")
    options = made.parse_args()
    if options.small:
        options.deltas, options.calls, options.sessions, options.minutes = 2_000, 200, 50, 0.1
    tell(measure(options), options.json)


if __name__ == "__main__":
    main()
