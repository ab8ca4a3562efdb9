"""Where sessions are kept and how one is found (cases S-05, S-08, S-09)."""

import os
import re
from pathlib import Path

import pytest
from session_samples import header, message, moment, names, write_session

from yarrow.errors import InvalidArgument, NotFound, Precondition, StorageError
from yarrow.session.disk_access import Disk
from yarrow.session.line_codec import encode_line
from yarrow.session.record import Change
from yarrow.session.session_draft import SessionDraft
from yarrow.session.session_file_reader import MAX_LINE_CHARACTERS
from yarrow.session.session_list import MAX_CANDIDATES, MAX_SLUG_CHARACTERS, project_dir
from yarrow.session.session_manager import SessionManager

HOSTILE = ["", "../x", "a/b", "/etc/passwd", "a.b", "x" * 65, "a\0b", "..", "ü"]
FILLER = [message("x" * 1000) for _ in range(30)]


def put(root: Path, session_id: str, *, cwd: str = "/t", name: str = "", text: str = "", at: float = 0) -> Path:
    """A session on the disk, last written at a moment."""
    said = [message(text or "hello", at=moment(at))]
    return write_session(project_dir(root, cwd) / f"{session_id}.jsonl", header(session_id, cwd=cwd, name=name), *said)


# --- projects


def test_case_S_05_six_projects_six_directories(tmp_path: Path) -> None:
    paths = ["a-b", "a/b", "項目", "測試", "a_b", "a.b"]
    found = [project_dir(tmp_path, f"/t/{path}") for path in paths]
    assert len(set(found)) == 6
    assert all(at.parent == tmp_path and re.fullmatch(r"[A-Za-z0-9._-]+-[0-9a-f]{12}", at.name) for at in found)
    assert [at.name[:-13] for at in found] == ["a-b", "b", "project", "project", "a_b", "a.b"]


async def test_case_S_05_one_project_does_not_see_another(manager: SessionManager) -> None:
    for number, path in enumerate(["/t/a-b", "/t/a/b", "/t/項目", "/t/測試", "/t/a_b", "/t/a.b"]):
        await manager.create(header(f"s{number}", cwd=path))
        assert [(head.id, head.header.cwd) for head in await manager.list_heads(path)] == [(f"s{number}", path)]
    assert len(await manager.list_heads()) == 6


@pytest.mark.parametrize("path", ["/", "/...", "/-", "/" + "long" * 30, "/ a  b ", "/a\nb", "/\udcff"])
def test_a_project_directory_is_always_a_plain_name(tmp_path: Path, path: str) -> None:
    name = project_dir(tmp_path, path).name
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*-[0-9a-f]{12}", name)
    assert len(name) <= MAX_SLUG_CHARACTERS + 13


def test_a_project_is_identified_by_its_real_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    found = [project_dir(tmp_path, str(tmp_path / path)) for path in ("real", "link", "real/../real/", "link/.")]
    assert len(set(found)) == 1
    assert found[0].name.startswith("real-")


# --- made, found, loaded


async def test_a_session_is_created_found_and_loaded(manager: SessionManager, root: Path) -> None:
    log = await manager.create(header("s1", cwd="/t/p"))
    assert log.path == project_dir(root, "/t/p") / "s1.jsonl"
    async with log.lock():
        await log.append(message("hello"))
    assert await manager.find("s1") == log.path
    loaded = await manager.load("s1")
    assert (loaded.header, len(loaded.records)) == (header("s1", cwd="/t/p"), 1)
    again = await manager.open("s1")
    assert again.path == log.path


async def test_a_missing_session_is_not_found(manager: SessionManager, root: Path) -> None:
    assert await manager.find("s1") is None
    assert await manager.find_newest("/t") is None
    assert await manager.list_heads() == []
    for look in (manager.load, manager.open, manager.resolve):
        with pytest.raises(NotFound, match=r"no session (matches )?'s1'"):
            await look("s1")
    assert not root.exists()


async def test_an_id_is_unique_across_projects(manager: SessionManager) -> None:
    await manager.create(header("s1", cwd="/t/a"))
    with pytest.raises(InvalidArgument, match="s1 already exists"):
        await manager.create(header("s1", cwd="/t/b"))


@pytest.mark.parametrize("text", HOSTILE)
async def test_a_hostile_id_never_becomes_a_path(manager: SessionManager, root: Path, text: str) -> None:
    root.mkdir()
    (root / "p").mkdir()
    write_session(root / "x.jsonl", header())
    for look in (manager.find, manager.load, manager.open):
        with pytest.raises(InvalidArgument, match="session_id: "):
            await look(text)
    with pytest.raises(InvalidArgument, match="session_id: "):
        await manager.create(header(text))
    with pytest.raises(NotFound):
        await manager.resolve(text)
    assert names(root) == ["p", "x.jsonl"]


