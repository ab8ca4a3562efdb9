"""Piped input: read completely if it is written, never waited for in vain."""

import os
import pty
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from yarrow.cli.prompt_input import (
    FIRST_BYTE_SECONDS,
    IDLE_SECONDS,
    MAX_TEXT_SIZE,
    PipedInput,
    StdinTimeouts,
    read_stdin,
)
from yarrow.errors import UsageError

FOREVER = 100.0


def patience(first_byte: float = FOREVER, idle: float = FOREVER, *, started: float | None = None) -> StdinTimeouts:
    return StdinTimeouts(time.monotonic() if started is None else started, first_byte, idle)


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


@pytest.fixture
def opened() -> Iterator[Callable[[str | Path], int]]:
    descriptors: list[int] = []

    def open_file(path: str | Path) -> int:
        descriptors.append(os.open(path, os.O_RDONLY))
        return descriptors[-1]

    yield open_file
    for descriptor in descriptors:
        os.close(descriptor)


def written(writing: int, *parts: bytes) -> int:
    """Write, close, and return a descriptor that a fixture may close."""
    for part in parts:
        os.write(writing, part)
    spare = os.open(os.devnull, os.O_RDONLY)
    os.dup2(spare, writing)
    return spare


def test_case_C_01_a_pipe_that_stays_open_is_not_waited_for(pipe: tuple[int, int]) -> None:
    began = time.monotonic()
    piped = read_stdin(patience(0.05), descriptor=pipe[0])
    assert piped == PipedInput("", "standard input is open but empty; continuing without it")
    assert time.monotonic() - began < 5


def test_case_C_01_the_timeout_counts_from_the_start_of_the_process(pipe: tuple[int, int]) -> None:
    """Time spent starting up is not waited again; input that has arrived is still read."""
    assert read_stdin(patience(started=time.monotonic() - 2 * FOREVER), descriptor=pipe[0]).text == ""
    spare = written(pipe[1], b"ctx")
    assert read_stdin(patience(started=time.monotonic() - 2 * FOREVER), descriptor=pipe[0]) == PipedInput("ctx")
    os.close(spare)


def test_case_C_01_piped_input_is_read_to_its_end(pipe: tuple[int, int]) -> None:
    first = threading.Event()

    def write() -> None:
        first.wait()
        os.write(pipe[1], b"one ")
        os.write(pipe[1], "zwei ü".encode())
        os.close(written(pipe[1]))

    writer = threading.Thread(target=write)
    writer.start()
    first.set()
    assert read_stdin(patience(), descriptor=pipe[0]) == PipedInput("one zwei ü")
    writer.join()


def test_case_C_01_a_pipe_that_becomes_silent_times_out(pipe: tuple[int, int]) -> None:
    os.write(pipe[1], b"some")
    piped = read_stdin(patience(idle=0.05), descriptor=pipe[0])
    notice = "standard input paused after 4 bytes without being closed; using those"
    assert piped == PipedInput("some", notice)


CODE = """
import sys, time
from yarrow.cli.arguments import parse_arguments
from yarrow.cli.prompt_input import StdinTimeouts, read_stdin
print(read_stdin(StdinTimeouts(time.monotonic()) if parse_arguments(sys.argv[1:]).has_prompt else None).text)
"""


def test_case_C_01_a_process_with_a_prompt_starts_although_its_input_stays_open() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CODE, "-p", "hi"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as started:
        assert started.wait(timeout=30) == 0
        assert started.stdout is not None
        assert started.stdout.read() == b"\n"


