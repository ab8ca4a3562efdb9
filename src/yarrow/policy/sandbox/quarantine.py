"""Quarantine: a store of files that commands made and that git, a shell or Yarrow would have executed.

An entry is a directory named by its number, with the file or directory (`item`) and a description (`entry.json`).
Several processes may use one store at once.
"""

import base64
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from yarrow.errors import UsageError
from yarrow.platform import system
from yarrow.policy.sandbox.private import remove_tree

STORE = "quarantine"
"""Name of the store in the directory of the sandbox's notes."""
MOST_BYTES = 1_073_741_824
"""Bytes of the whole store (1 GiB); beyond it the oldest entries are deleted."""
MOST_ENTRIES = 1_000
"""Entries of the store; beyond it the oldest are deleted."""
COPY_BYTES = 67_108_864
"""Bytes that are copied from another file system; what is larger stays where it was, under a name nobody executes."""
NUMBERING_TRIES = 100
DESCRIPTION, ITEM = "entry.json", "item"


class Entry(Struct, frozen=True):
    """One quarantined file or directory."""

    number: int
    """Number in the store, from 1; 0 when the store could not be written to."""
    path: Path
    """Original path."""
    session: str
    """Session whose command made it; empty when it was found after a crash."""
    time: float
    """Seconds since the epoch."""
    reason: str
    size: int
    """Bytes."""
    item: Path
    """Current place: in the store, or beside the original path when it could not be moved there."""


class Quarantine:
    """Moves files into a store, for one session."""

    def __init__(self, directory: Path, session: str = "") -> None:
        self._directory = directory
        self._session = session

    def take(self, directory: int, name: str, path: Path, *, reason: str) -> Entry | None:
        """Move what an open directory holds by a name, and return its entry; None when nothing is there.

        Nothing is ever deleted instead: what the store cannot hold is renamed where it is. Where that fails too, the
        item of the entry is the path itself.
        """
        try:
            status = system.stat_in(directory, name)
        except OSError:
            return None
        number, slot = self._slot()
        item = slot / ITEM if slot is not None else None
        try:
            item = _moved(directory, name, item, aside=path)
        except OSError as error:
            item, reason = path, f"{reason}; it could not be moved: {error.strerror}"
        size = _size(item) if stat.S_ISDIR(status.st_mode) else status.st_size
        entry = Entry(number, path, self._session, time.time(), reason, size, item)
        if slot is not None:
            with suppress(OSError):
                (slot / DESCRIPTION).write_bytes(msgspec.json.encode(entry, enc_hook=encoded_path))
            self._make_room(but=number)
        return entry

    def keep(self, content: bytes, path: Path, *, reason: str) -> Entry:
        """Store a content that was kept from a path, and return its entry. Raises OSError."""
        number, slot = self._slot()
        if slot is None:
            return Entry(0, path, self._session, time.time(), reason, len(content), path)
        (slot / ITEM).write_bytes(content)
        entry = Entry(number, path, self._session, time.time(), reason, len(content), slot / ITEM)
        (slot / DESCRIPTION).write_bytes(msgspec.json.encode(entry, enc_hook=encoded_path))
        self._make_room(but=number)
        return entry

    def _slot(self) -> tuple[int, Path | None]:
        """Return the number and directory of one more entry; 0 and None when the store cannot be written to."""
        with suppress(OSError):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            for _ in range(NUMBERING_TRIES):
                number = max(_numbers(self._directory), default=0) + 1
                with suppress(FileExistsError):
                    (self._directory / str(number)).mkdir(mode=0o700)
                    return number, self._directory / str(number)
        return 0, None

    def _make_room(self, *, but: int) -> None:
        held = [entry for entry in entries(self._directory) if entry.number != but]
        size = sum(_held(entry, self._directory) for entry in entries(self._directory))
        for entry in held:
            if size <= MOST_BYTES and len(held) < MOST_ENTRIES:
                return
            size -= _held(entry, self._directory)
            held = held[1:]
            remove_tree(self._directory / str(entry.number))


def quarantined(taken: Sequence[Entry], name: Callable[[Path], str]) -> str:
    """Return a sentence about entries; `name` returns how a path is shown."""
    stuck = [entry for entry in taken if entry.item == entry.path]
    moved = [entry for entry in taken if entry not in stuck]
    told: list[str] = []
    for reason in dict.fromkeys(entry.reason for entry in moved):
        names = [f"{name(entry.path)} ({entry.number})" for entry in moved if entry.reason == reason]
        told.append(f"{', '.join(names)}: quarantined, since {reason}")
    if moved:
        told.append("`yarrow sandbox quarantine restore N` puts an entry back")
    told += [f"{name(entry.path)}: could not be quarantined, remove it: {entry.reason}" for entry in stuck]
    return "; ".join(told)


def entries(directory: Path) -> list[Entry]:
    """Return what a store holds, the oldest first."""
    found: list[Entry] = []
    for number in sorted(_numbers(directory)):
        with suppress(OSError, msgspec.MsgspecError):
            data = (directory / str(number) / DESCRIPTION).read_bytes()
            entry = msgspec.json.decode(data, type=Entry, dec_hook=decoded_path)
            if os.path.lexists(entry.item):
                found.append(entry)
    return found


