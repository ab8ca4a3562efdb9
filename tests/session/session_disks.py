"""Disks that fail: on command, by blocking, or by losing power."""

import errno
import fcntl
import os
import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from yarrow.session.disk_access import OsSyscalls

SECTOR = 512


class FaultyCalls(OsSyscalls):
    """The operating system, with faults on command."""

    def __init__(self) -> None:
        self.room: int | None = None
        """Bytes until the disk is full."""
        self.most: int | None = None
        """Bytes that one write takes at most."""
        self.truncate_works = True
        self.failing_syncs: set[int] = set()
        """Numbers of the calls of `sync` that fail, from 1."""
        self.writes: list[bytes] = []
        self.syncs = 0

    def write(self, fd: int, data: memoryview, /) -> int:
        data = data if self.most is None else data[: self.most]
        if self.room is not None:
            if self.room == 0 and data:
                raise OSError(errno.ENOSPC, "No space left on device")
            data = data[: self.room]
            self.room -= len(data)
        self.writes.append(bytes(data))
        return super().write(fd, data)

    def sync(self, fd: int, /, *, directory: bool) -> None:
        self.syncs += 1
        if self.syncs in self.failing_syncs:
            raise OSError(errno.EIO, "Input/output error")
        super().sync(fd, directory=directory)

    def truncate(self, fd: int, length: int, /) -> None:
        if not self.truncate_works:
            raise OSError(errno.EIO, "Input/output error")
        super().truncate(fd, length)


class BlockingCalls(FaultyCalls):
    """The operating system, with a `sync` of files that ends when it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.blocked = threading.Semaphore(0)
        """Released by every `sync` that has begun."""

    def sync(self, fd: int, /, *, directory: bool) -> None:
        self.blocked.release()
        self.gate.wait()
        super().sync(fd, directory=directory)


class Write(NamedTuple):
    inode: int
    offset: int
    data: bytes


class Truncate(NamedTuple):
    inode: int
    length: int


class Sync(NamedTuple):
    inode: int
    works: bool


class Entry(NamedTuple):
    """A name appeared in a directory, or went (None)."""

    directory: int
    name: str
    inode: int | None


Op = Write | Truncate | Sync | Entry


class PowerModel(FaultyCalls):
    """A disk that records its operations, and computes possible states after a power failure.

    After a power failure a file has its synced content and any sectors of later writes; a directory has its synced
    entries and the first few of the later changes. Data of a failed sync may be lost for ever, though it can still
    be read.
    """

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.ops: list[Op] = []
        self.promises: list[tuple[int, str, str]] = []
        """After so many ops, this file (by its path under the root) was promised to hold this id."""
        self._lock = threading.Lock()
        self._names: dict[int, dict[str, int]] = {root.stat().st_ino: {}}

    def promise(self, path: Path, name: str) -> None:
        with self._lock:
            self._look_around()
            self.promises.append((len(self.ops), str(path.relative_to(self.root)), name))

    def write(self, fd: int, data: memoryview, /) -> int:
        with self._lock:
            self._look_around()
            appends = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND
            offset = os.lseek(fd, 0, os.SEEK_END if appends else os.SEEK_CUR)
            taken = super().write(fd, data)
            self.ops.append(Write(os.fstat(fd).st_ino, offset, bytes(data[:taken])))
            return taken

    def sync(self, fd: int, /, *, directory: bool) -> None:
        with self._lock:
            self._look_around()
            works = self.syncs + 1 not in self.failing_syncs
            self.ops.append(Sync(os.fstat(fd).st_ino, works))
            super().sync(fd, directory=directory)

    def truncate(self, fd: int, length: int, /) -> None:
        with self._lock:
            self._look_around()
            super().truncate(fd, length)
            self.ops.append(Truncate(os.fstat(fd).st_ino, length))

    def _look_around(self) -> None:
        """Notice the entries that came and went since the last call."""
        for top, directories, files in os.walk(self.root):
            inode = Path(top).stat().st_ino
            known = self._names.setdefault(inode, {})
            present = {name: (Path(top) / name).stat().st_ino for name in (*directories, *files)}
            came = [Entry(inode, name, number) for name, number in present.items() if known.get(name) != number]
            went = [Entry(inode, name, None) for name in known if name not in present]
            self.ops += [*came, *went]
            self._names[inode] = present

    def fail(self, after: int, chance: random.Random, into: Path) -> None:
        """Put what may be left when the power fails after so many ops under `into`."""
        files: dict[int, _File] = {}
        entries: dict[int, dict[str, int]] = {self.root.stat().st_ino: {}}
        later: dict[int, list[Entry]] = {}
        for op in self.ops[:after]:
            match op:
                case Write() | Truncate():
                    files.setdefault(op.inode, _File()).pending.append((op, True))
                case Sync():
                    files.setdefault(op.inode, _File()).sync(chance, works=op.works)
                    _enter(entries.setdefault(op.inode, {}), later.pop(op.inode, []) if op.works else [])
                case Entry():
                    later.setdefault(op.directory, []).append(op)
        for inode, changes in later.items():
            _enter(entries.setdefault(inode, {}), changes[: chance.randint(0, len(changes))])
        self._restore(self.root.stat().st_ino, into, (files, entries, chance))

    def _restore(
        self, inode: int, into: Path, disk: tuple[dict[int, "_File"], dict[int, dict[str, int]], random.Random]
    ) -> None:
        files, entries, chance = disk
        into.mkdir()
        for name, number in entries.get(inode, {}).items():
            if number in self._names:
                self._restore(number, into / name, disk)
            else:
                (into / name).write_bytes(files.get(number, _File()).left(chance))


class _File:
    """A file on the modelled disk: what is safe, and what came later with whether a sync can still make it safe."""

    def __init__(self) -> None:
        self.safe = b""
        self.pending: list[tuple[Write | Truncate, bool]] = []

    def sync(self, chance: random.Random, *, works: bool) -> None:
        if works:
            self.safe = self._apply(chance, doubt=0.5, certain=True)
            self.pending = []
        else:
            self.pending = [(op, False) for op, _ in self.pending]

    def left(self, chance: random.Random) -> bytes:
        return self._apply(chance, doubt=chance.choice([0.0, 0.1, 0.5, 0.9, 1.0]), certain=False)

    def _apply(self, chance: random.Random, *, doubt: float, certain: bool) -> bytes:
        data = bytearray(self.safe)
        for op, can_be_safe in self.pending:
            for part in _sectors(op):
                if (certain and can_be_safe) or chance.random() >= doubt:
                    _do(data, part)
        return bytes(data)


def _enter(directory: dict[str, int], changes: list[Entry]) -> None:
    for change in changes:
        if change.inode is None:
            directory.pop(change.name, None)
        else:
            directory[change.name] = change.inode


def _sectors(op: Write | Truncate) -> Iterator[Write | Truncate]:
    if isinstance(op, Truncate):
        yield op
        return
    at = 0
    while at < len(op.data):
        end = at + SECTOR - (op.offset + at) % SECTOR
        yield Write(op.inode, op.offset + at, op.data[at:end])
        at = end


def _do(data: bytearray, op: Write | Truncate) -> None:
    if isinstance(op, Truncate):
        del data[op.length :]
    else:
        data.extend(bytes(max(0, op.offset + len(op.data) - len(data))))
        data[op.offset : op.offset + len(op.data)] = op.data