async def test_case_S_09_an_id_on_disk_is_always_found(manager: SessionManager, root: Path) -> None:
    project = project_dir(root, "/t")
    write_session(project / "bare.jsonl", message("hello"))
    write_session(project / "other.jsonl", header("another"))
    empty = write_session(project / "empty.jsonl")
    for session_id in ("bare", "other", "empty"):
        assert await manager.find(session_id)
        assert await manager.resolve(session_id) == session_id
    assert (await manager.load("bare")).header.id == "bare"
    assert (await manager.load("other")).header.id == "other"  # the file's name is what locks and finds it
    with pytest.raises(StorageError, match=re.escape(f"{empty} is empty and contains no session")):
        await manager.load("empty")
    listed = {head.id: head.title for head in await manager.list_heads("/t")}
    assert listed["bare"] == "hello"
    assert "is empty and contains no session" in listed["empty"]


async def test_case_S_08_a_session_with_a_missing_parent_is_listed_and_opens(manager: SessionManager) -> None:
    await manager.create(header("s1", parent_id="nowhere"))
    assert [head.header.parent_id for head in await manager.list_heads("/t")] == ["nowhere"]
    assert (await manager.load("s1")).header.parent_id == "nowhere"


async def test_a_session_directory_that_is_a_file(tmp_path: Path, disk: Disk) -> None:
    (tmp_path / "file").write_text("")
    manager = SessionManager(tmp_path / "file", sync="message", disk=disk)
    for look in (manager.list_heads(), manager.find("s1"), manager.create(header())):
        with pytest.raises(StorageError, match=r"cannot read the sessions in .*file: not a"):
            await look


