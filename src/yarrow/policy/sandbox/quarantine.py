"""Quarantine: a store of files made by commands that git, a shell or Yarrow would have executed.

An entry is a directory named by its number that contains the file or directory (`item`) and a description
(`entry.json`). Several processes may use one store at the same time.
"""

import errno
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
from yarrow.platform.real_path import real_path
from yarrow.policy.deep_tree_operations import make_accessible, measure_tree, remove_tree
from yarrow.policy.sandbox.journal_file import decode_path, encode_path

STORE = "quarantine"
"""Name of the store in the journal directory."""
MAX_BYTES = 1_073_741_824
"""Maximum bytes of the whole store (1 GiB); what does not fit is renamed in place."""
MAX_ENTRIES = 1_000
"""Maximum entries of the store; further items are renamed in place."""
MAX_COPY_BYTES = 67_108_864
"""Maximum bytes copied from another file system; a larger item stays in place under a name that is never executed."""
MAX_NUMBERING_TRIES = 100
DESCRIPTION, ITEM = "entry.json", "item"


class QuarantineEntry(Struct, frozen=True):
    """One quarantined file or directory."""

    number: int
    """Number in the store, from 1; 0 if the store could not be written."""
    path: Path
    """Original path."""
    session: str
    """Session whose command made it; empty if it was found after a crash."""
    time: float
    """Seconds since the epoch."""
    reason: str
    size: int
    """Size in bytes."""
    item: Path
    """Current path: in the store, or next to the original path if it could not be moved there."""
    is_withheld: bool = False
    """True for content that was withheld from the path and could not be stored; the file itself is unchanged."""


class RestoredEntry(Struct, frozen=True):
    """An entry that was moved back."""

    path: Path
    """Its original path."""
    replaced: QuarantineEntry | None
    """Entry of what existed there before; None if nothing did."""


class Quarantine:
    """The quarantine of one session, which moves files into a store."""

    def __init__(self, directory: Path, session: str = "") -> None:
        self._directory = directory
        self._session = session
        self._used: tuple[int, int] | None = None
        """Entries and bytes of the store; counted once, because a command can leave thousands of files."""

    def take(self, directory: int, name: str, path: Path, *, reason: str) -> QuarantineEntry | None:
        """Move a name out of an open directory and return its entry; None if it does not exist.

        Nothing is ever deleted: what the store cannot accept is renamed in place. If that fails too, the entry's item
        is the path itself.
        """
        try:
            system.stat_at(directory, name)
        except OSError:
            return None
        size = measure_tree(directory, name)
        number, slot = self._create_slot(size)
        try:
            item = _move(directory, name, slot / ITEM if slot is not None else None, aside=path)
        except OSError as error:
            item, reason = path, f"{reason}; it could not be moved: {error.strerror}"
        entry = QuarantineEntry(number, path, self._session, time.time(), reason, size, item)
        if slot is not None:
            with suppress(OSError):
                (slot / DESCRIPTION).write_bytes(msgspec.json.encode(entry, enc_hook=encode_path))
        return entry

    def store_content(self, content: bytes, path: Path, *, reason: str) -> QuarantineEntry:
        """Store content that was withheld from a path, and return its entry, also if it could not be stored."""
        number, slot = self._create_slot(len(content))
        if slot is not None:
            entry = QuarantineEntry(number, path, self._session, time.time(), reason, len(content), slot / ITEM)
            try:
                entry.item.write_bytes(content)
                (slot / DESCRIPTION).write_bytes(msgspec.json.encode(entry, enc_hook=encode_path))
            except OSError:
                remove_tree(slot)
            else:
                return entry
        return QuarantineEntry(0, path, self._session, time.time(), reason, len(content), path, is_withheld=True)

    def store_copy(self, directory: int, name: str, path: Path, *, reason: str) -> QuarantineEntry | None:
        """Store a copy of a name in an open directory, for its original path.

        Returns None if it is too large, or if the store is full or cannot be written. Raises OSError.
        """
        size = measure_tree(directory, name)
        number, slot = self._create_slot(size) if size <= MAX_COPY_BYTES else (0, None)
        if slot is None:
            return None
        entry = QuarantineEntry(number, path, self._session, time.time(), reason, size, slot / ITEM)
        try:
            _copy(Path(f"/proc/self/fd/{directory}", name), entry.item)
            if system.is_root():
                _copy_owners(Path(f"/proc/self/fd/{directory}", name), entry.item)
            (slot / DESCRIPTION).write_bytes(msgspec.json.encode(entry, enc_hook=encode_path))
        except (OSError, shutil.Error) as error:
            remove_tree(slot)
            raise OSError(str(error)) from error
        return entry

    def _create_slot(self, size: int) -> tuple[int, Path | None]:
        """Return the number and directory of a new entry; 0 and None if the store is full or cannot be written.

        Entries are never evicted: they may be the user's files, moved by a command.
        """
        count, used = self._used if self._used is not None else _usage(self._directory)
        self._used = count, used
        if count >= MAX_ENTRIES or used + size > MAX_BYTES:
            return 0, None
        with suppress(OSError):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            for _ in range(MAX_NUMBERING_TRIES):
                number = max(_numbers(self._directory), default=0) + 1
                with suppress(FileExistsError):
                    (self._directory / str(number)).mkdir(mode=0o700)
                    self._used = count + 1, used + size
                    return number, self._directory / str(number)
        return 0, None


