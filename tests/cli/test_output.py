"""Standard output and error: order, slow readers, readers that leave, disks that are full."""

import asyncio
import os
import pty
import resource
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from yarrow.cli.output_writer import OutputWriter, ReaderGone
from yarrow.errors import Code, StorageError


class Pipe:
    """A pipe whose reader is the test."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()

    def read_all(self) -> bytes:
        """Read what comes until the writing end is closed, which this does."""
        os.close(self.writing)
        self.writing = -1
        data = b""
        while piece := os.read(self.reading, 65536):
            data += piece
        return data

    def leave(self) -> None:
        os.close(self.reading)
        self.reading = -1

    def close(self) -> None:
        for descriptor in (self.reading, self.writing):
            if descriptor >= 0:
                os.close(descriptor)


@pytest.fixture
def make_pipe() -> Iterator[Callable[[], Pipe]]:
    pipes: list[Pipe] = []

    def make() -> Pipe:
        pipes.append(Pipe())
        return pipes[-1]

    yield make
    for pipe in pipes:
        pipe.close()


@pytest.fixture
def out(make_pipe: Callable[[], Pipe]) -> Pipe:
    return make_pipe()


@pytest.fixture
def err(make_pipe: Callable[[], Pipe]) -> Pipe:
    return make_pipe()


async def test_everything_is_written_before_the_block_exits(out: Pipe, err: Pipe) -> None:
    async with OutputWriter(out=out.writing, err=err.writing) as output:
        for number in range(1000):
            output.out.write(f"{number} ")
        output.err.write("é\udcff")
    assert out.read_all() == b"".join(b"%d " % number for number in range(1000))
    assert err.read_all() == "é\\udcff".encode()


async def test_the_order_of_both_streams_is_preserved(out: Pipe) -> None:
    twin = os.dup(out.writing)
    async with OutputWriter(out=out.writing, err=twin) as output:
        for number in range(200):
            (output.out if number % 3 else output.err).write(f"{number} ")
    os.close(twin)
    assert out.read_all() == b"".join(b"%d " % number for number in range(200))


async def test_output_of_a_failing_block_is_written_too(out: Pipe, err: Pipe) -> None:
    async def fail() -> None:
        async with OutputWriter(out=out.writing, err=err.writing) as output:
            output.out.write("half")
            raise KeyError

    with pytest.raises(KeyError):
        await fail()
    assert out.read_all() == b"half"


async def test_a_slow_reader_blocks_nothing_and_uses_little_memory(out: Pipe, err: Pipe) -> None:
    limit = 100_000
    async with OutputWriter(out=out.writing, err=err.writing, limit=limit) as output:
        written = 0

        async def work() -> None:
            nonlocal written
            for _ in range(1000):
                output.out.write("x" * 1000)
                written += 1000
                await output.out.drain()

        working = asyncio.create_task(work())
        # Without a reader the loop still runs: only the writer waits.
        for _ in range(1000):
            await asyncio.sleep(0)
        stuck_at = written
        assert not working.done()
        assert stuck_at <= limit + 65536 + 2000
        data = b""
        while len(data) < 1_000_000:
            data += await asyncio.to_thread(os.read, out.reading, 65536)
        await working
    assert data == b"x" * 1_000_000


async def test_a_cancelled_block_ends_without_a_reader(out: Pipe, err: Pipe) -> None:
    async def work() -> None:
        async with OutputWriter(out=out.writing, err=err.writing, limit=10) as output:
            output.out.write("x" * 1_000_000)
            await output.out.drain()

    working = asyncio.create_task(work())
    for _ in range(100):
        await asyncio.sleep(0)
    # Once for the wait in the block, once for the wait at its end.
    for _ in range(2):
        working.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await working


# ---- a reader who leaves ----


async def test_case_C_04_a_closed_pipe_ends_the_block_at_once(out: Pipe, err: Pipe) -> None:
    """Also while the block waits for something else, and says nothing."""
    stopped = False

    async def work() -> None:
        nonlocal stopped
        async with OutputWriter(out=out.writing, err=err.writing) as output:
            output.out.write("first line\n")
            await output.out.drain()
            os.read(out.reading, 100)
            out.leave()
            try:
                await asyncio.wait_for(asyncio.Event().wait(), 10)
            finally:
                stopped = True

    with pytest.raises(ReaderGone):
        await work()
    assert stopped
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0


async def test_case_C_04_a_pipe_closed_before_the_start(out: Pipe, err: Pipe) -> None:
    out.leave()
    with pytest.raises(ReaderGone):
        async with OutputWriter(out=out.writing, err=err.writing) as output:
            output.out.write("x")


async def test_case_C_04_a_pipe_closed_while_output_is_buffered(out: Pipe, err: Pipe) -> None:
    async def work() -> None:
        async with OutputWriter(out=out.writing, err=err.writing, limit=10) as output:
            output.out.write("x" * 1_000_000)
            asyncio.get_running_loop().call_soon(out.leave)
            await output.out.drain()

    with pytest.raises(ReaderGone):
        await work()


async def test_a_closed_pipe_and_a_cancellation_at_once(out: Pipe, err: Pipe) -> None:
    """The caller that cancelled the block must see the cancellation, not a closed pipe."""
    interrupted = asyncio.Event()

    async def work() -> None:
        async with OutputWriter(out=out.writing, err=err.writing):
            try:
                await asyncio.Event().wait()
            finally:
                interrupted.set()
                await asyncio.Event().wait()

    working = asyncio.create_task(work())
    await asyncio.sleep(0)
    out.leave()
    await interrupted.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working


async def test_a_pipe_open_for_reading_and_writing_has_a_reader(tmp_path: Path, err: Pipe) -> None:
    os.mkfifo(tmp_path / "fifo")
    both = os.open(tmp_path / "fifo", os.O_RDWR)
    # Buffered data makes the watched end readable.
    os.write(both, b"old ")
    async with OutputWriter(out=both, err=err.writing) as output:
        for _ in range(10):
            await asyncio.sleep(0)
        output.out.write("new")
    assert os.read(both, 10) == b"old new"
    os.close(both)


async def test_a_closed_terminal_counts_as_a_closed_pipe(err: Pipe) -> None:
    leader, follower = pty.openpty()

    async def work() -> None:
        async with OutputWriter(out=follower, err=err.writing) as output:
            assert output.out.is_terminal
            assert not output.err.is_terminal
            os.close(leader)
            output.out.write("x")

    with pytest.raises(ReaderGone):
        await work()
    os.close(follower)


async def test_standard_error_may_be_closed(tmp_path: Path, out: Pipe) -> None:
    """The run goes on; and one who comes later does not get half of what was said."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    writing = os.open(path, os.O_WRONLY)
    os.close(reading)
    async with OutputWriter(out=out.writing, err=writing) as output:
        output.err.write("nobody hears")
        while output.err.failure is None:
            await asyncio.sleep(0)
        # The event loop is notified too, and must not treat it as the end.
        for _ in range(10):
            await asyncio.sleep(0)
        reading = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        output.err.write("nor this")
        output.out.write("the answer")
    os.close(writing)
    assert out.read_all() == b"the answer"
    assert os.read(reading, 10) == b""
    os.close(reading)


