"""Writes down what a running command must not leave behind, so that a service that was killed leaves none of it."""

import os
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec

from yarrow.policy.locks import lock
from yarrow.policy.sandbox.taking import Watched

PREFIX = "call-"
TAKEN = "taken"
"""The directory, beside the notes, for what was found after a crash; it stays until the person removes it."""
NOTE_BYTES = 4_194_304
"""The largest note that is read."""


class Note:
    """What one running command is watched for, in a file that is locked for as long as we live."""

    def __init__(self, directory: Path, watched: Watched) -> None:
        """Write it down. Raises OSError."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = directory / f"{PREFIX}{os.urandom(8).hex()}.json"
        beside = self._path.with_suffix(".tmp")
        self._descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with ExitStack() as undone:
            undone.callback(beside.unlink, missing_ok=True)
            undone.callback(os.close, self._descriptor)
            # Locked before it has its name, or another service could take it for one that a dead one left.
            lock(self._descriptor)
            os.write(self._descriptor, msgspec.json.encode(watched))
            beside.rename(self._path)
            undone.pop_all()

    def remove(self) -> None:
        """Take it back: the command is over, and what it made was taken away."""
        if self._descriptor >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1


def recover(directory: Path) -> list[Path]:
    """Take away what commands of services that were killed left, keep it in `TAKEN`, and return what that was."""
    gone: list[Path] = []
    try:
        names = [name for name in os.listdir(directory) if name.startswith(PREFIX)]  # noqa: PTH208 (no Path is needed)
    except OSError:
        return gone
    for name in names:
        with suppress(OSError):
            gone += _recovered(directory, name)
    return gone


def _recovered(directory: Path, name: str) -> list[Path]:
    descriptor = os.open(directory / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        lock(descriptor)  # raises where the command's service lives
        gone: list[Path] = []
        with suppress(msgspec.DecodeError):  # cut short: then the command had not begun
            watched = msgspec.json.decode(os.read(descriptor, NOTE_BYTES), type=Watched)
            gone = watched.take_away(directory / TAKEN)
        (directory / name).unlink(missing_ok=True)
        return gone
    finally:
        os.close(descriptor)
