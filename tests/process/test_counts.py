"""Cost of a prompt, a turn and an event, as counts independent of the machine: modules, system calls, memory blocks."""

import asyncio
import gc
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from doubles.chat_server import DONE, ChatServer, Reply, chunk, finish, says
from doubles.house import House, play, stub_of
from doubles.world import World
from yarrow.event import events as ev
from yarrow.event.bus import BUFFER_EVENTS, Bus
from yarrow.message import Message, Role, Text, ToolCall, Usage
from yarrow.service.rpc_middleware import register_service
from yarrow.session import record

OWN_MODULES, ALL_MODULES = 270, 560
"""At the end of a prompt with one tool call: 268 and 536 were measured, of which Python itself loads 70."""
CALLS_OF_A_TURN = 140
"""System calls of one turn with one `read`, over HTTP, without `UNEVEN`; 57 were measured, and 133 if each turn takes
so long that links to keys are searched again."""
CALLS_OF_A_PROMPT = 9_000
"""System calls of a whole prompt without a tool, the imports included; 8,862 were measured."""
UNEVEN = (
    # Waiting and waking, and what some versions of asyncio ask each time for the running loop.
    "futex",
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "poll",
    "ppoll",
    "select",
    "sched_yield",
    "restart_syscall",
    "getpid",
    # CPython maps a chunk of its stack of frames whenever a call crosses the end of one, and unmaps it when that
    # returns: a call made in a loop at such a depth counts hundreds of times.
    "mmap",
    "munmap",
)
THREADS_OF_A_PROMPT = 2
"""Waits for a thread: to lock the session and write the prompt, and to write the answer."""
FUNCTIONS_OF_A_PROMPT = 1_700
"""Calls of Python's functions in the main thread, for a prompt without a tool in a session that has answered one; 1,546
were measured."""
NOW = "2026-11-28T00:00:00.000Z"
BLOCKS_OF_AN_EVENT = 5.5
"""Bytes that one buffered piece of text holds for all its subscribers together: event, body, text, time."""


def modules(world: World, *arguments: str) -> set[str]:
    """Modules imported at the end of a command."""
    code = (
        "import sys, json\nfrom yarrow.cli.main import main\n"
        f"main({list(arguments)!r})\nprint(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code],
        cwd=world.project,
        env={name: value for name, value in world.environment.items() if not name.startswith("COVERAGE")},
        check=True,
        capture_output=True,
        text=True,
    )
    return set(json.loads(done.stderr.splitlines()[-1]))


def test_modules_of_a_prompt(world: World) -> None:
    (world.project / "a").write_text("x")
    world.script([{"call": {"name": "read", "arguments": {"path": "a"}}}], [{"text": "ok"}])
    found = modules(world, "-p", "hi")
    own = {name for name in found if name.startswith("yarrow")}
    assert len(own) <= OWN_MODULES, sorted(own)
    assert len(found) <= ALL_MODULES, sorted(found)
    assert not {name for name in own if ".tui" in name or ".extension.extension_host" in name}


