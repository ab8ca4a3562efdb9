"""Running a command: what comes out, when it returns, and that nothing of it is left, however it ended."""

import asyncio
import contextlib
import os
import random
import re
import subprocess
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import TAG, alive, new_tag, open_files, running, zombies

from yarrow.policy import command_execution
from yarrow.policy.command_execution import Command, Exit, run
from yarrow.policy.process_tree import MARKER

DAEMON = "setsid nohup sleep 300 >/dev/null 2>&1 </dev/null &"
STUBBORN = "bash -c 'trap \"\" TERM; echo on; sleep 300; sleep 300'"


def command(script: str, tag: str, *, seconds: float = 20.0) -> Command:
    return Command(("bash", "-c", script), Path("/tmp"), {**os.environ, TAG: tag}, seconds)


async def outcome(script: str, tag: str, *, seconds: float = 20.0) -> tuple[bytes, Exit]:
    pieces: list[bytes | Exit] = []
    async with aclosing(run(command(script, tag, seconds=seconds))) as items:
        pieces += [item async for item in items]
    *output, end = pieces
    assert isinstance(end, Exit)
    return b"".join(piece for piece in output if isinstance(piece, bytes)), end


@pytest.fixture
def tag() -> str:
    return new_tag()


@pytest.fixture(autouse=True)
async def nothing_is_left(tag: str) -> AsyncGenerator[None]:
    """No process, no zombie, no open file and no task outlives a test."""
    await outcome("true", tag)  # what is made once, such as the thread pool's, is made
    files, tasks = open_files(), len(asyncio.all_tasks())
    yield
    assert alive(tag) == []
    assert zombies() == 0
    assert (open_files(), len(asyncio.all_tasks())) == (files, tasks)


async def test_output_of_both_streams_is_ordered_and_has_the_exit_code(tag: str) -> None:
    assert await outcome("echo a; echo b >&2; echo c; exit 3", tag) == (b"a\nb\nc\n", Exit(3))


async def test_a_signal_is_a_negative_exit_code(tag: str) -> None:
    assert await outcome("kill -SEGV $$", tag) == (b"", Exit(-11))


async def test_the_command_has_no_input_and_no_terminal(tag: str) -> None:
    output, end = await outcome("cat; [ -t 0 ] || [ -t 1 ] || echo none; : </dev/tty", tag)
    assert output.startswith(b"none\n")
    assert b"/dev/tty" in output
    assert end.code != 0


@pytest.mark.parametrize(
    "script",
    [
        "sleep 30 & echo ok",
        "sleep 30 >/dev/null & echo ok",
        "(while :; do echo x; sleep 0.1; done) & echo ok",
        "yes & echo ok",
        f"{DAEMON} echo ok",
        "(setsid bash -c 'setsid sleep 300 & sleep 300' &) ; echo ok",
    ],
)
async def test_case_T_07_leftover_processes_end_with_the_call(tag: str, script: str) -> None:
    start = time.monotonic()
    output, end = await outcome(script, tag)
    assert time.monotonic() - start < 25  # what is left behind sleeps for 30
    assert b"ok\n" in output
    assert end == Exit(0, left_processes=True)


async def test_case_T_08_a_timeout_ends_the_whole_process_tree(tag: str) -> None:
    start = time.monotonic()
    output, end = await outcome(f"{DAEMON} {STUBBORN} & wait", tag, seconds=0.5)
    assert end.timed_out
    assert output == b"on\n"
    assert time.monotonic() - start >= 0.5 + command_execution.GRACE_SECONDS


async def test_a_process_may_exit_gracefully_before_it_is_killed(tag: str) -> None:
    output, end = await outcome("trap 'echo bye; exit 7' TERM; echo on; while :; do sleep 0.02; done", tag, seconds=0.5)
    assert output.startswith(b"on\n")
    assert b"bye\n" in output
    assert end == Exit(7, timed_out=True)