async def test_a_full_disk_is_an_error(err: Pipe) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    with pytest.raises(StorageError, match="cannot write to standard output: No space left on device") as caught:
        async with OutputWriter(out=full, err=err.writing) as output:
            output.out.write("x")
    assert caught.value.code is Code.STORAGE
    os.close(full)


async def test_a_nonblocking_descriptor_receives_everything(out: Pipe, err: Pipe) -> None:
    os.set_blocking(out.writing, False)
    data = b""

    def read() -> None:
        nonlocal data
        while len(data) < 1_000_000:
            data += os.read(out.reading, 65536)

    reader = threading.Thread(target=read)
    async with OutputWriter(out=out.writing, err=err.writing) as output:
        output.out.write("x" * 1_000_000)
        await asyncio.sleep(0)
        reader.start()
    reader.join(10)
    assert data == b"x" * 1_000_000


# ---- whole processes ----

CODE = """
import asyncio, sys
from yarrow.cli.output_writer import OutputWriter, ReaderGone, open_standard_descriptors
open_standard_descriptors()
async def main():
    try:
        async with OutputWriter() as output:
            {body}
    except ReaderGone:
        return 7
    return 0
sys.exit(asyncio.run(main()))
"""


def process(body: str, shell: str) -> subprocess.CompletedProcess[bytes]:
    code = CODE.format(body=body)
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHON": sys.executable, "CODE": code}
    return subprocess.run(["bash", "-c", shell], env=environment, capture_output=True, timeout=60)