async def calls(world: World, turns: int) -> int:
    """The system calls of a prompt whose answer takes so many turns with a tool."""
    arguments = [json.dumps({"path": "a", "offset": number + 1}) for number in range(turns)]
    asked = [
        Reply(
            [
                chunk({"role": "assistant", "tool_calls": [call(f"c{number}", text)]}),
                finish("tool_calls"),
                DONE,
            ]
        )
        for number, text in enumerate(arguments)
    ]
    report = world.home / "calls"
    async with ChatServer([*asked, says("ok")]) as server:
        world.serve_by(server.root, sync="none")
        process = await asyncio.create_subprocess_exec(
            *("strace", "-f", "-c", "-o", str(report), sys.executable, "-I", "-m", "yarrow", "-p", "hi"),
            cwd=world.project,
            env={name: value for name, value in world.environment.items() if not name.startswith("COVERAGE")},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await asyncio.wait_for(process.communicate(), 60)
        assert out == b"ok\n", err
        assert len(server.prompts) == turns + 1
    rows = [line.split() for line in report.read_text().splitlines()]
    return sum(int(row[3]) for row in rows if len(row) > 4 and row[3].isdigit() and row[-1] not in (*UNEVEN, "total"))


def call(name: str, arguments: str) -> dict[str, object]:
    return {"index": 0, "id": name, "type": "function", "function": {"name": "read", "arguments": arguments}}


async def test_system_calls_of_a_turn_and_of_a_prompt(world: World) -> None:
    (world.project / "a").write_text("x\n" * 40)
    await calls(world, 0)  # which compiles what was not compiled yet
    none, many = await calls(world, 0), await calls(world, 20)
    assert none <= CALLS_OF_A_PROMPT
    assert (many - none) / 20 <= CALLS_OF_A_TURN


async def test_threads_and_functions_of_a_prompt_in_a_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs: list[str] = []
    submit = ThreadPoolExecutor.submit

    def counted(pool: ThreadPoolExecutor, function: Any, *arguments: Any, **named: Any) -> Any:
        jobs.append(repr(function))
        return submit(pool, function, *arguments, **named)

    functions = 0

    def called(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal functions
        functions += event == "call"

    house = House(tmp_path, [[{"text": "answer"}] for _ in range(2)])
    async with stub_of(house) as stub:
        await play(stub, house.prompt(session_id="s"))
        monkeypatch.setattr(ThreadPoolExecutor, "submit", counted)
        sys.setprofile(called)
        try:
            events = await play(stub, house.prompt(session_id="s"))
        finally:
            sys.setprofile(None)
        assert events[-1].HasField("agent_end")
        assert len(jobs) <= THREADS_OF_A_PROMPT, jobs
    assert functions <= FUNCTIONS_OF_A_PROMPT


def test_a_loaded_session_adds_nothing_to_garbage_collections() -> None:
    call = ToolCall("c1", "read", '{"path":"a"}')
    said = Message(id="m1", role=Role.ASSISTANT, content=(Text("I look."), call), timestamp=NOW, usage=Usage(1, 2))
    line = record.encode(said)
    gc.collect()
    before = len(gc.get_objects())
    kept = [record.decode(line) for _ in range(1_000)]
    gc.collect()  # which lets go of tuples that hold nothing it has to look at
    assert len(gc.get_objects()) - before <= len(kept) / 10


def blocks_held(bus: Bus, events: int) -> int:
    """The blocks of memory that are held more after so many events were published."""
    gc.collect()
    before = sys.getallocatedblocks()
    for number in range(events):
        bus.publish(ev.TextDelta(f"{number:04}"))
    return sys.getallocatedblocks() - before


@pytest.mark.parametrize("subscribers", [1, 100])
async def test_memory_of_a_buffered_event(subscribers: int) -> None:
    bus = Bus("s")
    waiting = [bus.subscribe() for _ in range(subscribers)]
    assert blocks_held(bus, 1000) / 1000 <= BLOCKS_OF_AN_EVENT + subscribers / 32  # each keeps its own list
    # Unread events are bounded: with full buffers more events hold no more memory.
    blocks_held(bus, 2 * BUFFER_EVENTS)
    assert blocks_held(bus, 2 * BUFFER_EVENTS) <= BUFFER_EVENTS / 100
    for each in waiting:
        each.close()


class _GrpcServer:
    """The part of a server of gRPC that registration uses; it has no other way to register."""

    def __init__(self) -> None:
        self.handlers: list[object] = []

    def add_generic_rpc_handlers(self, handlers: tuple[object, ...]) -> None:
        self.handlers += handlers


def test_a_server_waits_for_calls_of_all_methods_together(tmp_path: Path) -> None:
    server: Any = _GrpcServer()
    register_service(House(tmp_path, []).servicer.handlers, server)
    assert len(server.handlers) == 1
