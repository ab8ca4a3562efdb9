"""Disks that are full, fail or take little at a time: nothing is lost, nothing is fused (case S-02)."""

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from session_disks import FaultyCalls
from session_samples import header, message, names, texts, write_session

from yarrow.errors import Code, StorageError
from yarrow.session.disk_access import Disk
from yarrow.session.line_codec import encode_line
from yarrow.session.session_file_reader import load_session
from yarrow.session.session_log import SessionLog, SyncMode


@pytest.fixture
def calls() -> FaultyCalls:
    return FaultyCalls()


@pytest.fixture
async def log(calls: FaultyCalls, tmp_path: Path) -> AsyncGenerator[SessionLog]:
    disk = Disk(calls)
    log = await SessionLog.create(tmp_path / "s1.jsonl", header(), sync="message", disk=disk)
    async with log.lock():
        yield log
    disk.close()


@pytest.mark.parametrize("rolled_back", [True, False])
async def test_case_S_02_disk_full_after_40_bytes(log: SessionLog, calls: FaultyCalls, rolled_back: bool) -> None:
    await log.append(message("before"))
    before = log.path.read_bytes()
    calls.room, calls.truncate_works = 40, rolled_back
    with pytest.raises(StorageError) as caught:
        await log.append(message("full"))
    assert caught.value.code is Code.STORAGE
    assert str(log.path) in caught.value.message
    assert "no space left on the device; free some space" in caught.value.message
    assert "1 new lines stay in memory" in caught.value.message
    assert len(log.path.read_bytes()) == len(before) + (0 if rolled_back else 40)
    assert texts(log.path) == ["before"]
    calls.room = None
    await log.append(message("after"))
    assert texts(log.path) == ["before", "full", "after"]
    assert log.path.read_bytes().startswith(before)
    assert load_session(log.path).report.skipped_count == (0 if rolled_back else 1)


async def test_completely_written_records_are_not_written_twice(log: SessionLog, calls: FaultyCalls) -> None:
    records = [message(str(number)) for number in range(5)]
    calls.room, calls.truncate_works = sum(len(encode_line(record)) for record in records[:3]) + 7, False
    with pytest.raises(StorageError, match="2 new lines stay"):
        await log.append(*records)
    assert texts(log.path) == ["0", "1", "2"]
    with pytest.raises(StorageError, match="3 new lines stay"):
        await log.append(message("5"))
    calls.room = None
    await log.flush()
    assert texts(log.path) == ["0", "1", "2", "3", "4", "5"]


async def test_a_full_disk_with_a_torn_line(calls: FaultyCalls, tmp_path: Path) -> None:
    disk = Disk(calls)
    path = write_session(tmp_path / "s1.jsonl", header(), tail=b'{"kind":"mess')
    torn = path.read_bytes()
    log = await SessionLog.open(path, sync="message", disk=disk)
    async with log.lock():
        calls.room = 0
        with pytest.raises(StorageError):
            await log.append(message("one"))
        assert path.read_bytes() == torn
        calls.room = 1  # the newline alone fits
        calls.truncate_works = False
        with pytest.raises(StorageError):
            await log.flush()
        assert path.read_bytes() == torn + b"\n"
        calls.room = None
        await log.append(message("two"))
    disk.close()
    assert texts(path) == ["one", "two"]


@pytest.mark.parametrize("most", [1, 7, 100])
async def test_short_writes(log: SessionLog, calls: FaultyCalls, most: int) -> None:
    calls.most = most
    records = [message(str(number)) for number in range(3)]
    await log.append(*records)
    assert log.path.read_bytes() == b"".join(map(encode_line, [header(), *records]))


async def test_a_write_of_zero_bytes_is_an_error(log: SessionLog, calls: FaultyCalls) -> None:
    calls.most = 0
    with pytest.raises(StorageError, match="input/output error; check the disk"):
        await log.append(message("one"))
    calls.most = None
    await log.append(message("two"))
    assert texts(log.path) == ["one", "two"]


@pytest.mark.parametrize("rolled_back", [True, False])
async def test_a_failed_sync_is_not_repeated(log: SessionLog, calls: FaultyCalls, rolled_back: bool) -> None:
    await log.append(message("one"))
    calls.failing_syncs, calls.truncate_works = {calls.syncs + 1}, rolled_back
    with pytest.raises(StorageError, match="input/output error; check the disk"):
        await log.append(message("two"))
    if rolled_back:
        assert texts(log.path) == ["one"]
    calls.writes.clear()
    await log.append(message("three"))
    assert texts(log.path) == ["one", "two", "three"]
    assert b'"two"' in b"".join(calls.writes)  # written again, since the system may have dropped the first


