"""Drawing of a streamed answer by the terminal UI, as counts: frames, and the bytes of each."""

import asyncio
import time

from doubles.chat_server import DONE, Piece, Reply, chunk, finish
from doubles.opened import opened
from doubles.world import World
from yarrow.client.tui.app import FRAME_SECONDS

DELTAS = 600
PACE = 0.0025
"""Seconds between two, so that each could be drawn by itself."""
SIZE = (120, 40)
HIDES_CURSOR = b"\x1b[?25l"
"""Start of a frame."""
BYTES_OF_A_FRAME = 8_192
"""At most: the rows that are redrawn, and the block above them that is finished."""
OTHER_FRAMES = 5
"""At most, of other causes than time: the beginning and the end of the run."""


async def test_frames_of_an_answer_and_the_bytes_of_each(world: World) -> None:
    gates = [asyncio.Event() for _ in range(DELTAS)]
    pieces: list[Piece] = [chunk({"role": "assistant", "content": ""})]
    for number, gate in enumerate(gates):
        pieces += [gate, chunk({"content": f"w{number:05} " + ("\n\n" if number % 40 == 39 else "")})]
    async with opened(world, Reply([*pieces, finish("stop"), DONE]), size=SIZE) as (screen, _):
        screen.send("go\r")
        await screen.until("Thinking")
        before, began = len(screen.drawn), time.monotonic()
        for gate in gates:
            gate.set()
            await asyncio.sleep(PACE)
        await screen.until(f"w{DELTAS - 1:05}")
        await screen.until("ready")
        _, *frames = bytes(screen.drawn[before:]).split(HIDES_CURSOR)
        elapsed = time.monotonic() - began
    assert 1 < len(frames) <= elapsed / FRAME_SECONDS + OTHER_FRAMES  # slow or quick, there is no frame for each delta
    assert max(map(len, frames)) <= BYTES_OF_A_FRAME