def test_case_C_04_a_process_with_a_closed_pipe_exits_silently() -> None:
    body = "output.out.write('line\\n' * 100_000); await asyncio.sleep(60)"
    done = process(body, '"$PYTHON" -c "$CODE" | head -1; echo "${PIPESTATUS[0]}"')
    assert done.stdout == b"line\n7\n"
    assert done.stderr == b""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_descriptors_are_ignored(closed: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    done = process("output.out.write('é'); output.err.write('note')", f'"$PYTHON" -c "$CODE" {closed}; echo $?')
    assert done.stdout.endswith(b"0\n")
    code = (
        "import os; from yarrow.cli.output_writer import open_standard_descriptors; open_standard_descriptors(); "
        f"raise SystemExit(os.open({str(path)!r}, os.O_CREAT | os.O_WRONLY))"
    )
    # A file that is opened afterwards gets none of the three numbers.
    opened = subprocess.run(["bash", "-c", f'"$0" -c "$1" {closed}; exit $?', sys.executable, code], timeout=60)
    assert opened.returncode == 3


async def test_two_tasks_may_wait_for_the_buffer(out: Pipe, err: Pipe) -> None:
    async with OutputWriter(out=out.writing, err=err.writing, limit=10) as output:
        output.out.write("x" * 200_000)
        waiting = [asyncio.create_task(stream.drain()) for stream in (output.out, output.err, output.out)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert not any(each.done() for each in waiting)
        data = b""
        while len(data) < 200_000:
            data += await asyncio.to_thread(os.read, out.reading, 65536)
        await asyncio.wait_for(asyncio.gather(*waiting), 10)


def test_utf_8_whatever_the_locale() -> None:
    assert process("output.out.write('é世')", '"$PYTHON" -c "$CODE"').stdout == "é世".encode()


def test_a_process_ends_without_a_reader() -> None:
    """A thread blocked in a write does not keep the process alive after two signals."""
    body = (
        "output.out.write('x' * 1_000_000); task = asyncio.current_task(); "
        "[asyncio.get_running_loop().call_later(0.05 * n, task.cancel) for n in (1, 2)]; await asyncio.sleep(60)"
    )
    stuck = subprocess.Popen(
        [sys.executable, "-c", CODE.format(body=body)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert stuck.wait(timeout=30) == 1
    with stuck:
        assert stuck.stderr is not None
        assert stuck.stderr.read().splitlines()[-1].endswith(b"CancelledError")


def test_memory_stays_within_the_limit(out: Pipe, err: Pipe) -> None:
    async def main() -> None:
        async with OutputWriter(out=out.writing, err=err.writing) as output:
            for _ in range(2000):
                output.out.write("x" * 50_000)
                await output.out.drain()

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reader = threading.Thread(target=lambda: [None for _ in iter(lambda: os.read(out.reading, 65536), b"")])
    reader.start()
    asyncio.run(main())
    os.close(out.writing)
    out.writing = -1
    reader.join(10)
    # A hundred megabytes went through.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000