def test_the_home_directory(tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert SessionManager(Path("~/.yarrow/sessions"), sync="none", disk=disk).root == tmp_path / ".yarrow" / "sessions"


# --- listed


async def test_lists_are_newest_first_and_of_one_project_or_all(manager: SessionManager, root: Path) -> None:
    for number, at in enumerate([3, 1, 2]):
        put(root, f"a{number}", cwd="/t/a", at=at)
        put(root, f"b{number}", cwd="/t/b", at=at + 0.5)
    assert [head.id for head in await manager.list_heads("/t/a")] == ["a0", "a2", "a1"]
    assert [head.id for head in await manager.list_heads()] == ["b0", "a0", "b2", "a2", "b1", "a1"]
    assert await manager.find_newest("/t/b") == "b0"


async def test_the_latest_session_is_determined_by_its_records(manager: SessionManager, root: Path) -> None:
    new, old = put(root, "new", at=9), put(root, "old", at=1)
    os.utime(new, (1, 1))
    os.utime(old, None)
    assert await manager.find_newest("/t") == "new"


async def test_other_files_are_not_sessions(manager: SessionManager, root: Path) -> None:
    path = put(root, "s1")
    for name in ("s1.lock", ".draft.jsonl", "a.b.jsonl", "s2.json"):
        (path.parent / name).write_text("")
    (path.parent / "s3.jsonl").mkdir()
    (root / "stray.jsonl").write_text("")
    assert [head.id for head in await manager.list_heads()] == ["s1"]


# --- meant


async def test_exact_id_prefix_suffix_and_name(manager: SessionManager, root: Path) -> None:
    # Drawn ids may end in what the other session is called.
    one, two = f"{'1' * 28}2345", f"{'6' * 28}7890"
    put(root, one, cwd="/t/a", name="parser work")
    put(root, two, cwd="/t/b", name="abc")
    for text in (one, one[-8:], one[-4:], one[:-3], "parser work"):
        assert await manager.resolve(text) == one
    assert await manager.resolve("abc") == two
    for text in (one[-3:], "parser", "ABC", ""):
        with pytest.raises(NotFound):
            await manager.resolve(text)


async def test_an_exact_id_wins_over_parts_and_parts_win_over_names(manager: SessionManager, root: Path) -> None:
    put(root, "work")
    put(root, "homework", name="gone")
    put(root, "other", name="home")
    assert await manager.resolve("work") == "work"
    assert await manager.resolve("home") == "homework"


async def test_the_present_name_counts(manager: SessionManager, root: Path) -> None:
    renamed = put(root, "s1", name="old")
    change = encode_line(Change(timestamp=moment(1), name="new"))
    renamed.write_bytes(renamed.read_bytes() + change + b"".join(map(encode_line, FILLER)))
    assert await manager.resolve("new") == "s1"
    with pytest.raises(NotFound):
        await manager.resolve("old")


async def test_ambiguous_matches_are_listed(manager: SessionManager, root: Path) -> None:
    for number in range(7):
        put(root, f"same-{number}", name="named" if number == 6 else "", text=f"do {number}", at=number)
    with pytest.raises(InvalidArgument) as caught:
        await manager.resolve("same")
    assert caught.value.message == (
        "session_id: 'same' matches 7 sessions; add to the id: "
        "same-6 (named); same-5 (do 5); same-4 (do 4); same-3 (do 3); same-2 (do 2); and 2 more"
    )
    put(root, "z1", name="twin")
    put(root, "z2", name="twin")
    with pytest.raises(InvalidArgument, match="2 sessions are named 'twin': use an id: "):
        await manager.resolve("twin")


async def test_a_session_not_found_suggests_similar_ones(manager: SessionManager, root: Path) -> None:
    put(root, "0193aaaa-0000-7000-8000-0000deadbeef", text="fix it")
    for number in range(MAX_CANDIDATES + 2):
        put(root, f"session-{number}")
    with pytest.raises(NotFound, match=r"no session matches 'deadbeed'; did you mean 0193\S+ \(fix it\)$"):
        await manager.resolve("deadbeed")
    with pytest.raises(NotFound) as caught:
        await manager.resolve("session-x")
    assert caught.value.message.count("(hello)") == MAX_CANDIDATES
    with pytest.raises(NotFound, match=r"no session matches '\?'; give at least 4 characters of the id$"):
        await manager.resolve("?")


# --- deleting, searching, making whole


async def test_a_session_is_deleted_with_all_its_files(manager: SessionManager, root: Path) -> None:
    path = put(root, "abcdefgh")
    blob = path.with_suffix(".blobs") / "x"
    blob.parent.mkdir()
    blob.write_text("y")
    await manager.delete("abcdefgh")
    assert not path.exists()
    assert not blob.exists()
    assert await manager.find("abcdefgh") is None
    with pytest.raises(NotFound):
        await manager.delete("abcdefgh")


async def test_a_session_being_written_is_not_deleted(manager: SessionManager, root: Path) -> None:
    path = put(root, "abcdefgh")
    log = await manager.open("abcdefgh")
    async with log.lock():
        with pytest.raises(Precondition, match="this process"):
            await manager.delete("abcdefgh")
    assert path.exists()
    await manager.delete("abcdefgh")


@pytest.mark.parametrize("hostile", HOSTILE)
async def test_an_invalid_id_deletes_nothing(manager: SessionManager, root: Path, hostile: str) -> None:
    path = put(root, "abcdefgh")
    with pytest.raises(InvalidArgument):
        await manager.delete(hostile)
    assert path.exists()


@pytest.mark.parametrize(
    ("said", "wanted", "line"),
    [
        ("Grüße aus KÖLN", "köln", "Grüße aus KÖLN"),
        ("Grüße aus KÖLN", "grüsse", "Grüße aus KÖLN"),
        ('a "quoted" line\nand more', 'quoted" line', 'a "quoted" line'),
        ("one\ntwo three\nfour", "THREE\nfour", "two three"),
        ("a\tb", "a\tb", "a b"),
        ("back\\slash", "BACK\\SLASH", "back\\slash"),
        ("x" * 300 + " needle " + "y" * 300, "needle", f"…{'x' * (30 - 1)} needle {'y' * (MAX_LINE_CHARACTERS - 37)}…"),
        ("hello world", "hello  world", None),
        ("hello", "role", None),
        ("hello", "user", None),
        ("項目", "項", "項目"),
    ],
)
async def test_searching(manager: SessionManager, root: Path, said: str, wanted: str, line: str | None) -> None:
    put(root, "abcdefgh", text=said)
    put(root, "other-project", cwd="/u", text=said)
    found = [(head.id, shown) for head, shown in await manager.search("/t", wanted)]
    assert found == ([] if line is None else [("abcdefgh", line)])
    assert len(await manager.search(None, wanted)) == (0 if line is None else 2)


async def test_a_session_is_created_completely_or_not_at_all(manager: SessionManager, root: Path) -> None:
    entries = (message("one"), message("two"))
    await manager.create_from(SessionDraft(header("abcdefgh"), entries))
    loaded = await manager.load("abcdefgh")
    assert [stored.value.text for stored in loaded.records if hasattr(stored.value, "text")] == ["one", "two"]  # pyright: ignore
    with pytest.raises(InvalidArgument, match="already exists"):
        await manager.create_from(SessionDraft(header("abcdefgh", cwd="/elsewhere"), entries))
    assert [path.name for path in root.rglob("*") if path.is_file()] == ["abcdefgh.jsonl"]