def restore(directory: Path, number: int) -> Path:
    """Move an entry back to its original path, and return that.

    Raises UsageError for an unknown number, and when the path exists or leads through a link; OSError.
    """
    entry = next((entry for entry in entries(directory) if entry.number == number), None)
    if entry is None:
        raise UsageError(f"the quarantine has no entry {number}: `yarrow sandbox quarantine list` shows all")
    path = entry.path
    path.parent.mkdir(parents=True, exist_ok=True)
    if os.path.realpath(path.parent) != str(path.parent):
        raise UsageError(f"{path.parent} leads through a symlink: copy {entry.item} yourself")
    if os.path.lexists(path):
        raise UsageError(f"{path} exists: move it away, then restore entry {number} again")
    _put(entry.item, path)
    remove_tree(directory / str(number))
    return path


def empty(directory: Path) -> int:
    """Delete all entries for good, and return how many."""
    all_entries = entries(directory)
    for entry in all_entries:
        if not entry.item.is_relative_to(directory):
            _remove(entry.item)
        remove_tree(directory / str(entry.number))
    return len(all_entries)


def encoded_path(value: object) -> bytes:
    """Return a path as bytes for a JSON text: it may be no text."""
    if isinstance(value, Path):
        return os.fsencode(value)
    raise NotImplementedError(type(value))


def decoded_path(kind: type, value: object) -> Path:
    """Return the path that `encoded_path` wrote."""
    if kind is Path and isinstance(value, str):
        return Path(os.fsdecode(base64.b64decode(value, validate=True)))
    raise NotImplementedError(kind)


def _numbers(directory: Path) -> list[int]:
    try:
        names = os.listdir(directory)  # noqa: PTH208 (no Path is needed)
    except OSError:
        return []
    return [int(name) for name in names if re.fullmatch("[1-9][0-9]{0,8}", name)]


def _held(entry: Entry, directory: Path) -> int:
    return entry.size if entry.item.is_relative_to(directory) else 0


def _moved(directory: int, name: str, item: Path | None, *, aside: Path) -> Path:
    """Move a name of an open directory to `item` or, where that is impossible, to one beside it; return the place."""
    if item is not None:
        with suppress(OSError):
            os.rename(name, item, src_dir_fd=directory)
            return item
        # A command may have closed the directory, or what lies in it, to keep it there.
        _open_up(directory, name)
        with suppress(OSError):
            os.rename(name, item, src_dir_fd=directory)
            return item
    beside = f"{name}.quarantined-{os.urandom(4).hex()}"
    system.replace_in(directory, name, beside)
    real = Path(f"/proc/self/fd/{directory}", beside)
    if item is not None and _size(real) <= COPY_BYTES:
        with suppress(OSError, shutil.Error):
            _copy(real, item)
            _remove(real)
            return item
        _remove(item)
    return aside.with_name(beside)


def _open_up(directory: int, name: str) -> None:
    with suppress(OSError):
        system.set_mode(directory, stat.S_IMODE(os.fstat(directory).st_mode) | stat.S_IRWXU)
        status = system.stat_in(directory, name)
        if stat.S_ISDIR(status.st_mode):
            os.chmod(name, stat.S_IMODE(status.st_mode) | stat.S_IRWXU, dir_fd=directory)


def _put(item: Path, path: Path) -> None:
    """Move a file or directory to a path where nothing is; never in the place of what came there meanwhile."""
    if item.is_dir() and not item.is_symlink():
        try:
            item.rename(path)
        except OSError:  # on another file system
            beside = path.with_name(f".{path.name}.restoring-{os.urandom(4).hex()}")
            _copy(item, beside)
            beside.rename(path)
        return
    try:
        os.link(item, path, follow_symlinks=False)
    except FileExistsError as error:
        raise UsageError(f"{path} exists: move it away, then restore it again") from error
    except OSError:
        beside = path.with_name(f".{path.name}.restoring-{os.urandom(4).hex()}")
        _copy(item, beside)
        os.link(beside, path, follow_symlinks=False)
        beside.unlink()
    _remove(item)


def _copy(source: Path, target: Path) -> None:
    """Copy files, directories and links. Raises OSError, also for devices, sockets and FIFOs."""
    mode = source.lstat().st_mode
    if stat.S_ISDIR(mode):
        shutil.copytree(source, target, symlinks=True, copy_function=_copy_file)
    else:
        _copy_file(str(source), str(target))


def _copy_file(source: str, target: str) -> None:
    mode = os.lstat(source).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):  # a FIFO would wait
        raise OSError(f"{source} is not an ordinary file")
    shutil.copy2(source, target, follow_symlinks=False)


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            remove_tree(path)
        else:
            path.unlink()


def _size(path: Path) -> int:
    """Return the bytes of all that lies at a path."""
    try:
        status = path.lstat()
    except OSError:
        return 0
    if not stat.S_ISDIR(status.st_mode):
        return status.st_size
    return sum(_size(Path(folder, name)) for folder, _, names in os.walk(path, followlinks=False) for name in names)
