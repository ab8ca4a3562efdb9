"""Files that a command moves out of the workspace into the session's own directories are not lost."""

import os
import shutil
from pathlib import Path

import pytest
from sandboxed import PYTHON, git

from yarrow.policy.sandbox.quarantine import STORE, list_entries, restore
from yarrow.policy.sandbox_factory import SandboxFactory
from yarrow.policy.workspace import Workspace
from yarrow.tool.base import Done, ToolContext, ToolFailed
from yarrow.tool.bash import Bash, BashArguments

pytestmark = pytest.mark.xdist_group("sandbox")


class Session:
    """A session with a workspace in a home."""

    def __init__(self, root: Path) -> None:
        self.home, self.ws = root / "home", root / "home/ws"
        self.store = root / "notes" / STORE
        (self.ws / "plans/deep").mkdir(parents=True)
        for name in ("notes.md", "plans/a.txt", "plans/deep/b.txt"):
            (self.ws / name).write_text(f"{name} is mine\n")
            os.utime(self.ws / name, (1_700_000_000, 1_700_000_000))
        for name in ("plans/deep", "plans"):
            os.utime(self.ws / name, (1_700_000_000, 1_700_000_000))
        self.boxes = SandboxFactory("workspace", home=self.home, journal_dir=root / "notes")
        self.workspace = Workspace.make(self.ws)

    def files(self) -> dict[str, tuple[str, int, int]]:
        """Return content, mode and time of each file of the workspace."""
        return {
            str(path.relative_to(self.ws)): (path.read_text(), path.stat().st_mode, path.stat().st_mtime_ns)
            for path in self.ws.rglob("*")
            if path.is_file()
        }

    async def run(self, script: str) -> str:
        """Run a script, end the session, and return the result."""
        context = ToolContext(
            cwd=self.ws, workspace=self.workspace, sandbox=self.boxes.create("session", self.workspace)
        )
        results = [result async for result in Bash().run(BashArguments(script), context)]
        self.boxes.release("session")
        last = results[-1]
        assert isinstance(last, Done | ToolFailed)
        return last.text


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(Path(os.path.realpath(tmp_path)))


@pytest.mark.parametrize(
    ("script", "moved", "place"),
    [
        ("mv notes.md /tmp/", "notes.md", "/tmp/notes.md"),
        ("mv notes.md /tmp/other.md", "notes.md", "/tmp/other.md"),
        ("mv plans ..", "plans", "{home}/plans"),
        ("mv plans ~/old", "plans", "{home}/old"),
        ("mv plans/a.txt ~", "plans/a.txt", "{home}/a.txt"),
        ("mkdir /tmp/x; mv plans/* /tmp/x && rmdir plans", "plans/deep", "/tmp/x/deep"),
        ('python3 -c \'import shutil; shutil.move("notes.md", "/tmp")\'', "notes.md", "/tmp/notes.md"),
        ("mv notes.md /dev/shm", "notes.md", "/dev/shm/notes.md"),
        ("mkdir /dev/shm/x && mv plans /dev/shm/x/old", "plans", "/dev/shm/x/old"),
    ],
)
async def test_moved_files_are_copied_and_named(session: Session, script: str, moved: str, place: str) -> None:
    before = session.files()
    told = await session.run(script)
    assert not (session.ws / moved).exists()
    assert f"{moved} (now {place.format(home=session.home)}, copy " in told
    for entry in list_entries(session.store):
        restore(session.store, entry.number)
    assert session.files() == before


TIDY = "import shutil, sys\nshutil.move(*sys.argv[1:])\n"


