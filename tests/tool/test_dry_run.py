"""Law 9: a dry run changes nothing, in the workspace or outside it, starts no process, and says what it would do."""

import asyncio
import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tool_calls import REGISTRY, call, context_of

from doubles.processes import watching_for_processes
from yarrow.tool.base import Tool
from yarrow.tool.builtin import BUILTIN_TOOLS


def fingerprint(root: Path) -> str:
    """Hash names, bytes, modes, owners, link targets and times of all that lies below."""
    digest = hashlib.sha256()
    for path in sorted([root, *root.rglob("*")]):
        stat = path.lstat()
        digest.update(
            repr((str(path), stat.st_mode, stat.st_uid, stat.st_nlink, stat.st_mtime_ns, stat.st_ino)).encode()
        )
        if path.is_symlink():
            digest.update(os.fsencode(path.readlink()))
        elif path.is_file():
            digest.update(path.read_bytes())
    return digest.hexdigest()


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace `ws` with all sorts of things, and what lies beside it."""
    house = Path(os.path.realpath(tmp_path_factory.mktemp("house")))
    ws = house / "ws"
    (ws / "src").mkdir(parents=True)
    (ws / ".git/hooks").mkdir(parents=True)
    (house / "outside").mkdir()
    (ws / "src/a.py").write_bytes(b"one\r\ntwo\r\nthree\r\n")
    (ws / "latin").write_bytes(b"caf\xe9 one\n")
    (ws / "bom").write_bytes(b"\xef\xbb\xbfone\n")
    (ws / "binary").write_bytes(b"one\0two")
    (ws / ".env").write_text("K=v\n")
    (ws / "locked").write_text("one\n")
    (ws / "locked").chmod(0o444)
    (ws / "run.sh").write_text("#!/bin/sh\ntouch ran\n")
    (ws / "run.sh").chmod(0o755)
    os.link(ws / "bom", ws / "twin")
    (ws / "link").symlink_to("src/a.py")
    (ws / "out").symlink_to("../outside")
    (house / "outside/x").write_text("one\n")
    return house


INSIDE = st.sampled_from(["src/a.py", "new", "new/deep/er", "latin", "bom", "twin", "locked", "link", ".", "src", ""])
FORBIDDEN = st.sampled_from(
    ["binary", ".env", "out/x", "out/new", "../outside/x", ".git/hooks/pre-commit", "~", "a\0b"]
)
PATHS = st.one_of(INSIDE, FORBIDDEN, st.just("/tmp/yarrow-no-such"))
TEXTS = st.sampled_from(
    ["one", "two", "one\ntwo", "", "x", "é", "中", "\r\n", "one\n", "'\"$(touch ran)", "-v", "(", "*"]
)
EDITS = st.lists(
    st.fixed_dictionaries({"old": TEXTS, "new": TEXTS}, optional={"all": st.booleans()}), min_size=0, max_size=3
)
COMMANDS = st.sampled_from(
    ["touch ran", "rm -rf .", "./run.sh", "echo x > src/a.py", "kill $PPID", "$(touch ran)", "", "a\0b"]
)
CALLS = st.one_of(
    st.tuples(st.just("write"), st.fixed_dictionaries({"path": PATHS, "content": TEXTS})),
    st.tuples(st.just("edit"), st.fixed_dictionaries({"path": PATHS, "edits": EDITS})),
    st.tuples(
        st.just("bash"),
        st.fixed_dictionaries({"command": COMMANDS}, optional={"timeout": st.floats(-1, 4e3), "cwd": PATHS}),
    ),
    st.tuples(st.just("read"), st.fixed_dictionaries({"path": PATHS}, optional={"offset": st.integers(-1, 9)})),
    st.tuples(st.just("ls"), st.fixed_dictionaries({}, optional={"path": PATHS})),
    st.tuples(st.just("grep"), st.fixed_dictionaries({"pattern": TEXTS}, optional={"path": PATHS, "glob": TEXTS})),
    st.tuples(st.just("find"), st.fixed_dictionaries({"pattern": TEXTS}, optional={"path": PATHS})),
    st.tuples(st.sampled_from([*REGISTRY.names(), "nothing"]), st.dictionaries(TEXTS, TEXTS, max_size=2)),
)


@given(CALLS)
@settings(max_examples=300, deadline=None)
def test_law_9_a_dry_run_changes_nothing_and_starts_nothing(house: Path, a_call: tuple[str, dict[str, Any]]) -> None:
    name, arguments = a_call
    before = fingerprint(house)
    with watching_for_processes() as started:
        outcome = asyncio.run(call(name, house / "ws", arguments, dry_run=True))
    assert fingerprint(house) == before
    assert not Path("/tmp/yarrow-no-such").exists()
    assert started == []
    assert outcome.text
    prepared = "was not run" not in outcome.text and "Unknown tool" not in outcome.text
    if prepared and not REGISTRY.is_read_only(name):
        assert outcome.text.startswith("Dry run: nothing was changed. ")


@given(CALLS.filter(lambda a_call: a_call[0] in {"write", "edit"}))
@settings(max_examples=150, deadline=None)
def test_law_9_the_diff_of_a_dry_run_is_the_diff_of_the_run(
    tmp_path_factory: pytest.TempPathFactory, a_call: tuple[str, dict[str, Any]]
) -> None:
    """The preview of a dry run, errors included, matches the run."""
    ws = Path(os.path.realpath(tmp_path_factory.mktemp("ws")))
    (ws / "src").mkdir()
    for name in ("src/a.py", "latin", "bom"):
        (ws / name).write_bytes(b"caf\xe9 one\ntwo\r\n" if name == "latin" else b"one\r\ntwo\n")
    name, arguments = a_call
    if str(arguments.get("path", "")).startswith(("/", "~", "..")):
        return
    said = asyncio.run(call(name, ws, arguments, dry_run=True))
    done = asyncio.run(call(name, ws, arguments))
    assert type(said.result) is type(done.result)
    assert getattr(said.result, "diff", "") == getattr(done.result, "diff", "")
    if not getattr(done.result, "diff", ""):
        assert said.text.removeprefix("Dry run: nothing was changed. ").rstrip(":\n") in {done.text, _would(done.text)}


def _would(text: str) -> str:
    return text.replace("Created", "Would create").replace("Replaced", "Would replace").rstrip(".")


async def test_law_9_no_working_directory_is_created(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses() -> Path:
        raise AssertionError("a dry run must not make a directory")

    monkeypatch.setattr("yarrow.tool.bash.fallback_directory", refuses)
    ws.rmdir()
    said = (await call("bash", ws, {"command": "true"}, dry_run=True)).done.text
    assert f"{ws} no longer exists; it would run in a private directory" in said


@pytest.mark.parametrize("tool", [tool for tool in BUILTIN_TOOLS if tool.read_only], ids=lambda tool: tool.name)
async def test_a_read_only_tool_has_a_preview(ws: Path, tool: Tool) -> None:
    given_ones = {"path": "some/where", "pattern": "x"}
    known = {name: value for name, value in given_ones.items() if name in tool.arguments.__struct_fields__}
    told = await tool.preview(tool.arguments(**known), context_of(ws))
    assert told.text.startswith("Would ")
    assert "some/where" in told.text


def test_the_process_audit_detects_a_process() -> None:
    with watching_for_processes() as started:
        os.waitpid(os.posix_spawn("/bin/true", ["true"], {}), 0)
    assert started == ["os.posix_spawn"]
