"""An open session: made whole, appended under a lock, synced in groups, and never interrupted half way."""

import asyncio
import contextlib
import errno
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Generator
from pathlib import Path

import pytest
from session_disks import BlockingCalls, FaultyCalls
from session_samples import header, message, names, texts, write_session

from yarrow.errors import Code, InvalidArgument, LimitExceeded, NotFound, Precondition, StorageError
from yarrow.session import session_log
from yarrow.session.disk_access import Disk
from yarrow.session.line_codec import MAX_LINE_BYTES, encode_line
from yarrow.session.memory_log import MemoryLog
from yarrow.session.session_file_reader import load_session
from yarrow.session.session_log import Log, SessionLog


async def new_log(path: Path, disk: Disk) -> SessionLog:
    return await SessionLog.create(path, header(path.stem), sync="message", disk=disk)


async def made_and_open(path: Path, disk: Disk) -> tuple[SessionLog, SessionLog]:
    return await new_log(path, disk), await SessionLog.open(path, sync="message", disk=disk)


# --- made and opened


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o277])
async def test_only_the_owner_can_read_whatever_the_umask(tmp_path: Path, disk: Disk, umask: int) -> None:
    path = tmp_path / "sessions" / "p-0" / "s1.jsonl"
    before = os.umask(umask)
    try:
        log = await new_log(path, disk)
        async with log.lock():
            await log.append(message("x"))
    finally:
        os.umask(before)
    assert [stat.S_IMODE(at.stat().st_mode) for at in (path, path.parent, path.parent.parent)] == [0o600, 0o700, 0o700]
    assert stat.S_IMODE(path.with_suffix(".lock").stat().st_mode) & 0o177 == 0
    assert names(path.parent) == ["s1.jsonl", "s1.lock"]


async def test_existing_directories_are_unchanged(tmp_path: Path, disk: Disk) -> None:
    tmp_path.chmod(0o755)
    await new_log(tmp_path / "s1.jsonl", disk)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755


