"""Large contents beside a session's file: whole or missing, never half, and never a reason to lose the session."""

import base64
import errno
import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from session_disks import FaultyCalls
from session_samples import NOW, header, ids, message, names, patient, texts, write_session

from yarrow.errors import InvalidArgument, LimitExceeded, StorageError
from yarrow.message import Block, Image, Message, Role, Text, Thinking, Usage
from yarrow.session import derived_sessions
from yarrow.session.blobs import MAX_INLINE_BYTES, blob_folder_for, read_blob
from yarrow.session.disk_access import Disk
from yarrow.session.export_import import ImportSpool, export_lines
from yarrow.session.line_codec import MAX_LINE_BYTES, UnknownRecord, seal
from yarrow.session.record import Queued, Record
from yarrow.session.session_draft import SessionDraft
from yarrow.session.session_file_reader import MAX_DESCRIBED_PROBLEMS, load_session
from yarrow.session.session_list import project_dir
from yarrow.session.session_log import SessionLog
from yarrow.session.session_manager import SessionManager

PICTURE = bytes(range(256)) * 400
IMAGE = Image("image/png", base64.b64encode(PICTURE).decode())
LONG = "ä\u2028 long output\n" * 6000


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def of(*content: Block, role: Role = Role.TOOL, message_id: str = "m1") -> Message:
    return Message(id=message_id, role=role, content=content, timestamp=NOW, tool_call_id="c")


def naming(blob: object, *, kind: str = "image") -> bytes:
    """A line of a message with one block that names a blob."""
    data = '"data":"","mediaType":"image/png"' if kind == "image" else '"text":""'
    block = f'{{"type":"{kind}",{data},"new":1,"blob":"{blob}"}}'
    return seal(f'{{"kind":"message","id":"m1","role":"user","timestamp":"{NOW}","content":[{block}]}}'.encode())


async def kept(path: Path, disk: Disk, *records: Record) -> tuple[Record | UnknownRecord, ...]:
    """Write records to a new session and return what is read back."""
    log = await SessionLog.create(path, header(path.stem), sync="message", disk=disk)
    async with log.lock():
        await log.append(*records)
    return tuple(stored.value for stored in load_session(path).records)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s1.jsonl"


# --- written and read


async def test_large_contents_are_stored_in_blobs_and_restored(path: Path, disk: Disk) -> None:
    queued = Queued(id="q1", timestamp=NOW, mode="steer", content=(IMAGE,))
    assert await kept(path, disk, of(IMAGE, Text(LONG), Text("short")), queued) == (
        of(IMAGE, Text(LONG), Text("short")),
        queued,
    )
    assert names(blob_folder_for(path)) == sorted([digest(PICTURE), digest(LONG.encode())])
    assert (blob_folder_for(path) / digest(PICTURE)).read_bytes() == PICTURE
    assert path.stat().st_size < 2000
    assert path.read_bytes().count(b'"data":"","blob":"' + digest(PICTURE).encode()) == 2
    assert load_session(path).report.warnings() == ()


async def test_blobs_are_private_to_their_owner(path: Path, disk: Disk) -> None:
    old = os.umask(0)
    try:
        await kept(path, disk, of(IMAGE))
    finally:
        os.umask(old)
    modes = [stat.S_IMODE(at.stat().st_mode) for at in (blob_folder_for(path), blob_folder_for(path) / digest(PICTURE))]
    assert modes == [0o700, 0o600]


@pytest.mark.parametrize(
    "stays",
    [
        of(Text("x" * MAX_INLINE_BYTES)),
        of(Text(LONG), role=Role.USER),
        of(Thinking(LONG), role=Role.ASSISTANT),
        of(Image("image/png", "A" * MAX_INLINE_BYTES)),
        of(Image("image/png", "no base64!" * MAX_INLINE_BYTES)),
        of(Image("image/png", "ü" * MAX_INLINE_BYTES + "!")),
        of(Image("image/png", "A" * MAX_INLINE_BYTES + "AAA/=AAA")),
    ],
    ids=["limit", "user", "thinking", "small image", "no base64", "no ascii", "other base64"],
)
async def test_contents_that_stay_in_their_line(path: Path, disk: Disk, stays: Message) -> None:
    assert await kept(path, disk, stays) == (stays,)
    assert not blob_folder_for(path).exists()


