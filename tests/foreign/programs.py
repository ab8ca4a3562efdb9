"""Starts programs that are not ours and that serve on a port of the loopback, for as long as a test needs them."""

import os
import re
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from queue import Empty, Queue
from threading import Thread
from typing import IO

START_SECONDS = 60.0
"""How long a program may take until it tells its address."""
ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+")


@contextmanager
def running(*command: str) -> Generator[str]:
    """Start a program and give the address that it prints; it is killed at the end.

    It gets neither keys nor proxies of this machine, and its input stays open until it is killed.
    """
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    pipe = subprocess.PIPE
    started = subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.STDOUT, text=True, env=environment
    )  # fmt: skip
    with started as process:
        assert process.stdout is not None
        said: list[str] = []
        addresses: Queue[str] = Queue()
        listener = Thread(target=_listen, args=(process.stdout, said, addresses))
        listener.start()
        try:
            yield addresses.get(timeout=START_SECONDS)
        except Empty:
            raise AssertionError(f"{command[0]} told no address: {''.join(said)}") from None
        finally:
            process.kill()
            listener.join()


def _listen(output: IO[str], said: list[str], addresses: Queue[str]) -> None:
    """Read to the end, so that a program never waits for a reader of what it prints."""
    for line in output:
        said.append(line)
        if found := ADDRESS.search(line):
            addresses.put(found[0])