def describe_entries(taken: Sequence[QuarantineEntry], name: Callable[[Path], str]) -> str:
    """Return a sentence about entries; `name` formats a path."""
    withheld = [entry for entry in taken if entry.is_withheld]
    stuck = [entry for entry in taken if entry.item == entry.path and entry not in withheld]
    beside = [entry for entry in taken if entry not in (*stuck, *withheld) and not entry.number]
    moved = [entry for entry in taken if entry.number and entry not in stuck]
    told: list[str] = []
    for reason in dict.fromkeys(entry.reason for entry in moved):
        names = [f"{name(entry.path)} ({entry.number})" for entry in moved if entry.reason == reason]
        told.append(f"{', '.join(names)}: quarantined because {reason}")
    if moved:
        told.append("to restore an entry, run `yarrow sandbox quarantine restore N`")
    told += [f"{name(entry.path)}: renamed to {entry.item.name} because {entry.reason}" for entry in beside]
    told += [f"{name(entry.path)}: unchanged; the change was dropped because {entry.reason}" for entry in withheld]
    if beside or withheld:
        told.append(
            "the quarantine is full or unwritable: to delete all its entries, run `yarrow sandbox quarantine empty`"
        )
    told += [f"{name(entry.path)}: remove it; it could not be quarantined: {entry.reason}" for entry in stuck]
    return "; ".join(told)


def list_entries(directory: Path) -> list[QuarantineEntry]:
    """Return the entries of a store, oldest first."""
    found: list[QuarantineEntry] = []
    for number in sorted(_numbers(directory)):
        with suppress(OSError, msgspec.MsgspecError):
            data = (directory / str(number) / DESCRIPTION).read_bytes()
            entry = msgspec.json.decode(data, type=QuarantineEntry, dec_hook=decode_path)
            if os.path.lexists(entry.item):
                found.append(entry)
    return found


def restore(directory: Path, number: int) -> RestoredEntry:
    """Move an entry back to its original path; what exists there is quarantined instead.

    Raises UsageError for an unknown number, or if the path contains a symlink or is created again meanwhile; also
    OSError.
    """
    entry = next((entry for entry in list_entries(directory) if entry.number == number), None)
    if entry is None:
        raise UsageError(f"the quarantine has no entry {number}: run `yarrow sandbox quarantine list` to see all")
    path = entry.path
    path.parent.mkdir(parents=True, exist_ok=True)
    if real_path(path.parent) != str(path.parent):
        raise UsageError(f"{path.parent} leads through a symlink: copy {entry.item} yourself")
    replaced = _quarantine_existing(entry, directory)
    try:
        _move_back(entry.item, path)
    except OSError:
        if replaced is not None and not os.path.lexists(path):
            _move_back(replaced.item, path)
            _delete_entry(replaced, directory)
        raise
    _delete_entry(entry, directory)
    return RestoredEntry(path, replaced)


