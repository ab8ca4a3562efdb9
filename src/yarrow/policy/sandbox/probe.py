"""Probe of whether bubblewrap works on this machine, run once."""

import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from functools import lru_cache
from typing import Generic, TypeVar

from yarrow.platform import system
from yarrow.platform.real_path import real_path
from yarrow.platform.search_path import find_program

T = TypeVar("T")


class CallOnce(Generic[T]):
    """A function without arguments that is called once; concurrent callers wait for its result."""

    def __init__(self, function: Callable[[], T]) -> None:
        self._function = function
        self._lock = threading.Lock()
        self._returned: list[T] = []

    def __call__(self) -> T:
        """Return the function's result. Raises what the function raises; the next call then retries."""
        with self._lock:
            if not self._returned:
                self._returned.append(self._function())
            return self._returned[0]

    def reset(self) -> None:
        """Call the function again on the next request."""
        self._returned.clear()


PROBE_SECONDS = 10.0
SYSTEM_PATH = ("/usr/bin", "/bin", "/usr/local/bin")
"""Directories searched for bubblewrap before PATH, which may lead into a workspace."""
_PROBE = (
    *("--unshare-user", "--unshare-pid", "--disable-userns", "--die-with-parent", "--cap-drop", "ALL"),
    *("--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"),
)


@CallOnce
def unavailable_reason() -> str:
    """Return why there is no sandbox on this machine, in a sentence; empty if there is one.

    Takes some ms once, less if `start_probe` was called before.
    """
    asked = start_probe()
    if isinstance(asked, str):
        return asked
    try:
        said, _ = asked.communicate(timeout=PROBE_SECONDS)
    except subprocess.TimeoutExpired as error:
        asked.kill()
        asked.communicate()
        return f"bubblewrap does not work here: {error}"
    if asked.returncode:
        lines = said.decode("utf-8", "replace").strip().splitlines()
        return f"bubblewrap does not work here: {lines[0] if lines else f'exit code {asked.returncode}'}"
    return ""


@CallOnce
def start_probe() -> "subprocess.Popen[bytes] | str":
    """Start the probe in the background, alongside other work; return it, or the reason why it cannot start.

    Only `unavailable_reason` waits for it. It ends by itself and changes nothing.
    """
    if system.NO_SANDBOX_REASON:
        return system.NO_SANDBOX_REASON
    program = find_bwrap()
    if program is None:
        return "bubblewrap is not installed (on Debian and Ubuntu: apt install bubblewrap)"
    try:
        return subprocess.Popen(
            [program, *_PROBE],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": os.defpath},
        )
    except OSError as error:
        return f"cannot run bubblewrap: {error}"


@lru_cache(maxsize=1)
def find_bwrap() -> str | None:
    """Return the path of bubblewrap, preferring the system's own; it stays the same for the process.

    A program in a place that commands can write does not count: a replaced one would run outside the sandbox next time.
    """
    found = shutil.which("bwrap", path=os.pathsep.join(SYSTEM_PATH)) or find_program("bwrap", os.environ)
    return None if found is None else real_path(found)


@lru_cache(maxsize=1)
def can_bind_descriptors() -> bool:
    """Return whether bubblewrap can bind open descriptors: since 0.10, and in Debian's patched 0.8."""
    try:
        told = subprocess.run(
            [find_bwrap() or "", "--help"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env={"PATH": os.defpath},
            timeout=PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return b"--ro-bind-fd" in told.stdout + told.stderr
