"""Law 3 at a power failure: acknowledged records exist, whatever else the disk lost."""

import asyncio
import base64
import contextlib
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from session_disks import PowerModel, Sync
from session_samples import NOW, header, ids, message, texts

from yarrow.errors import StorageError, YarrowError
from yarrow.message import Image, Message, Role
from yarrow.session.blobs import MAX_INLINE_BYTES
from yarrow.session.derived_sessions import fork
from yarrow.session.disk_access import Disk
from yarrow.session.ids import new_id
from yarrow.session.session_file_reader import load_session
from yarrow.session.session_log import SessionLog
from yarrow.session.session_manager import SessionManager

SEED = 20261128
STATES = 25
"""Crash states tried after each operation."""
FEW_STATES = 5
"""The same where there are many operations on much data."""

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


async def with_blobs(model: PowerModel, disk: Disk) -> None:
    """Write images beside a session, twice the same one, while a sync fails now and then; then copy the session."""
    manager = SessionManager(model.root / "sessions", sync="message", disk=disk)
    log = await manager.create(header("a"))
    model.promise(log.path, "a")
    async with log.lock():
        for number in range(3):
            await picture(model, log, number % 2)
        model.failing_syncs = {model.syncs + number for number in (2, 6, 9)}
        await picture(model, log, 7)
        await picture(model, log, 8)
        await picture(model, log, 9)
        model.failing_syncs = set()
        await log.flush()
    draft = fork(load_session(log.path), new_id="b", timestamp=NOW)
    await manager.create_from(draft)
    for name in ids(log.path):
        model.promise(log.path.with_name("b.jsonl"), name)


async def after_a_careless_writer(model: PowerModel, disk: Disk) -> None:
    """Name the blob that a writer who syncs nothing has left, from a session that syncs."""
    log = await SessionLog.create(model.root / "a.jsonl", header("a"), sync="none", disk=disk)
    async with log.lock():
        await log.append(image_of(1))
    log = await SessionLog.open(log.path, sync="message", disk=disk)
    async with log.lock():
        await picture(model, log, 1)
    draft = fork(load_session(log.path), new_id="b", timestamp=NOW)
    await SessionManager(model.root, sync="message", disk=disk).create_from(draft)


async def one_blob(model: PowerModel, disk: Disk) -> None:
    """Write one image beside an existing session."""
    log = await SessionLog.create(model.root / "a.jsonl", header("a"), sync="message", disk=disk)
    async with log.lock():
        await picture(model, log, 1)
        await write(model, log, 10)


async def picture(model: PowerModel, log: SessionLog, number: int) -> None:
    """Append an image of a kind and promise it once it is acknowledged."""
    record = image_of(number)
    with contextlib.suppress(StorageError):
        await log.append(record)
        model.promise(log.path, record.id)


def image_of(number: int) -> Message:
    image = Image("image/png", base64.b64encode(bytes([number]) * MAX_INLINE_BYTES).decode())
    return Message(id=new_id(), role=Role.USER, content=(image,), timestamp=NOW)


def lost(model: PowerModel, where: Path, *, states: int = STATES) -> int:
    """Count the promises that some crash state breaks, and the lines that name a blob that is not whole."""
    chance = random.Random(SEED)
    broken = 0
    for after in range(len(model.ops) + 1):
        for state in range(states):
            into = where / f"{after}-{state}"
            model.fail(after, chance, into)
            kept: dict[str, set[str]] = {}
            broken += sum(map(_without_blobs, into.rglob("*.jsonl")))
            for at, path, name in model.promises:
                if at <= after:
                    kept.setdefault(path, _names(into / path))
                    broken += name not in kept[path]
    return broken


def _names(path: Path) -> set[str]:
    try:
        loaded = load_session(path)
    except YarrowError:
        return set()
    made_up = loaded.report.header != ""
    return {*ids(path), *([] if made_up else [loaded.header.id])}


def _without_blobs(path: Path) -> int:
    try:
        return load_session(path).report.missing_count
    except YarrowError:
        return 0


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


async def test_no_line_references_an_incomplete_blob(root: Path, tmp_path: Path) -> None:
    model = PowerModel(root)
    await played(model, with_blobs)
    assert len(model.promises) >= 9
    assert lost(model, tmp_path, states=FEW_STATES) == 0


async def test_an_unsynced_blob_is_synced_before_it_is_referenced_again(root: Path, tmp_path: Path) -> None:
    model = PowerModel(root)
    await played(model, after_a_careless_writer)
    after = len(model.ops)
    chance = random.Random(SEED)
    for state in range(STATES):
        into = tmp_path / str(state)
        model.fail(after, chance, into)
        found = [stored.value for path in into.rglob("b.jsonl") for stored in load_session(path).records]
        assert [image.data for value in found if isinstance(value, Message) for image in value.images] == [
            image_of(1).images[0].data,
            image_of(1).images[0].data,
        ]


@pytest.mark.parametrize("forgotten", ["*.blobs/*", "*.blobs"])
async def test_a_missing_sync_of_blobs_is_detected(root: Path, tmp_path: Path, forgotten: str) -> None:
    class Forgetful(PowerModel):
        def sync(self, fd: int, /, *, directory: bool) -> None:
            if os.fstat(fd).st_ino not in {path.stat().st_ino for path in root.rglob(forgotten)}:
                super().sync(fd, directory=directory)

    model = Forgetful(root)
    await played(model, one_blob)
    assert lost(model, tmp_path) > 5


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
async def test_the_disk_model_detects_missing_syncs(mutant: type[PowerModel], root: Path, tmp_path: Path) -> None:
    model = mutant(root)
    await played(model, two_sessions)
    assert lost(model, tmp_path) > 100


async def test_a_session_continues_after_a_power_failure(root: Path, tmp_path: Path) -> None:
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