def _delete_entry(entry: QuarantineEntry, directory: Path) -> None:
    if entry.number:
        remove_tree(directory / str(entry.number))


def _quarantine_existing(entry: QuarantineEntry, directory: Path) -> QuarantineEntry | None:
    """Quarantine what exists at an entry's original path; None if nothing does. Raises UsageError if that fails."""
    path = entry.path
    above = os.open(path.parent, os.O_RDONLY | system.DIRECTORY | system.NOFOLLOW)
    try:
        taken = Quarantine(directory).take(above, path.name, path, reason=f"entry {entry.number} was restored")
    finally:
        os.close(above)
    if taken is not None and taken.item == path:
        raise UsageError(f"{path} exists and cannot be moved: move it away, then restore entry {entry.number} again")
    return taken


def delete_all(directory: Path) -> int:
    """Delete all entries permanently, and return their number."""
    all_entries = list_entries(directory)
    for entry in all_entries:
        if not entry.item.is_relative_to(directory):
            _remove(entry.item)
        remove_tree(directory / str(entry.number))
    return len(all_entries)


def _numbers(directory: Path) -> list[int]:
    try:
        names = os.listdir(directory)  # noqa: PTH208 (no Path is needed)
    except OSError:
        return []
    return [int(name) for name in names if re.fullmatch("[1-9][0-9]{0,8}", name)]


def _usage(directory: Path) -> tuple[int, int]:
    """Return the number of entries and bytes in a store."""
    return len(_numbers(directory)), sum(_stored_bytes(entry, directory) for entry in list_entries(directory))


def _stored_bytes(entry: QuarantineEntry, directory: Path) -> int:
    return entry.size if entry.item.is_relative_to(directory) else 0


def _move(directory: int, name: str, item: Path | None, *, aside: Path) -> Path:
    """Move a name of an open directory to `item` or, if that is impossible, to a sibling; return the new path."""
    if item is not None:
        with suppress(OSError):
            os.rename(name, item, src_dir_fd=directory)
            return item
        # A command may have removed permissions to keep the item in place.
        with suppress(OSError):
            system.set_mode(directory, stat.S_IMODE(os.fstat(directory).st_mode) | stat.S_IRWXU)
            make_accessible(name, inside=directory)
        with suppress(OSError):
            os.rename(name, item, src_dir_fd=directory)
            return item
    beside = f"{name}.quarantined-{os.urandom(4).hex()}"
    system.replace_at(directory, name, beside)
    real = Path(f"/proc/self/fd/{directory}", beside)
    if item is not None and measure_tree(directory, beside) <= MAX_COPY_BYTES:
        with suppress(OSError, shutil.Error):
            _copy(real, item)
            _remove(real)
            return item
        _remove(item)
    return aside.with_name(beside)


def _move_back(item: Path, path: Path) -> None:
    """Move a file or directory to a free path, without replacing anything created there meanwhile."""
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
    """Copy files, directories and symlinks. Raises OSError, also for devices, sockets, FIFOs and very deep trees."""
    mode = source.lstat().st_mode
    if stat.S_ISDIR(mode):
        try:
            shutil.copytree(source, target, symlinks=True, copy_function=_copy_file)
        except RecursionError as error:
            raise OSError(errno.ENAMETOOLONG, "its directories are too deeply nested to copy", str(source)) from error
    else:
        _copy_file(str(source), str(target))


def _copy_owners(source: Path, target: Path) -> None:
    """Give copied files and directories the owners of the originals; symlinks remain ours. Raises OSError."""
    for path in (target, *target.rglob("*")):
        if not path.is_symlink():
            descriptor = os.open(path, os.O_RDONLY | system.NOFOLLOW | system.BASE_FLAGS)
            try:
                system.copy_owner(descriptor, os.lstat(source / path.relative_to(target)))
            finally:
                os.close(descriptor)


def _copy_file(source: str, target: str) -> None:
    mode = os.lstat(source).st_mode
    if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):  # a FIFO would block
        raise OSError(f"{source} is not a regular file")
    shutil.copy2(source, target, follow_symlinks=False)


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            remove_tree(path)
        else:
            path.unlink()
