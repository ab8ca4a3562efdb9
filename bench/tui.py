"""Benchmark of the terminal UI on a real pty: 2,000 entries of history, 400 deltas per second: `python bench/tui.py`.

Meanwhile letters are typed; their latency is measured from the key press to the letter on the screen of an emulator.
"""

import argparse
import asyncio
import os
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from parts import Found, Table, Values, at_most, figure, middle, parser, tell  # noqa: E402 (as below)

from doubles.chat_server import DONE, ChatServer, Reply, chunk, finish  # noqa: E402 (the path comes first)
from doubles.screen import Screen  # noqa: E402 (as above)
from doubles.world import World  # noqa: E402 (as above)
from yarrow.message import Message, Role, Text  # noqa: E402 (as above)
from yarrow.session.ids import format_timestamp, new_id  # noqa: E402 (as above)
from yarrow.session.line_codec import encode_line  # noqa: E402 (as above)

ENTRIES = 2_000
DELTAS_A_SECOND = 400
STARTS = 7
KEYS_A_SECOND = 10
TICK = os.sysconf("SC_CLK_TCK")
WORDS = (
    "The quick brown fox jumps over it all. **bold** `code` and more\n\n- item one\n- item two\n\n```py\nx = 1\n```\n\n"
)


def processor(pid: int) -> float:
    """Return the seconds of CPU used by a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def memory(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1000


async def history(world: World) -> None:
    """Create a session of `ENTRIES` messages: a real exchange, repeated."""
    world.script([{"text": f"answer\n\n{WORDS}"}])
    await world.run("-p", "question")
    (path,) = world.session_files()
    now = format_timestamp(time.time())
    with path.open("ab") as file:
        for number in range(ENTRIES - 2):
            role, text = (Role.ASSISTANT, f"answer\n\n{WORDS}") if number % 2 else (Role.USER, "question")
            file.write(encode_line(Message(id=new_id(), role=role, content=(Text(text),), timestamp=now)))


async def starts(world: World) -> float:
    """Return the median seconds until a prompt responds to a key."""
    taken: list[float] = []
    for _ in range(STARTS):
        began = time.monotonic()
        async with Screen(world) as screen:
            screen.send("x")
            await screen.until(lambda _, screen=screen: screen.editor == ["x"] and screen.emulator.marks_pastes)
            taken.append(time.monotonic() - began)
    return statistics.median(taken)


async def streamed(world: World, options: argparse.Namespace) -> dict[str, float]:
    """Measure the cost of a long answer, and the key latency meanwhile, as seen at the terminal."""
    count = int(DELTAS_A_SECOND * options.seconds)
    gates = [asyncio.Event() for _ in range(int(options.seconds * 100))]
    each = count // len(gates)
    pieces: list[bytes | asyncio.Event] = [chunk({"role": "assistant", "content": ""})]
    at = 0
    for gate in gates:
        pieces.append(gate)
        for _ in range(each):
            pieces.append(chunk({"content": WORDS[at : at + 5]}))
            at = (at + 5) % len(WORDS)
    async with ChatServer([Reply([*pieces, finish("stop"), DONE])]) as server:
        world.serve_by(server.root)
        async with Screen(world, "-c", "-m", "mock/m", size=(110, 40)) as screen:
            await screen.ready()
            pid = screen.process.pid
            before_idle, began = processor(pid), time.monotonic()
            await asyncio.sleep(options.idle)
            idle = (processor(pid) - before_idle) / (time.monotonic() - began)
            held = memory(pid)
            screen.send("go\r")
            await screen.until("thinking")
            drawn, used = len(screen.drawn), processor(pid)
            pacing = asyncio.create_task(pace(gates))
            waits = await typed(screen, int(options.seconds * KEYS_A_SECOND))
            await pacing
            await screen.until("ready")
            return {
                "key latency while it streams, median, ms": statistics.median(waits) * 1e3,
                "key latency while it streams, p95, ms": statistics.quantiles(waits, n=20)[-1] * 1e3,
                "CPU per delta, service included, ms": (processor(pid) - used) / count * 1e3,
                "bytes written to the terminal per delta": (len(screen.drawn) - drawn) / count,
                "idle CPU, %": idle * 100,
                "memory with the history, MB": held,
                "memory afterwards, MB": memory(pid),
            }


async def pace(gates: list[asyncio.Event]) -> None:
    """Open the gates at a steady pace, even if a reader lags."""
    began = time.monotonic()
    for number, gate in enumerate(gates):
        await asyncio.sleep(max(0.0, began + number / 100 - time.monotonic()))
        gate.set()


async def typed(screen: Screen, keys: int) -> list[float]:
    """Type letters during streaming; return the seconds until each appeared on the screen."""
    waits: list[float] = []
    text = ""
    for number in range(keys):
        letter = "abcdefghij"[number % 10]
        text += letter
        began = time.monotonic()
        screen.send(letter)
        await screen.until(lambda _, text=text: "".join(screen.editor).endswith(text[-10:]))
        waits.append(time.monotonic() - began)
        if len(text) == 60:
            text = ""
            screen.send("\x15")
            await screen.until(lambda _: not "".join(screen.editor))
        await asyncio.sleep(0.05)
    return waits


GOALS = {
    "start to a prompt that answers a key, s": 0.6,
    "key latency while it streams, p95, ms": 50.0,
    "CPU per delta, service included, ms": 1.0,
    "idle CPU, %": 0.5,
}


async def once(options: argparse.Namespace) -> dict[str, float]:
    with TemporaryDirectory() as folder:
        world = World(Path(folder))
        await history(world)
        return {"start to a prompt that answers a key, s": await starts(world), **await streamed(world, options)}


def measure(options: argparse.Namespace) -> Found:
    values: Values = {}
    for _ in range(options.runs):
        for name, value in asyncio.run(once(options)).items():
            values.setdefault(name, []).append(value)
    found = {name: middle(each) for name, each in values.items()}
    rows = [
        (name, figure(value), at_most(value, GOALS[name]) if name in GOALS else "") for name, value in found.items()
    ]
    return Found([Table(("the terminal UI", "measured", "goal"), rows)], values)


def main() -> None:
    made = parser(__doc__, runs=3)
    made.add_argument("--seconds", type=float, default=15.0, help="of the answer")
    made.add_argument("--idle", type=float, default=20.0, help="seconds in which nothing happens")
    options = made.parse_args()
    if options.small:
        options.seconds, options.idle = 3.0, 2.0
    tell(measure(options), options.json)


if __name__ == "__main__":
    main()