@pytest.mark.parametrize("argv", [["-p", "hi"], ["-p"], []])
def test_case_C_01_a_process_reads_its_piped_input(argv: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", CODE, *argv], input=b"ctx", capture_output=True, timeout=30)
    assert done.stdout == b"ctx\n"


def test_a_process_without_a_prompt_waits_for_one() -> None:
    with subprocess.Popen([sys.executable, "-c", CODE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as started:
        with pytest.raises(subprocess.TimeoutExpired):
            started.wait(timeout=2 * FIRST_BYTE_SECONDS)
        assert started.communicate(b"late", timeout=30)[0] == b"late\n"


def test_the_timeouts_are_short_and_documented() -> None:
    assert (FIRST_BYTE_SECONDS, IDLE_SECONDS) == (0.5, 30.0)
    assert StdinTimeouts(0.0) == (0.0, FIRST_BYTE_SECONDS, IDLE_SECONDS)


def test_input_that_is_the_prompt_is_waited_for(pipe: tuple[int, int]) -> None:
    results: list[PipedInput] = []
    reader = threading.Thread(target=lambda: results.append(read_stdin(None, descriptor=pipe[0])))
    reader.start()
    os.write(pipe[1], b"the ")
    reader.join(0.05)
    assert reader.is_alive()
    os.write(pipe[1], b"prompt")
    os.close(written(pipe[1]))
    reader.join(10)
    assert results == [PipedInput("the prompt")]


@pytest.mark.parametrize("waits", [None, patience()])
def test_a_file_is_read_whole(tmp_path: Path, opened: Callable[[Path], int], waits: StdinTimeouts | None) -> None:
    path = tmp_path / "input"
    path.write_text("\ufeffx" * 100_000)
    assert read_stdin(waits, descriptor=opened(path)).text == path.read_text()[1:]


@pytest.mark.parametrize("waits", [None, patience()])
def test_empty_input_is_empty(opened: Callable[[str], int], waits: StdinTimeouts | None) -> None:
    assert read_stdin(waits, descriptor=opened(os.devnull)) == PipedInput()
    closed = os.dup(0)
    os.close(closed)
    assert read_stdin(waits, descriptor=closed) == PipedInput()


def test_a_terminal_is_not_read() -> None:
    leader, follower = pty.openpty()
    os.write(leader, b"typed\n")
    assert read_stdin(None, descriptor=follower) == PipedInput()
    os.close(leader)
    os.close(follower)


def test_a_socket_works_like_a_pipe() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert read_stdin(patience(0.0), descriptor=ours.fileno()).text == ""
        theirs.sendall(b"ctx")
        theirs.shutdown(socket.SHUT_WR)
        assert read_stdin(patience(), descriptor=ours.fileno()) == PipedInput("ctx")


def test_a_nonblocking_descriptor_is_waited_for(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[0], False)
    results: list[PipedInput] = []
    reader = threading.Thread(target=lambda: results.append(read_stdin(None, descriptor=pipe[0])))
    reader.start()
    os.write(pipe[1], b"x")
    os.close(written(pipe[1]))
    reader.join(10)
    assert results == [PipedInput("x")]


def refusal(descriptor: int) -> str:
    with pytest.raises(UsageError) as caught:
        read_stdin(patience(), descriptor=descriptor)
    return caught.value.message


def test_invalid_utf_8_is_handled(pipe: tuple[int, int]) -> None:
    spare = written(pipe[1], "é".encode(), b"ab\xe9\n")
    assert refusal(pipe[0]) == "standard input is not UTF-8: invalid byte 0xe9 at offset 4; convert it to UTF-8"
    os.close(spare)


def test_too_large_input_is_rejected(tmp_path: Path, opened: Callable[[str | Path], int]) -> None:
    path = tmp_path / "big"
    path.write_bytes(b"x" * 10_000_000)
    assert refusal(opened(path)).startswith("standard input has 10,000,000 bytes, more than the maximum of 4,194,304")
    endless = refusal(opened("/dev/zero"))
    assert endless.startswith("standard input has more than 4,194,304 bytes, more than the maximum of 4,194,304")
    path.write_bytes(b"x" * MAX_TEXT_SIZE)
    assert len(read_stdin(patience(), descriptor=opened(path)).text) == MAX_TEXT_SIZE


def test_unreadable_input_is_reported(tmp_path: Path, opened: Callable[[Path], int]) -> None:
    assert (
        refusal(opened(tmp_path))
        == "cannot read standard input: Is a directory; name the directory in the prompt instead"
    )
    writing = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    assert refusal(writing) == "cannot read standard input: Bad file descriptor"
    os.close(writing)