@patient
@given(
    st.integers(0, 3),
    st.sampled_from([MAX_INLINE_BYTES // 2, MAX_INLINE_BYTES - 1, MAX_INLINE_BYTES, MAX_INLINE_BYTES + 1]),
    st.sampled_from("aä🌍"),
)
async def test_contents_of_any_size_round_trip(
    tmp_path_factory: pytest.TempPathFactory, more: int, size: int, letter: str
) -> None:
    disk = Disk()
    path = tmp_path_factory.mktemp("s") / "s1.jsonl"
    text = letter * (size // len(letter.encode())) + "." * more
    image = Image("image/png", base64.b64encode(b"x" * (size * 3 // 4 + more)).decode())
    assert await kept(path, disk, of(Text(text), image)) == (of(Text(text), image),)
    large = {text.encode()} if len(text.encode()) > MAX_INLINE_BYTES else set[bytes]()
    large |= {base64.b64decode(image.data)} if len(image.data) > MAX_INLINE_BYTES else set[bytes]()
    assert (set(names(blob_folder_for(path))) if large else set[str]()) == {digest(content) for content in large}
    disk.close()


async def test_a_record_that_could_not_be_exported_is_rejected(path: Path, disk: Disk) -> None:
    log = await SessionLog.create(path, header(), sync="none", disk=disk)
    async with log.lock():
        with pytest.raises(LimitExceeded):
            await log.append(of(Image("image/png", "A" * MAX_LINE_BYTES)))
    assert not blob_folder_for(path).exists()


# --- missing and hostile


def linked(blob: Path) -> None:
    blob.rename(blob.with_name("elsewhere"))
    blob.symlink_to(blob.with_name("elsewhere"))


def folder_linked(blob: Path) -> None:
    blob.parent.rename(blob.parent.with_name("elsewhere"))
    blob.parent.symlink_to(blob.parent.with_name("elsewhere"))


def replaced_by(make: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda blob: (blob.unlink(), make(blob))


@pytest.mark.parametrize(
    "harm",
    [
        Path.unlink,
        lambda blob: blob.write_bytes(PICTURE[:-1]),
        lambda blob: blob.write_bytes(b"y" + PICTURE[1:]),
        lambda blob: os.truncate(blob, MAX_LINE_BYTES + 1),
        linked,
        folder_linked,
        replaced_by(Path.mkdir),
        replaced_by(os.mkfifo),
    ],
    ids=["gone", "short", "changed", "huge", "link", "folder link", "directory", "pipe"],
)
async def test_a_damaged_blob_loses_only_its_block(path: Path, disk: Disk, harm: Callable[[Path], object]) -> None:
    await kept(path, disk, of(Text("before"), IMAGE, Text("after")))
    harm(blob_folder_for(path) / digest(PICTURE))
    loaded = load_session(path)
    told = f"was an image whose content is missing or damaged, blob {digest(PICTURE)}"
    assert [stored.value for stored in loaded.records] == [
        of(Text("before"), Text(f"[This block {told}.]"), Text("after"))
    ]
    assert loaded.report.warnings() == (f"A block on line 2 {told}.",)


@pytest.mark.parametrize(
    "name", ["../secret", "/etc/passwd", "", "A" * 64, "a" * 63, "a" * 64 + "/..", "a" * 64 + "\\n"]
)
def test_a_hostile_name_is_never_a_path(path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    blob_folder_for(path).mkdir()
    (path.parent / "secret").write_text("secret")
    write_session(path, header(), tail=naming(name, kind="text"))
    (value,) = (stored.value for stored in load_session(path).records)
    assert isinstance(value, Message)
    expected = "[This block was a text whose content is missing or damaged, a blob without a SHA-256 name.]"
    assert value.text == (expected if name else "")
    monkeypatch.setattr(os, "open", pytest.fail)
    assert read_blob(path, name) is None


def test_the_report_of_missing_blobs_is_bounded(path: Path) -> None:
    write_session(path, header(), tail=naming("f" * 64) * (MAX_DESCRIBED_PROBLEMS + 5))
    warnings = load_session(path).report.warnings()
    assert len(warnings) == MAX_DESCRIBED_PROBLEMS + 1
    assert warnings[-1] == "5 more blobs of the session are missing or damaged."


async def test_a_damaged_blob_is_replaced_when_stored_again(path: Path, disk: Disk) -> None:
    await kept(path, disk, of(IMAGE))
    (blob_folder_for(path) / digest(PICTURE)).write_bytes(b"damaged")
    log = await SessionLog.open(path, sync="message", disk=disk)
    async with log.lock():
        await log.append(of(IMAGE, message_id="m2"))
    assert [stored.value for stored in load_session(path).records] == [of(IMAGE), of(IMAGE, message_id="m2")]


async def test_leftovers_of_a_killed_process_are_harmless(path: Path, disk: Disk) -> None:
    blob_folder_for(path).mkdir(mode=0o700)
    (blob_folder_for(path) / ".0190.draft").write_bytes(PICTURE[:100])
    (blob_folder_for(path) / digest(PICTURE)).write_bytes(PICTURE)
    assert await kept(path, disk, of(IMAGE)) == (of(IMAGE),)
    assert names(blob_folder_for(path)) == [".0190.draft", digest(PICTURE)]


async def test_a_repeated_image_is_in_memory_once(path: Path, disk: Disk) -> None:
    values = await kept(path, disk, of(IMAGE, IMAGE), of(IMAGE))
    images = [image for value in values if isinstance(value, Message) for image in value.images]
    assert len(images) == 3
    assert len({id(image.data) for image in images}) == 1


# --- a disk that refuses


@pytest.mark.parametrize("room", [0, 5000, len(PICTURE), len(PICTURE) + 20])
async def test_a_full_disk_leaves_no_partial_blob(path: Path, room: int) -> None:
    calls = FaultyCalls()
    disk = Disk(calls)
    log = await SessionLog.create(path, header(), sync="message", disk=disk)
    async with log.lock():
        calls.room = room
        with pytest.raises(StorageError, match="no space left"):
            await log.append(of(IMAGE))
        assert load_session(path).records == ()
        whole = [digest(PICTURE)] if room >= len(PICTURE) else []
        assert names(blob_folder_for(path)) == whole
        calls.room = None
        await log.append(of(Text("next"), message_id="m2"))
    assert [stored.value for stored in load_session(path).records] == [of(IMAGE), of(Text("next"), message_id="m2")]
    disk.close()


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 6])
async def test_a_failed_sync_of_a_blob_is_an_error_and_repaired(path: Path, number: int) -> None:
    calls = FaultyCalls()
    disk = Disk(calls)
    log = await SessionLog.create(path, header(), sync="message", disk=disk)
    async with log.lock():
        calls.failing_syncs = {calls.syncs + number}
        with pytest.raises(StorageError, match="input/output error; check the disk"):
            await log.append(of(IMAGE))
        await log.append(message("next"))
    assert [type(stored.value) for stored in load_session(path).records] == [Message, Message]
    assert load_session(path).report.warnings() == ()
    disk.close()


# --- copies


def made(root: Path, session_id: str) -> Path:
    return project_dir(root, "/t") / f"{session_id}.jsonl"


async def parent_of(root: Path, disk: Disk) -> Path:
    path = made(root, "parent")
    await kept(path, disk, message("hello"), of(IMAGE, Thinking("t", "sealed")), of(Text(LONG), message_id="m2"))
    return path


@pytest.mark.parametrize("how", ["branch", "fork", "rebase", "merge"])
async def test_a_copy_is_independent_of_its_source(root: Path, manager: SessionManager, disk: Disk, how: str) -> None:
    parent = await parent_of(root, disk)
    loaded = load_session(parent)
    drafts: dict[str, Callable[[], SessionDraft]] = {
        "branch": lambda: derived_sessions.branch(loaded, None, new_id="child", timestamp=NOW),
        "fork": lambda: derived_sessions.fork(loaded, new_id="child", timestamp=NOW),
        "rebase": lambda: derived_sessions.rebase(loaded, [1, 2], new_id="child", timestamp=NOW).draft,
        "merge": lambda: derived_sessions.merge(
            load_session(write_session(made(root, "other"), header("other"), message("x"))),
            loaded,
            new_id="child",
            synthesis=(message("q"), message("joined", role=Role.ASSISTANT)),
            summary=None,
        ),
    }
    await manager.create_from(drafts[how]())
    blobs = blob_folder_for(made(root, "child"))
    assert names(blobs) == names(blob_folder_for(parent))
    assert all((blobs / name).stat().st_ino == (blob_folder_for(parent) / name).stat().st_ino for name in names(blobs))
    await manager.delete("parent")
    assert not blob_folder_for(parent).exists()
    child = load_session(made(root, "child"))
    said = [stored.value for stored in child.records if isinstance(stored.value, Message)]
    assert [image for each in said for image in each.images] == [IMAGE]
    assert LONG in [each.text for each in said]
    assert child.report.warnings() == ()
    assert made(root, "child").stat().st_size < MAX_INLINE_BYTES


async def test_a_copy_without_hard_links(
    root: Path, manager: SessionManager, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = await parent_of(root, disk)

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", refuse)
        await manager.create_from(derived_sessions.fork(load_session(parent), new_id="child", timestamp=NOW))
    await manager.delete("parent")
    assert load_session(made(root, "child")).report.warnings() == ()
    assert (blob_folder_for(made(root, "child")) / digest(PICTURE)).read_bytes() == PICTURE


async def test_a_missing_blob_stays_missing_in_a_copy(root: Path, manager: SessionManager, disk: Disk) -> None:
    parent = await parent_of(root, disk)
    (blob_folder_for(parent) / digest(PICTURE)).unlink()
    await manager.create_from(derived_sessions.branch(load_session(parent), None, new_id="child", timestamp=NOW))
    assert load_session(made(root, "child")).report.warnings() == load_session(parent).report.warnings() != ()
    assert made(root, "child").read_bytes().splitlines()[1:] == parent.read_bytes().splitlines()[1:]


async def test_export_and_import_carry_the_contents(root: Path, manager: SessionManager, disk: Disk) -> None:
    parent = await parent_of(root, disk)
    lines = list(export_lines(load_session(parent), manager.blob_reader("parent")))
    await manager.delete("parent")
    with ImportSpool(await manager.make_root()) as incoming:
        for line in lines:
            incoming.feed(line)
        draft = derived_sessions.import_copy(incoming.finish(), new_id="child", cwd="/t", timestamp=NOW)
        await manager.create_from(draft)
    assert names(blob_folder_for(made(root, "child"))) == sorted([digest(PICTURE), digest(LONG.encode())])
    assert made(root, "child").stat().st_size < MAX_INLINE_BYTES
    values = [stored.value for stored in load_session(made(root, "child")).records]
    assert values[1:] == [of(IMAGE, Thinking("t", "sealed")), of(Text(LONG), message_id="m2")]


async def test_unknown_fields_survive_moving_content_to_a_blob(root: Path, manager: SessionManager) -> None:
    block = f'{{"new":[1.50],"type":"image","mediaType":"image/png","data":"{IMAGE.data}"}}'
    line = f'{{"kind":"message","id":"m1","role":"user","timestamp":"{NOW}","content":[{block}],"later":1.0}}'
    with ImportSpool(await manager.make_root()) as incoming:
        incoming.feed(line.encode())
        draft = derived_sessions.import_copy(incoming.finish(), new_id="child", cwd="/t", timestamp=NOW)
        await manager.create_from(draft)
    raw = made(root, "child").read_bytes()
    assert b'"new":[1.50]' in raw
    assert b'"later":1.0' in raw
    assert len(raw) < 2000
    assert read_blob(made(root, "child"), digest(PICTURE)) == PICTURE
    assert load_session(made(root, "child")).report.warnings() == ()


async def test_a_failed_copy_leaves_nothing(root: Path, disk: Disk) -> None:
    parent = await parent_of(root, disk)
    calls = FaultyCalls()
    calls.room = 100
    other = Disk(calls)
    with pytest.raises(StorageError, match="no space left"):
        await SessionManager(root, sync="message", disk=other).create_from(
            derived_sessions.fork(load_session(parent), new_id="child", timestamp=NOW)
        )
    assert names(parent.parent) == ["parent.blobs", "parent.jsonl", "parent.lock"]
    other.close()


async def test_an_existing_id_keeps_its_blobs(root: Path, manager: SessionManager, disk: Disk) -> None:
    parent = await parent_of(root, disk)
    with pytest.raises(InvalidArgument, match="already exists"):
        await manager.create_from(derived_sessions.fork(load_session(parent), new_id="parent", timestamp=NOW))
    assert load_session(parent).report.warnings() == ()


async def test_a_search_covers_blobs(root: Path, manager: SessionManager, disk: Disk) -> None:
    await parent_of(root, disk)
    assert [head.id for head, _ in await manager.search("/t", "LONG output")] == ["parent"]


# --- before blobs


def test_a_file_without_blobs_is_still_read() -> None:
    path = Path(__file__).parent.parent / "fixtures" / "sessions" / "v1-before-blobs.jsonl"
    loaded = load_session(path)
    assert loaded.report.warnings() == ()
    assert ids(path) == ["m1", "m2", "m3"]
    assert texts(path) == ["look", "I look.", "seen"]
    values = [stored.value for stored in loaded.records]
    assert isinstance(values[0], Message)
    assert values[0].images == (Image("image/png", "iVBORw0KGgo="),)
    assert isinstance(values[1], Message)
    assert values[1].usage == Usage(10, 5, cache_read=3)


def test_thinking_is_part_of_the_output() -> None:
    total = Usage(1, 20, thinking=15) + Usage(2, 10, thinking=4)
    assert total == Usage(3, 30, thinking=19)
    assert total.context == 33
