"""Writes down what a running command must not leave behind, so that a service that was killed leaves none of it."""

import base64
import os
from contextlib import ExitStack, suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from yarrow.platform import system
from yarrow.policy.sandbox.made import Before, run_by_git
from yarrow.policy.sandbox.taking import Place, Watched

PREFIX = "call-"
_OURS = f"{PREFIX}{os.urandom(8).hex()}-"
"""How the notes of this process begin."""
TAKEN = "taken"
"""The directory, beside the notes, for what was found after a crash; it stays until the person removes it."""
NOTE_BYTES = 4_194_304
"""The largest note that is read."""


class Left(Struct, frozen=True):
    """What a command may leave that must not stay."""

    watched: Watched
    before: tuple[Before, ...]
    """What was there of each root of its workspace."""

    def take_away(self, kept: Path) -> list[Path]:
        """Move it away, below `kept`, and return what that was."""
        gone = self.watched.take_away(kept)
        roots = [one.root for one in self.before]
        planted = [path for one in self.before for path in run_by_git(one, roots)]
        return gone + [taken for path in planted if (taken := Place.at(path).take_away(kept)) is not None]


class Note:
    """What one running command may leave, in a file that is locked for as long as we live."""

    def __init__(self, directory: Path, left: Left) -> None:
        """Write it down. Raises OSError."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = directory / f"{_OURS}{os.urandom(8).hex()}.json"
        beside = self._path.with_suffix(".tmp")
        self._descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | system.PLAIN, 0o600)
        with ExitStack() as undone:
            undone.callback(beside.unlink, missing_ok=True)
            undone.callback(os.close, self._descriptor)
            # Locked before it has its name, or another service could take it for one that a dead one left.
            system.lock(self._descriptor)
            os.write(self._descriptor, msgspec.json.encode(left, enc_hook=_encoded))
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
    for name in _names(directory):
        with suppress(OSError):
            gone += _recovered(directory, name)
    return gone


def elsewhere(directory: Path) -> list[Before]:
    """Return what commands of other services, that run or were killed, found before they began."""
    found: list[Before] = []
    for name in _names(directory):
        if not name.startswith(_OURS):
            with suppress(OSError, msgspec.MsgspecError):
                descriptor = os.open(directory / name, os.O_RDONLY | system.NO_LINK | system.PLAIN)
                try:
                    found += _left(descriptor).before
                finally:
                    os.close(descriptor)
    return found


def _names(directory: Path) -> list[str]:
    try:
        return [name for name in os.listdir(directory) if name.startswith(PREFIX) and name.endswith(".json")]  # noqa: PTH208 (no Path is needed)
    except OSError:
        return []


def _recovered(directory: Path, name: str) -> list[Path]:
    descriptor = os.open(directory / name, os.O_RDONLY | system.NO_LINK | system.PLAIN)
    try:
        system.lock(descriptor)  # raises where the command's service lives
        gone: list[Path] = []
        with suppress(msgspec.MsgspecError):  # cut short: then the command had not begun
            gone = _left(descriptor).take_away(directory / TAKEN)
        (directory / name).unlink(missing_ok=True)
        return gone
    finally:
        os.close(descriptor)


def _left(descriptor: int) -> Left:
    """Read a note. Raises OSError, and `msgspec.MsgspecError` for one that makes no sense."""
    return msgspec.json.decode(os.read(descriptor, NOTE_BYTES), type=Left, dec_hook=_decoded)


def _encoded(value: object) -> bytes:
    """Return a path as bytes: it may be no text."""
    if isinstance(value, Path):
        return os.fsencode(value)
    raise NotImplementedError(type(value))


def _decoded(kind: type, value: object) -> Path:
    if kind is Path and isinstance(value, str):
        return Path(os.fsdecode(base64.b64decode(value, validate=True)))
    raise NotImplementedError(kind)