@pytest.mark.parametrize("links", [True, False])
async def test_existing_ids_are_rejected(
    tmp_path: Path, disk: Disk, links: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(self: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    if not links:
        monkeypatch.setattr(Path, "hardlink_to", no_links)
    path = tmp_path / "s1.jsonl"
    await new_log(path, disk)
    with pytest.raises(InvalidArgument, match="s1 already exists"):
        await SessionLog.create(path, header(name="other"), sync="message", disk=disk)
    assert load_session(path).header == header("s1")
    assert names(tmp_path) == ["s1.jsonl"]


async def test_an_unwritable_directory_is_an_error(tmp_path: Path, disk: Disk) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"s1\.jsonl: not a directory; choose another path"):
        await new_log(tmp_path / "file" / "sessions" / "s1.jsonl", disk)


async def test_opening_a_missing_session(tmp_path: Path, disk: Disk) -> None:
    with pytest.raises(NotFound):
        await SessionLog.open(tmp_path / "s1.jsonl", sync="message", disk=disk)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot open the session"):
        await SessionLog.open(tmp_path / "file" / "s1.jsonl", sync="message", disk=disk)
    log = await new_log(tmp_path / "s2.jsonl", disk)
    log.path.unlink()
    with pytest.raises(StorageError, match="no such file"):
        await log.acquire()
    assert await new_log(tmp_path / "s2.jsonl", disk)
    assert await log.acquire() is False
    await log.close()


# --- appended


async def test_case_S_01_the_next_append_starts_on_a_fresh_line(tmp_path: Path, disk: Disk) -> None:
    written = [header(), *(message(str(number)) for number in range(299))]
    path = write_session(tmp_path / "s1.jsonl", *written, tail=b'{"kind":"message","role":"assi')
    before = path.read_bytes()
    log = await SessionLog.open(path, sync="message", disk=disk)
    new = [message("next"), message("last")]
    async with log.lock():
        for record in new:
            await log.append(record)
    assert path.read_bytes() == before + b"\n" + b"".join(map(encode_line, new))
    assert texts(path) == [*(str(number) for number in range(299)), "next", "last"]


async def test_torn_at_every_byte(tmp_path: Path, disk: Disk) -> None:
    kept, last = [message("one"), message("two")], encode_line(message("torn ü"))
    for cut in range(len(last) + 1):
        path = write_session(tmp_path / f"s{cut}.jsonl", header(), *kept, tail=last[:cut])
        log = await SessionLog.open(path, sync="none", disk=disk)
        async with log.lock():
            await log.append(message("new"))
        whole = cut >= len(last) - 1  # only the newline was missing
        assert texts(path) == ["one", "two", *["torn ü"] * whole, "new"]
        assert load_session(path).report.skipped_count == (0 if whole or cut == 0 else 1)


async def test_several_records_and_no_records(tmp_path: Path, disk: Disk) -> None:
    log = await new_log(tmp_path / "s1.jsonl", disk)
    async with log.lock():
        await log.append()
        await log.append(message("one"), message("two"))
        await asyncio.gather(*(log.append(message(str(number))) for number in range(20)))
    assert texts(log.path) == ["one", "two", *map(str, range(20))]


async def test_a_lone_surrogate_is_replaced(tmp_path: Path, disk: Disk) -> None:
    log = await new_log(tmp_path / "s1.jsonl", disk)
    async with log.lock():
        await log.append(message("a\ud800b"))
    assert texts(log.path) == ["a\ufffdb"]


async def test_without_the_lock_nothing_is_appended(tmp_path: Path, disk: Disk) -> None:
    log = await new_log(tmp_path / "s1.jsonl", disk)
    for write in (log.append(message("x")), log.flush()):
        with pytest.raises(Precondition) as caught:
            await write
        assert caught.value.code is Code.NOT_RUNNING
    async with log.lock():
        pass
    with pytest.raises(Precondition):
        await log.append(message("x"))
    assert texts(log.path) == []


async def test_a_too_long_record_is_rejected(tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_log, "MAX_LINE_BYTES", 1000)
    log = await new_log(tmp_path / "s1.jsonl", disk)
    async with log.lock():
        with pytest.raises(LimitExceeded, match="exceeds the limit of 1000"):
            await log.append(message("fine"), message("x" * 1000))
        await log.append(message("next"))
    assert texts(log.path) == ["next"]


# --- the disk is busy


@pytest.fixture
def calls() -> Generator[BlockingCalls]:
    calls = BlockingCalls()
    yield calls
    calls.gate.set()


async def until_blocked(calls: BlockingCalls) -> None:
    """Return when one more `sync` waits for the gate."""
    while not calls.blocked.acquire(blocking=False):
        await asyncio.sleep(0)


async def busy(log: SessionLog, calls: BlockingCalls) -> asyncio.Task[None]:
    """Return an append whose sync does not end before the gate is open."""
    while calls.blocked.acquire(blocking=False):
        pass
    calls.gate.clear()
    task = asyncio.create_task(log.append(message("busy")))
    await until_blocked(calls)
    return task


async def test_waiting_records_share_a_sync(tmp_path: Path, calls: BlockingCalls) -> None:
    disk = Disk(calls)
    log = await new_log(tmp_path / "s1.jsonl", disk)
    async with log.lock():
        first = await busy(log, calls)
        writes, syncs = len(calls.writes), calls.syncs
        rest = [asyncio.create_task(log.append(message(str(number)))) for number in range(50)]
        await asyncio.sleep(0)
        assert not any(task.done() for task in (first, *rest))
        calls.gate.set()
        await asyncio.gather(first, *rest)
        assert (len(calls.writes) - writes, calls.syncs - syncs) == (1, 2)  # the first sync was counted at its end
    disk.close()
    assert texts(log.path) == ["busy", *map(str, range(50))]


async def test_a_flush_is_honored_among_appends(tmp_path: Path, calls: BlockingCalls) -> None:
    disk = Disk(calls)
    log = await SessionLog.create(tmp_path / "s1.jsonl", header(), sync="run", disk=disk)
    async with log.lock():
        await log.append(message("one"))
        while calls.blocked.acquire(blocking=False):
            pass
        calls.gate.clear()
        first = asyncio.create_task(log.flush())
        await until_blocked(calls)
        rest = [log.append(message("two")), log.flush(), log.append(message("three"))]
        tasks = [asyncio.create_task(each) for each in rest]
        await asyncio.sleep(0)
        syncs = calls.syncs
        calls.gate.set()
        await asyncio.gather(first, *tasks)
        assert calls.syncs == syncs + 2
    disk.close()


async def test_directories_are_synced(tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are metadata, which `fdatasync` may leave out."""
    synced: list[bool] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: synced.append(stat.S_ISDIR(os.fstat(fd).st_mode)), raising=False)
    await new_log(tmp_path / "new" / "s1.jsonl", disk)
    assert not any(synced)


async def test_other_sessions_are_not_blocked(tmp_path: Path, calls: BlockingCalls) -> None:
    disk = Disk(calls)
    slow, made = await new_log(tmp_path / "s1.jsonl", disk), await new_log(tmp_path / "s2.jsonl", disk)
    fast = await SessionLog.open(made.path, sync="none", disk=disk)
    async with slow.lock():
        first = await busy(slow, calls)
        async with fast.lock():
            await fast.append(message("x"))
        assert not first.done()
        calls.gate.set()
        await first
    disk.close()


async def test_a_cancelled_append_is_still_written(tmp_path: Path, calls: BlockingCalls) -> None:
    disk = Disk(calls)
    log = await new_log(tmp_path / "s1.jsonl", disk)
    async with log.lock():
        first = await busy(log, calls)
        second = asyncio.create_task(log.append(message("waiting")))
        await asyncio.sleep(0)
        for task in (first, second):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        calls.gate.set()
        await log.append(message("last"))
    disk.close()
    assert texts(log.path) == ["busy", "waiting", "last"]


async def test_the_lock_is_released_after_pending_writes(tmp_path: Path, calls: BlockingCalls) -> None:
    disk = Disk(calls)
    log = await new_log(tmp_path / "s1.jsonl", disk)
    await log.acquire()
    first = await busy(log, calls)
    second = asyncio.create_task(log.append(message("waiting")))
    release = asyncio.create_task(log.release())
    for _ in range(3):  # also when its holder is cancelled
        await asyncio.sleep(0)
        release.cancel()
    other = await SessionLog.open(log.path, sync="none", disk=disk)
    with pytest.raises(Precondition):
        await other.acquire()
    calls.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await release
    await asyncio.gather(first, second)
    await other.acquire()
    await other.release()
    disk.close()
    assert texts(log.path) == ["busy", "waiting"]


async def test_a_cancelled_acquire_leaves_no_lock(tmp_path: Path, calls: BlockingCalls) -> None:
    disk = Disk(calls, threads=1)
    slow, log = await new_log(tmp_path / "s1.jsonl", disk), await new_log(tmp_path / "s2.jsonl", disk)
    async with slow.lock():
        first = await busy(slow, calls)
        acquire = asyncio.create_task(log.acquire())  # waits for the one thread
        await asyncio.sleep(0)
        acquire.cancel()
        await asyncio.sleep(0)
        calls.gate.set()
        with pytest.raises(asyncio.CancelledError):
            await acquire
        await first
    async with log.lock():
        await log.append(message("x"))
    disk.close()


async def test_waiting_writes_are_bounded(
    tmp_path: Path, calls: BlockingCalls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_log, "MAX_PENDING_BYTES", 2000)
    disk = Disk(calls)
    log = await new_log(tmp_path / "s1.jsonl", disk)
    async with log.lock():
        first = await busy(log, calls)
        second = asyncio.create_task(log.append(message("x" * 1000)))
        await asyncio.sleep(0)
        with pytest.raises(LimitExceeded, match="2000 bytes already wait to be written"):
            await log.append(message("y" * 1000))
        calls.gate.set()
        await asyncio.gather(first, second)
        await log.append(message("z" * 1000))
    disk.close()
    assert [text[0] for text in texts(log.path)] == ["b", "x", "z"]


# --- one writer

HOLDER = """
import asyncio, sys
from pathlib import Path
from yarrow.session.disk_access import Disk
from yarrow.session.session_log import SessionLog

async def main():
    log = await SessionLog.open(Path(sys.argv[1]), sync="message", disk=Disk())
    async with log.lock():
        print("held", flush=True)
        sys.stdin.read()

asyncio.run(main())
"""


@contextlib.contextmanager
def held_by_another_process(path: Path) -> Generator["subprocess.Popen[bytes]"]:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"held\n"
        yield child
        child.kill()


async def test_case_S_04_a_second_process_cannot_write_but_can_read(tmp_path: Path, disk: Disk) -> None:
    path = write_session(tmp_path / "s1.jsonl", header(), message("one"))
    log = await SessionLog.open(path, sync="message", disk=disk)
    with held_by_another_process(path) as child:
        with pytest.raises(Precondition, match=f"session s1 is locked by process {child.pid};") as caught:
            await log.acquire()
        assert caught.value.code is Code.LOCKED
        assert texts(path) == ["one"]
    async with log.lock() as grown:  # its lock died with it
        assert not grown
        await log.append(message("two"))
    assert texts(path) == ["one", "two"]


async def test_two_logs_in_one_process(tmp_path: Path, disk: Disk) -> None:
    one, two = await made_and_open(tmp_path / "s1.jsonl", disk)
    async with one.lock():
        for log in (one, two):
            with pytest.raises(Precondition, match="session s1 is locked by this process") as caught:
                await log.acquire()
            assert caught.value.code is Code.LOCKED
        await one.append(message("one"))
        with pytest.raises(Precondition):
            await two.append(message("two"))
    assert await two.acquire()
    assert texts(two.path) == ["one"]
    await two.append(message("two"))
    await two.close()
    assert await one.acquire()
    await one.append(message("three"))
    await one.release()
    assert not await one.acquire()  # no process but itself
    await one.close()
    assert texts(one.path) == ["one", "two", "three"]


async def test_a_grown_file_is_detected_after_opening(tmp_path: Path, disk: Disk) -> None:
    path = write_session(tmp_path / "s1.jsonl", header())
    log = await SessionLog.open(path, sync="message", disk=disk)
    write_session(path, header(), message("one"))
    async with log.lock() as grown:
        assert grown


async def test_the_lock_file_names_the_process_and_stays(tmp_path: Path, disk: Disk) -> None:
    log = await new_log(tmp_path / "s1.jsonl", disk)
    lock = tmp_path / "s1.lock"
    lock.write_text("99999999999999999\n")
    inode = lock.stat().st_ino
    async with log.lock():
        assert lock.read_text().split() == [str(os.getpid())]
    assert lock.stat().st_ino == inode


async def test_a_lock_that_cannot_be_created(tmp_path: Path, disk: Disk) -> None:
    log = await new_log(tmp_path / "s1.jsonl", disk)
    (tmp_path / "s1.lock").mkdir()
    with pytest.raises(StorageError, match=r"cannot lock the session .*: is a directory"):
        await log.acquire()


def handles() -> int:
    return len(names(Path("/dev/fd")))


async def test_an_unlocked_log_keeps_no_file_open(tmp_path: Path, disk: Disk) -> None:
    before = handles()
    logs = [await new_log(tmp_path / f"s{number}.jsonl", disk) for number in range(20)]
    for log in logs:
        async with log.lock():
            await log.append(message("x"))
            with pytest.raises(Precondition):
                await (await SessionLog.open(log.path, sync="message", disk=disk)).acquire()
    assert handles() == before


# --- a log that keeps nothing


async def test_an_in_memory_log_behaves_like_one_on_disk(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    logs: list[SessionLog | MemoryLog] = [MemoryLog("s1"), await new_log(tmp_path / "s1.jsonl", disk)]
    for each in logs:
        log: Log = each
        with pytest.raises(Precondition) as caught:
            await log.append(message("x"))
        assert caught.value.code is Code.NOT_RUNNING
        async with log.lock() as grown:
            assert not grown
            await log.append(message("x"), message("y"))
            await log.flush()
            with pytest.raises(Precondition, match="session s1 is locked by this process") as caught:
                await each.acquire()
            assert caught.value.code is Code.LOCKED
        await each.close()
        with pytest.raises(Precondition):
            await each.flush()
    assert names(tmp_path) == ["s1.jsonl", "s1.lock"]


# --- locked and appended in one call of the disk


async def test_the_first_records_are_appended_with_the_lock(tmp_path: Path, disk: Disk) -> None:
    log = await new_log(tmp_path / "s1.jsonl", disk)
    async with log.lock(message("one"), message("two")) as grown:
        assert not grown
        assert texts(log.path) == ["one", "two"]
        await log.append(message("three"))
    async with log.lock(message("four")) as grown:
        assert not grown
    assert texts(log.path) == ["one", "two", "three", "four"]


async def test_nothing_is_appended_with_the_lock_to_a_session_that_has_grown(tmp_path: Path, disk: Disk) -> None:
    one, two = await made_and_open(tmp_path / "s1.jsonl", disk)
    async with one.lock(message("one")):
        pass
    async with two.lock(message("unseen")) as grown:
        assert grown
        assert texts(two.path) == ["one"]
        await two.append(message("two"))
    assert texts(one.path) == ["one", "two"]


async def test_a_session_has_grown_after_a_cancelled_lock_with_first_records(tmp_path: Path) -> None:
    calls = BlockingCalls()
    disk = Disk(calls)
    log = await new_log(tmp_path / "s1.jsonl", disk)
    calls.blocked, calls.gate = threading.Semaphore(0), threading.Event()
    locking = asyncio.create_task(log.acquire(message("one")))
    await asyncio.to_thread(calls.blocked.acquire)
    locking.cancel()
    await asyncio.sleep(0)
    calls.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await locking
    assert texts(log.path) == ["one"]
    async with log.lock(message("two")) as grown:
        assert grown
    assert texts(log.path) == ["one"]
    disk.close()


async def test_a_lock_is_released_if_its_first_records_cannot_be_written(tmp_path: Path) -> None:
    calls = FaultyCalls()
    disk = Disk(calls)
    log = await new_log(tmp_path / "s1.jsonl", disk)
    calls.room = 0
    with pytest.raises(StorageError, match="1 new lines stay in memory"):
        await log.acquire(message("one"))
    with pytest.raises(LimitExceeded):
        await log.acquire(message("x" * MAX_LINE_BYTES))
    calls.room = None
    async with log.lock(message("two")) as grown:
        assert not grown
    assert texts(log.path) == ["one", "two"]
    disk.close()
