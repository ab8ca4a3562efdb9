"""Law 3 when the power fails: what was acknowledged is there, whatever else the disk forgot."""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from session_disks import PowerModel, Sync
from session_samples import header, ids, message, texts

from yarrow.errors import StorageError, YarrowError
from yarrow.session.disk import Disk
from yarrow.session.reader import load
from yarrow.session.store import SessionLog

SEED = 20261128
STATES = 25
"""Crash states tried after each operation."""

Run = Callable[[PowerModel, Disk], Awaitable[None]]


async def write(model: PowerModel, log: SessionLog, *sizes: int) -> None:
    """Append messages of these sizes, and promise each once it is acknowledged."""
    for size in sizes:
        record = message("x" * size)
        try:
            await log.append(record)
        except StorageError:
            continue
        model.promise(log.path, record.id)


async def two_sessions(model: PowerModel, disk: Disk) -> None:
    """Make two sessions in a new directory and write to each, alone and at once."""
    project = model.root / "sessions" / "p-0"
    for name in ("a", "b"):
        log = await SessionLog.create(project / f"{name}.jsonl", header(name), sync="message", disk=disk)
        model.promise(log.path, name)
        async with log.lock():
            await write(model, log, 10, 3000)
            await asyncio.gather(*(write(model, log, 200) for _ in range(4)))
            await write(model, log, 10)


async def with_failures(model: PowerModel, disk: Disk) -> None:
    """Write while a sync fails now and then, the disk is full once, and a run ends after a failure."""
    log = await SessionLog.create(model.root / "a.jsonl", header("a"), sync="message", disk=disk)
    model.promise(log.path, "a")
    model.failing_syncs = {model.syncs + number for number in (2, 5, 6, 9)}
    for _ in range(4):
        async with log.lock():
            await write(model, log, 700, 10, 2000)
        model.truncate_works = not model.truncate_works
    async with log.lock():
        model.room = 40
        await write(model, log, 1000)
        model.room = None
        await write(model, log, 10, 600)


async def a_run_that_ends_badly(model: PowerModel, disk: Disk) -> None:
    """End a run with a failed sync that cannot be taken back, so that the next one begins after doubtful lines."""
    log = await SessionLog.create(model.root / "a.jsonl", header("a"), sync="message", disk=disk)
    for size in (10, 700):
        async with log.lock():
            await write(model, log, 10)
            model.failing_syncs, model.truncate_works = {model.syncs + 1}, False
            await write(model, log, size)
        async with log.lock():
            await write(model, log, 10, 600)


def lost(model: PowerModel, where: Path) -> int:
    """Count the promises that some crash state breaks."""
    chance = random.Random(SEED)
    broken = 0
    for after in range(len(model.ops) + 1):
        for state in range(STATES):
            into = where / f"{after}-{state}"
            model.fail(after, chance, into)
            kept: dict[str, set[str]] = {}
            for at, path, name in model.promises:
                if at <= after:
                    kept.setdefault(path, _names(into / path))
                    broken += name not in kept[path]
    return broken


def _names(path: Path) -> set[str]:
    try:
        loaded = load(path)
    except YarrowError:
        return set()
    made_up = loaded.report.header != ""
    return {*ids(path), *([] if made_up else [loaded.header.id])}


async def played(model: PowerModel, run: Run) -> None:
    disk = Disk(model)
    await run(model, disk)
    disk.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    return root


@pytest.mark.parametrize("run", [two_sessions, with_failures, a_run_that_ends_badly])
async def test_no_acknowledged_record_is_lost(run: Run, root: Path, tmp_path: Path) -> None:
    model = PowerModel(root)
    await played(model, run)
    assert len(model.promises) >= 6
    assert lost(model, tmp_path) == 0


class NoSyncOfFiles(PowerModel):
    def sync(self, fd: int, /, *, directory: bool) -> None:
        if directory:
            super().sync(fd, directory=directory)


class NoSyncOfDirectories(PowerModel):
    def sync(self, fd: int, /, *, directory: bool) -> None:
        if not directory:
            super().sync(fd, directory=directory)


class AcknowledgesBeforeSync(PowerModel):
    """Says that it has synced a file, and does it at the next write."""

    owed: Sync | None = None

    def write(self, fd: int, data: memoryview, /) -> int:
        if self.owed:
            self.ops.append(self.owed)
            self.owed = None
        return super().write(fd, data)

    def sync(self, fd: int, /, *, directory: bool) -> None:
        if directory:
            super().sync(fd, directory=directory)
        else:
            self.owed = Sync(os.fstat(fd).st_ino, works=True)


@pytest.mark.parametrize("mutant", [NoSyncOfFiles, NoSyncOfDirectories, AcknowledgesBeforeSync])
async def test_the_model_notices_a_disk_that_lies(mutant: type[PowerModel], root: Path, tmp_path: Path) -> None:
    model = mutant(root)
    await played(model, two_sessions)
    assert lost(model, tmp_path) > 100


async def test_a_session_goes_on_after_a_power_failure(root: Path, tmp_path: Path) -> None:
    model = PowerModel(root)
    await played(model, two_sessions)
    chance = random.Random(SEED)
    disk = Disk()
    for number in range(60):
        into = tmp_path / str(number)
        model.fail(len(model.ops) - chance.randrange(len(model.ops) // 2), chance, into)
        path = into / "sessions" / "p-0" / "a.jsonl"
        log = await SessionLog.open(path, sync="none", disk=disk)
        before = texts(path)
        async with log.lock():
            await log.append(message("new"))
        assert texts(path) == [*before, "new"]
    disk.close()