async def test_a_persistently_failing_disk(log: SessionLog, calls: FaultyCalls) -> None:
    calls.failing_syncs = set(range(calls.syncs + 1, calls.syncs + 5))
    for number in range(4):
        with pytest.raises(StorageError):
            await log.append(message(str(number)))
    await log.append(message("4"))
    assert texts(log.path) == ["0", "1", "2", "3", "4"]


@pytest.mark.parametrize("sync", ["message", "run", "none"])
async def test_syncs_by_setting(calls: FaultyCalls, tmp_path: Path, sync: SyncMode) -> None:
    disk = Disk(calls)
    log = await SessionLog.create(tmp_path / "s1.jsonl", header(), sync=sync, disk=disk)
    counts = [calls.syncs]
    async with log.lock():
        for _ in range(3):
            await log.append(message("x"))
        counts.append(calls.syncs)
        await log.flush()
        await log.flush()
        counts.append(calls.syncs)
        await log.append(message("x"))
    counts.append(calls.syncs)
    again = await SessionLog.open(log.path, sync=sync, disk=disk)
    async with again.lock():
        await again.flush()
    counts.append(calls.syncs)
    disk.close()
    assert texts(log.path) == ["x"] * 4
    expected = {"message": [2, 5, 5, 6, 6], "run": [2, 2, 3, 4, 4], "none": [0, 0, 0, 0, 0]}
    assert counts == expected[sync]


async def test_a_flush_that_failed_writes_the_run_again(calls: FaultyCalls, tmp_path: Path) -> None:
    disk = Disk(calls)
    log = await SessionLog.create(tmp_path / "s1.jsonl", header(), sync="run", disk=disk)
    async with log.lock():
        await log.append(message("one"), message("two"))
        calls.failing_syncs = {calls.syncs + 1}
        with pytest.raises(StorageError):
            await log.flush()
        assert texts(log.path) == ["one", "two"]
        calls.writes.clear()
        before = calls.syncs
        await log.flush()
        assert b"".join(calls.writes).count(b'"message"') == 2
        assert calls.syncs == before + 1
    disk.close()
    assert texts(log.path) == ["one", "two"]


async def test_rejected_records_are_kept_and_written_at_the_end(calls: FaultyCalls, tmp_path: Path) -> None:
    disk = Disk(calls)
    log = await SessionLog.create(tmp_path / "s1.jsonl", header(), sync="message", disk=disk)
    async with log.lock():
        calls.room = 10
        with pytest.raises(StorageError):
            await log.append(message("one"))
    with pytest.raises(StorageError):
        await log.close()
    calls.room = None
    await log.close()
    await log.close()
    disk.close()
    assert texts(log.path) == ["one"]


async def test_after_a_failed_sync_another_process_may_have_written(calls: FaultyCalls, tmp_path: Path) -> None:
    disk = Disk(calls)
    path = tmp_path / "s1.jsonl"
    log = await SessionLog.create(path, header(), sync="message", disk=disk)
    other = await SessionLog.open(path, sync="message", disk=disk)
    async with log.lock():
        calls.failing_syncs = {calls.syncs + 1}
        with pytest.raises(StorageError):
            await log.append(message("one"))
    async with other.lock():
        await other.append(message("two"))
    async with log.lock() as grown:
        assert grown
        await log.append(message("three"))
    disk.close()
    assert texts(path) == ["two", "one", "three"]


@pytest.mark.parametrize("failing", ["write", "sync of the file", "sync of the directory"])
async def test_a_failed_creation_leaves_nothing(calls: FaultyCalls, tmp_path: Path, failing: str) -> None:
    disk = Disk(calls)
    if failing == "write":
        calls.room = 10
    else:
        calls.failing_syncs = {1 if failing == "sync of the file" else 2}
    cause = "no space left on the device" if failing == "write" else "input/output error"
    with pytest.raises(StorageError, match=rf"cannot create the session .*s1\.jsonl: {cause}"):
        await SessionLog.create(tmp_path / "s1.jsonl", header(), sync="message", disk=disk)
    assert names(tmp_path) == []
    disk.close()