async def test_a_child_outside_the_group_is_found_while_its_parent_lives(tag: str) -> None:
    seconds = f"300.{os.getpid()}"
    task = asyncio.create_task(outcome(f"env -i setsid bash -c 'sleep {seconds}; :' >/dev/null 2>&1 & sleep 300", tag))
    while not running(seconds):
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not running(seconds)


async def test_late_output_of_a_child_is_awaited_briefly(tag: str) -> None:
    assert await outcome("(sleep 0.05; echo late) & echo early", tag) == (b"early\nlate\n", Exit(0))


async def test_a_command_that_closes_its_output_is_awaited(tag: str) -> None:
    start = time.monotonic()
    assert await outcome("exec >&- 2>&-; sleep 0.3; exit 4", tag) == (b"", Exit(4))
    assert time.monotonic() - start >= 0.3


async def test_a_pause_is_reported_once(tag: str) -> None:
    pieces: list[bytes | Exit] = []
    async with aclosing(run(command("echo a; sleep 0.4; echo b", tag))) as items:
        pieces += [item async for item in items]
    assert pieces == [b"a\n", b"", b"b\n", Exit(0)]


async def test_other_tasks_run_during_a_flood(tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece is one round of the event loop, although all have arrived already."""
    monkeypatch.setattr(command_execution, "READ_BYTES", 1)
    rounds = 0

    async def others() -> None:
        nonlocal rounds
        while True:
            await asyncio.sleep(0)
            rounds += 1

    turning = asyncio.create_task(others())
    output, _ = await outcome("head -c 2000 /dev/zero", tag)
    turning.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await turning
    assert len(output) == 2_000
    assert rounds >= 2_000


async def test_a_closed_pipe_is_not_awaited(tag: str) -> None:
    waits: list[float] = []
    for _ in range(5):
        async with aclosing(run(command("echo a", tag))) as items:
            assert await anext(items) == b"a\n"
            await asyncio.sleep(0.05)  # it ends before we look again
            start = time.monotonic()
            assert await anext(items) == Exit(0)
            waits.append(time.monotonic() - start)
    assert min(waits) < command_execution.OUTPUT_PAUSE_SECONDS / 2


async def test_a_cancellation_during_cleanup_is_not_lost(tag: str, tmp_path: Path) -> None:
    script = "(trap 'touch signaled' TERM; touch on; sleep 300; sleep 300) & while [ ! -e on ]; do sleep 0.01; done"
    task = asyncio.create_task(outcome(f"cd {tmp_path}; {script}", tag))
    while not (tmp_path / "signaled").exists():  # the shell itself has ended, and what it left is being ended
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_call_within_a_call_belongs_to_both(tag: str) -> None:
    """So that the outer one also ends what the inner one's program left, should that have been killed."""
    environment = {**os.environ, TAG: tag, MARKER: "outer"}
    async with aclosing(run(Command(("bash", "-c", f"echo ${MARKER}"), Path("/tmp"), environment, 5))) as items:
        value = await anext(items)
    assert isinstance(value, bytes)
    assert re.fullmatch(rb"outer [0-9a-f]{32}\n", value)


async def test_a_missing_program_is_an_error(tag: str) -> None:
    with pytest.raises(FileNotFoundError):
        await anext(run(Command(("/no/such/program",), Path("/tmp"), {TAG: tag}, 1)))


@pytest.mark.parametrize("rounds", [1, 2, 5])
async def test_case_A_04_cancelling_leaves_no_process(tag: str, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is cancelled, also while it is ending."""
    if rounds > 1:
        monkeypatch.setattr(command_execution, "GRACE_SECONDS", 60.0)
    task = asyncio.create_task(outcome(f"{DAEMON} {STUBBORN} & sleep 300 & sleep 300", tag))
    while len(alive(tag)) < 5:
        await asyncio.sleep(0.01)
    start = time.monotonic()
    for _ in range(rounds):
        task.cancel()
        await asyncio.sleep(0.02)
    with pytest.raises(asyncio.CancelledError):
        await task
    assert alive(tag) == []
    if rounds > 1:
        assert time.monotonic() - start < command_execution.GRACE_SECONDS


async def test_closing_the_generator_leaves_no_process(tag: str) -> None:
    items = run(command(f"{DAEMON} echo on; sleep 300", tag))
    assert await anext(items) == b"on\n"
    await items.aclose()


async def test_an_event_loop_that_ends_leaves_no_process(tag: str) -> None:
    """Also when the loop cancels every task at its end, as `asyncio.run` does."""
    script = f"""
import asyncio, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_process import DAEMON, STUBBORN, alive, outcome
async def main():
    task = asyncio.create_task(outcome(DAEMON + STUBBORN + " & sleep 300", {tag!r}))
    while len(alive({tag!r})) < 4:
        await asyncio.sleep(0.01)
asyncio.run(main())
"""
    await asyncio.to_thread(subprocess.run, [sys.executable, "-c", script], check=True, timeout=30)


def without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yarrow.policy.process_tree.has_own_proc", lambda: False)
    monkeypatch.setattr("yarrow.policy.command_execution.has_own_proc", lambda: False)


def without_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_pid: int) -> int:
        raise OSError

    monkeypatch.setattr(os, "pidfd_open", refuses)


@pytest.mark.parametrize("lacking", [without_proc, without_pidfd])
async def test_the_group_is_ended_on_systems_without_proc(
    tag: str, monkeypatch: pytest.MonkeyPatch, lacking: Any
) -> None:
    lacking(monkeypatch)
    monkeypatch.setattr(command_execution, "GRACE_SECONDS", 0.3)  # an orphan's zombie, until init reaps it, looks alive
    monkeypatch.setattr(command_execution, "KILL_SECONDS", 0.3)
    assert await outcome("echo a; sleep 300 & exit 2", tag) == (b"a\n", Exit(2, left_processes=True))
    assert (await outcome("sleep 300 & sleep 300", tag, seconds=0.1))[1].timed_out
    task = asyncio.create_task(outcome("sleep 300 & sleep 300", tag))
    while len(alive(tag)) < 2:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


NASTY = [
    "sleep 300",
    "sleep 300 & sleep 300",
    "echo on; sleep 0.03",
    f"{DAEMON} echo on",
    f"{DAEMON} sleep 300",
    "(setsid bash -c 'setsid sleep 300 & sleep 300' &) ; sleep 0.02",
    "yes",
    "yes & yes",
    "for i in 1 2 3 4 5 6; do (sleep 300 &) ; done; sleep 300",
    "exec >&- 2>&-; sleep 300",
    "kill -STOP $$",
    "bash -c 'kill -STOP $$' & sleep 0.01",
    "trap '' TERM; sleep 0.2",
    "while :; do (setsid sleep 300 >/dev/null 2>&1 &) ; sleep 0.01; done",
]


@given(st.sampled_from(NASTY), st.sampled_from(["cancel", "close", "timeout"]), st.floats(0, 0.15), st.booleans())
@settings(max_examples=40, deadline=None)
def test_law_10_nothing_outlives_an_abort_or_a_timeout(script: str, how: str, moment: float, again: bool) -> None:
    async def scenario() -> None:
        tag = new_tag()
        files = open_files()
        task = asyncio.create_task(outcome(script, tag, seconds=moment + 0.001 if how == "timeout" else 20))
        await asyncio.sleep(moment)
        if how == "close":
            items = run(command(script, tag))
            asyncio.get_running_loop().call_later(moment, task.cancel)
            with contextlib.suppress(TimeoutError):
                async with aclosing(items), asyncio.timeout(moment):
                    await anext(items)
        task.cancel() if how == "cancel" else None
        if again:
            asyncio.get_running_loop().call_later(random.random() / 10, task.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await task
        assert alive(tag) == []
        assert zombies() == 0
        assert open_files() == files
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(scenario())