@pytest.mark.parametrize(
    ("words", "moved", "place"),
    [
        ("notes.md /tmp", "notes.md", "/tmp/notes.md"),
        ("notes.md /dev/shm/", "notes.md", "/dev/shm/notes.md"),
        ("plans {home}", "plans", "{home}/plans"),
        ("plans /tmp/old", "plans", "/tmp/old"),
        ("plans/deep /tmp", "plans/deep", "/tmp/deep"),
    ],
)
async def test_files_moved_by_a_program_are_copied_and_named(
    session: Session, words: str, moved: str, place: str
) -> None:
    (session.ws / "tidy.py").write_text(TIDY)
    before = session.files()
    told = await session.run(f"{PYTHON} tidy.py {words.format(home=session.home)}")
    assert not (session.ws / moved).exists()
    assert f"{moved} (now {place.format(home=session.home)}, copy " in told
    for entry in list_entries(session.store):
        restore(session.store, entry.number)
    assert session.files() == before


@pytest.mark.parametrize(
    "script",
    [
        "rm notes.md; echo other > /tmp/notes.md",
        "rm notes.md; mkdir -p ~/.cache/x; touch -d @1600000000 ~/.cache/x/notes.md",
        "rm notes.md; mkdir -p /tmp/node_modules/x; touch -d @1600000000 /tmp/node_modules/x/notes.md",
        "cp -p notes.md /tmp; {python} tidy.py notes.md plans/deep",
        "cp -p notes.md /tmp; {python} tidy.py plans plants",
        "rm build/notes.md; cp -p notes.md /tmp",
        "{python} tidy.py notes.md /tmp; {python} tidy.py /tmp/notes.md .",
    ],
)
async def test_other_files_of_the_same_name_are_not_copied(session: Session, script: str) -> None:
    (session.ws / "tidy.py").write_text(TIDY)
    (session.ws / "build").mkdir()
    (session.ws / "build/notes.md").touch()
    assert "moved to" not in await session.run(script.format(python=PYTHON))
    assert list_entries(session.store) == []


@pytest.mark.parametrize(
    "script",
    [
        "mv notes.md other.md; mv plans old",
        "cp -a notes.md plans /tmp; : mv",
        "mv notes.md /tmp; mv /tmp/notes.md .",
        "rm notes.md; touch -d @1600000000 /tmp/y; : mv",
    ],
)
async def test_unmoved_and_unknown_files_are_not_copied(session: Session, script: str) -> None:
    assert "moved to" not in await session.run(script)
    assert list_entries(session.store) == []


async def test_too_large_files_are_named_without_a_copy(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yarrow.policy.sandbox.quarantine.MAX_COPY_BYTES", 3)
    told = await session.run("mv notes.md /tmp")
    assert (
        "notes.md (now /tmp/notes.md): moved to a directory that is deleted when the session ends, without a copy"
        in told
    )
    assert list_entries(session.store) == []


async def test_further_moved_files_are_counted(session: Session) -> None:
    for number in range(14):
        (session.ws / f"f{number}").write_text(str(number))
        os.utime(session.ws / f"f{number}", (1_700_000_000, 1_700_000_000))
    assert "4 more: moved to a directory that is deleted when the session ends, without a copy" in await session.run(
        "mv f* /tmp"
    )


async def test_files_beyond_the_limit_are_reported(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yarrow.policy.sandbox.files_moved_out.MAX_FILES", 0)
    told = await session.run("mv plans/a.txt /tmp/other; mv plans /tmp")
    assert "plans/deep (now /tmp/plans/deep, copy " in told
    assert "1 files in a directory that is deleted when the session ends may be from the workspace" in told


async def test_a_worktrees_repository_is_not_a_change_of_the_home(session: Session) -> None:
    main = session.home / "main"
    git(session.home, "init", "-q", str(main))
    git(main, "commit", "-q", "--allow-empty", "-m", "first")
    shutil.rmtree(session.ws)
    git(main, "config", "user.name", "N")
    git(main, "config", "user.email", "n@example.org")
    git(main, "worktree", "add", "-q", str(session.ws))
    assert await session.run("git commit -q --allow-empty -m second; git log -1 --format=%s") == "second"
    assert await session.run("true") == "[no output]"
