"""The tools `grep` and `find`: what they find, and that ripgrep and our own search find the same."""

import asyncio
import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tool_calls import call

from yarrow.redaction.redactor import Redactor
from yarrow.redaction.stream import RedactingBytes
from yarrow.tool.base import Result
from yarrow.tool.gitignore_walk import MAX_IGNORE_FILE_BYTES
from yarrow.tool.globs import Glob
from yarrow.tool.python_search import MAX_PATTERN_SECONDS
from yarrow.tool.ripgrep import MAX_CPU_SECONDS, MAX_MEMORY_KIB
from yarrow.tool.search_hits import MAX_COUNTED_MATCHES, MAX_SEARCHED_BYTES, shorten_line

How = Literal["ripgrep", "ours"]


@pytest.fixture(params=["ripgrep", "ours"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> How:
    """Both ways to search; every test that takes it runs twice."""
    choose(request.param, monkeypatch)
    return request.param


def choose(how: How, monkeypatch: pytest.MonkeyPatch) -> None:
    program = None
    if how == "ripgrep":
        program = shutil.which("rg")
        assert program is not None, "the contract needs ripgrep: install the package `ripgrep`"
    for module in ("grep", "find"):
        monkeypatch.setattr(f"yarrow.tool.{module}.find_ripgrep", lambda _workspace: program)


async def both(monkeypatch: pytest.MonkeyPatch, name: str, ws: Path, arguments: dict[str, Any]) -> Result:
    """Call a tool both ways, and return the one result."""
    results: list[Result] = []
    for how in ("ripgrep", "ours"):
        with monkeypatch.context() as patch:
            choose(how, patch)
            results.append((await call(name, ws, arguments)).result)
    assert results[0] == results[1]
    return results[0]


def make(ws: Path, files: Mapping[str, str | bytes]) -> None:
    for name, content in files.items():
        path = ws / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)


T_14: dict[str, str | bytes] = {
    "a.py": "x = 1\nneedle here\n",
    "node_modules/p/j.py": "needle\n",
    ".git/x": "needle\n",
    ".gitignore": "out/\n",
    "out/built.py": "needle\n",
    "blob.bin": b"needle\0needle\n",
    "clean.bin": b"\0nothing\n",
    ".hidden": "a needle\n",
    "options": "takes -v and --json\n",
}


async def test_case_T_14_grep(ws: Path, how: How) -> None:
    make(ws, T_14)
    assert (await call("grep", ws, {"pattern": "needle"})).done.text == (
        ".hidden:1:a needle\na.py:2:needle here\nblob.bin: binary file matches\nnode_modules/p/j.py:1:needle"
    )
    assert (await call("grep", ws, {"pattern": "-v"})).done.text == "options:1:takes -v and --json"
    assert (await call("grep", ws, {"pattern": "--json", "literal": True})).done.text == "options:1:takes -v and --json"
    assert (await call("grep", ws, {"pattern": "needle", "path": "out"})).done.text == "out/built.py:1:needle"
    assert (await call("grep", ws, {"pattern": "none of it"})).done.text == "No matches for 'none of it'."


async def test_case_T_14_find(ws: Path, how: How) -> None:
    make(ws, T_14)
    assert (await call("find", ws, {"pattern": "*"})).done.text.split("\n") == [
        ".gitignore",
        ".hidden",
        "a.py",
        "blob.bin",
        "clean.bin",
        "node_modules/p/j.py",
        "options",
    ]
    assert (await call("find", ws, {"pattern": "*.py"})).done.text == "a.py\nnode_modules/p/j.py"
    assert (await call("find", ws, {"pattern": "*.rs"})).done.text == "No matches for '*.rs'."


async def test_directories_are_found_by_type(ws: Path) -> None:
    make(ws, {"src/a/x": "", "src/b/a/y": "", "out/a/z": "", ".gitignore": "out\n", ".git/a/x": ""})
    (ws / "empty").mkdir()
    assert (await call("find", ws, {"pattern": "a", "type": "directory"})).done.text == "src/a/\nsrc/b/a/"
    assert (await call("find", ws, {"pattern": "*", "type": "directory"})).done.text == (
        "empty/\nsrc/\nsrc/a/\nsrc/b/\nsrc/b/a/"
    )


async def test_paths_are_relative_to_the_working_directory(ws: Path, how: How) -> None:
    make(ws, {"src/a.py": "needle\n", "src/deep/b.py": "needle\n", "c.py": "needle\n"})
    assert (await call("grep", ws, {"pattern": "needle", "path": "src"})).done.text == (
        "src/a.py:1:needle\nsrc/deep/b.py:1:needle"
    )
    assert (await call("grep", ws, {"pattern": "needle", "path": "src/deep/b.py"})).done.text == (
        "src/deep/b.py:1:needle"
    )
    assert (await call("grep", ws, {"pattern": "needle", "path": str(ws / "src/deep")})).done.text == (
        "src/deep/b.py:1:needle"
    )
    assert (await call("find", ws, {"pattern": "*", "path": "src/"})).done.text == "src/a.py\nsrc/deep/b.py"


async def test_context_lines(ws: Path, how: How) -> None:
    make(ws, {"a": "1\n2\nneedle\n4\n5\n6\n7\nneedle\nneedle\n", "b": "needle\n"})
    assert (await call("grep", ws, {"pattern": "needle", "context": 1})).done.text.split("\n") == [
        "a-2-2",
        "a:3:needle",
        "a-4-4",
        "--",
        "a-7-7",
        "a:8:needle",
        "a:9:needle",
        "--",
        "b:1:needle",
    ]
    limited = (await call("grep", ws, {"pattern": "needle", "context": 1, "limit": 1})).done.text
    assert limited == "a-2-2\na:3:needle\na-4-4\n[1 of 4 matches in 2 files; narrow the search or set limit]"


@pytest.mark.parametrize("where", [0, 250, 301, 499, 600, 5_000, 99_999])
@pytest.mark.parametrize("filler", ["x", "é", "\u20ac", "\U0001f30d"])
async def test_a_long_line_is_shown_around_its_first_match(ws: Path, how: How, where: int, filler: str) -> None:
    for after in (0, 3, 700):
        make(ws, {"long": f"{filler * where}needle{filler * after}needle\nnear\n"})
        shown = (await call("grep", ws, {"pattern": "needle", "context": 1})).done.text.split("\n")
        prefix, _, line = shown[0].rpartition("long:1:")
        text = re.sub(r"^\[[\d,]+ characters \.\.\.\] | \[\.\.\. [\d,]+ more characters\]$", "", line)
        assert (prefix, shown[1:]) == ("", ["long-2-near"])
        assert "needle" in text
        assert len(text) <= 500
        assert text in f"{filler * where}needle{filler * after}needle"
        at = text.index("needle")
        assert min(where, 200) <= at <= 500
        omitted = sum(int(found.replace(",", "")) for found in re.findall(r"([\d,]+) (?:more )?characters", line))
        assert len(text) + omitted == where + 12 + after


def test_no_part_of_a_secret_is_shown_at_either_end_of_a_long_line() -> None:
    secret = "sk-0123456789abcdefghijklmnopqrstuvwxyz"
    redactor = Redactor([secret])
    for place in range(300, 800):
        line = "x" * place + secret + "needle" + secret + "y" * 900
        for at in (0, 200, place, place + 5, place + len(secret), line.index("y") + 300):
            shown = redactor.redact_text(shorten_line(line, at, lambda: RedactingBytes(redactor)))
            assert not any(part in shown for part in ("sk-0", "0123", "3456", "6789", "abcd", "wxyz"))


async def test_a_long_line_that_is_not_utf8_is_shown_around_its_match(ws: Path, how: How) -> None:
    (ws / "long").write_bytes("é".encode() * 900 + b"\xe9needle" + b"\xe9" * 900)
    text = (await call("grep", ws, {"pattern": "needle"})).done.text
    assert text.startswith("long:1:[1,601 characters ...] ")
    assert "\u00e9needle" in text


async def test_reached_limits_are_reported(ws: Path, how: How) -> None:
    make(ws, {f"f{n}": "needle\n" * 60 for n in range(3)} | {"long": "x" * 600 + "needle\n"})
    *lines, note = (await call("grep", ws, {"pattern": "needle"})).done.text.split("\n")
    assert len(lines) == 100
    assert lines[-1] == "f1:40:needle"
    assert note == "[100 of 181 matches in 4 files; narrow the search or set limit]"
    (line,) = (await call("grep", ws, {"pattern": "needle", "path": "long"})).done.text.split("\n")
    assert line == f"long:1:[106 characters ...] {'x' * 494}needle"
    found = (await call("find", ws, {"pattern": "*", "limit": 2})).done.text
    assert found == "f0\nf1\n[2 of 4; narrow the pattern or set limit]"


async def test_a_search_with_many_hits_ends(ws: Path, how: How) -> None:
    make(ws, {f"f{n}": "needle\n" * 6_000 for n in range(4)})
    text = (await call("grep", ws, {"pattern": "needle", "limit": 2})).done.text
    assert text.endswith("[2 of at least 12,000 matches in 2 files; narrow the search or set limit]")
    wide = (await call("grep", ws, {"pattern": "needle", "limit": 100_000})).done.text
    assert wide.endswith(
        "\nf0:2000:needle\n[2,000 of at least 12,000 matches in 2 files; narrow the search or set limit]"
    )
    make(ws, {f"f{n}": f"needle {'x' * 400}\n" * 200 for n in range(4)})
    wide = (await call("grep", ws, {"pattern": "needle", "limit": 100_000})).done.text
    assert "of 800 matches in 4 files" in wide
    assert 50_000 < len(wide.encode()) < 52_000


@pytest.mark.parametrize(
    ("arguments", "lines"),
    [
        ({"pattern": "a.c"}, [1, 2]),
        ({"pattern": "a.c", "literal": True}, [2]),
        ({"pattern": "A.C", "ignore_case": True}, [1, 2, 3]),
        ({"pattern": r"^\s+end$"}, [4]),
        ({"pattern": "é"}, [5]),
        ({"pattern": "É", "ignore_case": True}, [5]),
        ({"pattern": r"\bword\b"}, [6]),
        ({"pattern": r"(foo|bar)\d{2,}"}, [7]),
        ({"pattern": r"\d+$"}, [7, 8]),
        ({"pattern": r"(?i)WORD"}, [6]),
        ({"pattern": r"(?<=foo)\d"}, [7]),
        ({"pattern": r"x[^y]*z"}, [9]),
    ],
)
async def test_patterns(ws: Path, how: How, arguments: dict[str, Any], lines: list[int]) -> None:
    make(ws, {"f": "abc\na.c\nABC\n  end\nétat\na word.\nfoo123\r\ncr 9\r\nx\nxz\n".replace("x\nxz", "xz")})
    text = (await call("grep", ws, arguments)).done.text
    assert [int(line.split(":")[1]) for line in text.split("\n")] == lines


async def test_other_encodings_are_searched(ws: Path, how: How) -> None:
    make(ws, {"bom": b"\xef\xbb\xbfneedle\n", "latin": b"caf\xe9 needle\n", "no-end": "needle"})
    make(ws, {"utf16": "\ufeffa\nneedle\n".encode("utf-16-le"), "ümlaut": "needle\n"})
    os.close(os.open(os.fsencode(ws) + b"/\xff", os.O_CREAT))
    assert (await call("grep", ws, {"pattern": "^needle|é needle"})).done.text.split("\n") == [
        "bom:1:needle",
        "no-end:1:needle",
        "utf16:2:needle",
        "ümlaut:1:needle",
    ]
    assert (await call("grep", ws, {"pattern": " needle"})).done.text == "latin:1:café needle"
    assert (await call("find", ws, {"pattern": "*"})).done.text.split("\n")[-1] == r'"\udcff"'


async def test_globs_limit_a_search_and_ignore_files_still_apply(ws: Path, how: How) -> None:
    files = ["a.py", "src/b.py", "src/c.ts", "src/deep/d.ts", "src/deep/e.tsx", "lib/f.ts", "ignored/g.py"]
    make(ws, dict.fromkeys(files, "needle\n") | {".gitignore": "ignored\n"})
    for glob, right in {
        "*.py": ["a.py", "src/b.py"],
        "*.{ts,tsx}": ["lib/f.ts", "src/c.ts", "src/deep/d.ts", "src/deep/e.tsx"],
        "src/**/*.ts": ["src/c.ts", "src/deep/d.ts"],
        "**/deep/**": ["src/deep/d.ts", "src/deep/e.tsx"],
        "!*.ts": ["a.py", "src/b.py", "src/deep/e.tsx"],
        "[ab].py": ["a.py", "src/b.py"],
        "ignored/*": [],
    }.items():
        text = (await call("grep", ws, {"pattern": "needle", "glob": glob})).done.text
        assert text == ("\n".join(f"{name}:1:needle" for name in right) or "No matches for 'needle'.")
        found = (await call("find", ws, {"pattern": glob})).done.text.split("\n")
        assert [name for name in found if name in files] == right


async def test_symlinks_are_not_followed(ws: Path, how: How) -> None:
    make(ws, {"d/a": "needle\n"})
    (ws / "up").symlink_to(".")
    (ws / "file").symlink_to("d/a")
    assert (await call("grep", ws, {"pattern": "needle"})).done.text == "d/a:1:needle"
    assert (await call("find", ws, {"pattern": "*"})).done.text == "d/a"


async def test_find_lists_files_too_large_for_grep(ws: Path, how: How) -> None:
    make_large(ws / "large")
    assert (await call("find", ws, {"pattern": "*"})).done.text == "large"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"pattern": ""}, "The pattern is empty."),
        ({"pattern": "("}, "Invalid pattern '(': missing )"),
        ({"pattern": "a\nb"}, "within one line"),
        ({"pattern": r"a\nb"}, "within one line"),
        ({"pattern": "x", "path": "nowhere"}, "nowhere does not exist"),
    ],
)
async def test_unsearchable_paths_are_reported(ws: Path, how: How, arguments: dict[str, Any], said: str) -> None:
    make(ws, {"f": "x\n"})
    assert said in (await call("grep", ws, arguments)).failed.text


async def test_an_unreadable_directory_is_reported(ws: Path, how: How, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refuses)
    assert (await call("grep", ws, {"pattern": "x"})).failed.text == ".: Permission denied."


async def test_an_escaped_backslash_before_an_n_is_not_a_line_feed(ws: Path, how: How) -> None:
    make(ws, {"f": "a\\nb\n"})
    assert (await call("grep", ws, {"pattern": r"a\\nb"})).done.text == "f:1:a\\nb"
    assert (await call("grep", ws, {"pattern": r"a\nb", "literal": True})).done.text == "f:1:a\\nb"


async def test_large_files_are_skipped(ws: Path, how: How, monkeypatch: pytest.MonkeyPatch) -> None:
    make(ws, {"small": "needle\n"})
    make_large(ws / "large", "needle\n")
    note = f"[large not searched: larger than {MAX_SEARCHED_BYTES:,} bytes; use bash to search]"
    assert (await call("grep", ws, {"pattern": "needle"})).done.text == f"small:1:needle\n{note}"
    assert "larger than" in (await call("grep", ws, {"pattern": "needle", "path": "large"})).failed.text


LARGE_PLACES: dict[str, tuple[tuple[str, ...], dict[str, Any], str]] = {
    "only": (("app.log",), {}, "app.log"),
    "below": (("a/b/app.log",), {}, "a/b/app.log"),
    "in a directory": (("a/app.log", "b/app.log"), {"path": "a"}, "a/app.log"),
    "by a glob": (("app.log", "app.bin"), {"glob": "*.log"}, "app.log"),
    "by a path glob": (("a/app.log", "b/app.log"), {"glob": "a/**/*.log"}, "a/app.log"),
    "ignored": (("out/app.log",), {}, ""),
    "odd names": (("a b\n: 7 bytes", "x: 99 bytes", "[x]"), {}, '[x], "a b\\n: 7 bytes", x: 99 bytes'),
    "many": (
        tuple(f"f{number:02}" for number in range(12)),
        {},
        f"{', '.join(f'f{n:02}' for n in range(10))} and 2 more",
    ),
}


@pytest.mark.parametrize("case", LARGE_PLACES)
async def test_case_rb_10_grep_names_files_too_large_to_search(ws: Path, how: How, case: str) -> None:
    names, arguments, named = LARGE_PLACES[case]
    make(ws, {".gitignore": "out/\n"})
    for name in names:
        make_large(ws / name)
    note = f"\n[{named} not searched: larger than {MAX_SEARCHED_BYTES:,} bytes; use bash to search]" if named else ""
    assert (await call("grep", ws, {"pattern": "needle", **arguments})).done.text == f"No matches for 'needle'.{note}"


async def test_ripgrep_searches_in_a_process_with_many_descriptors(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_arguments: object) -> None:
        raise AssertionError("ripgrep was given up")

    choose("ripgrep", monkeypatch)
    monkeypatch.setattr("yarrow.tool.python_search.Searcher.__init__", refuses)
    make(ws, {"f": "needle\n"})
    make_large(ws / "large")
    with ExitStack() as closing:
        for _ in range(16):
            closing.enter_context((ws / "f").open())
        assert (await call("grep", ws, {"pattern": "needl."})).done.text.startswith("f:1:needle\n[large not searched")


async def test_grep_names_no_large_file_when_it_ends_early(ws: Path, how: How) -> None:
    make(ws, {f"f{number}": "needle\n" * (MAX_COUNTED_MATCHES // 64) for number in range(66)})
    make_large(ws / "a")
    assert "not searched" not in (await call("grep", ws, {"pattern": "needle"})).done.text


async def test_grep_names_a_large_secret_file_once(ws: Path, how: How) -> None:
    make_large(ws / ".env")
    assert (
        await call("grep", ws, {"pattern": "x"})
    ).done.text == "No matches for 'x'.\n[.env not searched: may contain secrets]"


async def test_grep_searches_a_file_of_exactly_the_limit(ws: Path, how: How) -> None:
    make_large(ws / "f", size=MAX_SEARCHED_BYTES)
    make(ws, {"x: 70000000 bytes": "needle\n", "debug": ": 70000000 bytes\n"})
    (ws / "link").symlink_to(ws / "f")
    assert (await call("grep", ws, {"pattern": "needle"})).done.text == "x: 70000000 bytes:1:needle"


def make_large(path: Path, end: str = "", *, size: int = MAX_SEARCHED_BYTES + 1) -> None:
    """Make a file of this size without its blocks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)
        file.seek(0, os.SEEK_END)
        file.write(end.encode())


async def test_a_catastrophic_pattern_times_out_without_blocking(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choose("ours", monkeypatch)
    make(ws, {"f": "a" * 60 + "!\n"})
    longest = 0.0

    async def beat() -> None:
        nonlocal longest
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - before)

    heart = asyncio.create_task(beat())
    start = time.monotonic()
    failed = (await call("grep", ws, {"pattern": "(a+)+$|(a|a)*c"})).failed
    heart.cancel()
    assert failed.text.endswith("takes too long. Avoid nested repetition.")
    assert time.monotonic() - start < 8
    assert longest < MAX_PATTERN_SECONDS / 2


async def test_ignore_files_of_parents_apply_up_to_the_repository(ws: Path, how: How) -> None:
    make(ws, {".gitignore": "*.log\n", ".ignore": "*.tmp\n", "a/b/x.log": "", "a/b/x.tmp": "", "a/b/x.py": ""})
    assert (await call("find", ws, {"pattern": "*", "path": "a/b"})).done.text == "a/b/x.py"
    (ws / "a/.git").mkdir()
    assert (await call("find", ws, {"pattern": "*", "path": "a/b"})).done.text == "a/b/x.log\na/b/x.py"
    assert (await call("find", ws, {"pattern": "x*"})).done.text == "a/b/x.log\na/b/x.py"


async def test_a_directorys_content_can_be_ignored_without_the_directory(ws: Path) -> None:
    make(ws, {".gitignore": "src/**\nout/\n\\!odd\nkeep\\ \n", "src/a/x": "", "out/x": "", "!odd/x": "", "keep /x": ""})
    assert (await call("find", ws, {"pattern": "*", "type": "directory"})).done.text == "src/"


async def test_a_cancelled_search_ends_at_once(ws: Path, how: How, monkeypatch: pytest.MonkeyPatch) -> None:
    make(ws, {f"d{n}/f": "x\n" * 20_000 for n in range(60)})
    if how == "ripgrep":
        slow = ws.parent / "rg"
        slow.write_text("#!/bin/sh\nsleep 300\n")
        slow.chmod(0o755)
        monkeypatch.setattr("yarrow.tool.grep.find_ripgrep", lambda _workspace: str(slow))
    task = asyncio.create_task(call("grep", ws, {"pattern": "(?:nothing)?q"}))
    await asyncio.sleep(0.05)
    start = time.monotonic()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert time.monotonic() - start < 1


async def test_a_search_that_times_out_returns_its_hits(ws: Path, how: How, monkeypatch: pytest.MonkeyPatch) -> None:
    make(ws, {"f": "needle\n"})
    for module in ("python_search", "find", "ripgrep"):
        monkeypatch.setattr(f"yarrow.tool.{module}.MAX_SEARCH_SECONDS", 0.2 if how == "ripgrep" else -1)
    if how == "ripgrep":
        slow = ws.parent / "rg"
        slow.write_text("#!/bin/sh\nprintf 'f\\0'\nsleep 300\n")
        slow.chmod(0o755)
        for module in ("grep", "find"):
            monkeypatch.setattr(f"yarrow.tool.{module}.find_ripgrep", lambda _workspace: str(slow))
    searched = (await call("grep", ws, {"pattern": "needle"})).done.text
    assert searched == "No matches for 'needle'.\n[stopped after 30 s; narrow the search]"
    found = (await call("find", ws, {"pattern": "*"})).done.text
    assert re.search(r"\n\[stopped after -?[\d.]+ s; narrow the path\]$", found)


async def test_a_dry_run_starts_no_ripgrep(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*_arguments: object) -> None:
        raise AssertionError("a dry run must not look for a program")

    for module in ("grep", "find"):
        monkeypatch.setattr(f"yarrow.tool.{module}.find_ripgrep", refuses)
    make(ws, {"f": "needle\n"})
    assert (await call("grep", ws, {"pattern": "needle"}, dry_run=True)).done.text == "f:1:needle"
    assert (await call("find", ws, {"pattern": "f"}, dry_run=True)).done.text == "f"


async def test_a_ripgrep_inside_the_workspace_is_not_run(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(ws, {"bin/rg": "#!/bin/sh\n: > was-run\n", "f": "needle\n"})
    (ws / "bin/rg").chmod(0o755)
    for path in (str(ws / "bin"), "bin"):
        monkeypatch.setenv("PATH", path)
        monkeypatch.chdir(ws)
        assert (await call("grep", ws, {"pattern": "needle", "glob": "f"})).done.text == "f:1:needle"
        assert (await call("find", ws, {"pattern": "f"})).done.text == "f"
    assert not list(ws.rglob("was-run"))


async def test_an_incompatible_ripgrep_is_not_used(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = ws.parent / "rg"
    old.write_text("#!/bin/sh\necho 'error: unexpected argument' >&2\nexit 2\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", str(ws.parent), prepend=os.pathsep)
    make(ws, {"f": "needle\n"})
    assert (await call("grep", ws, {"pattern": "needle"})).done.text == "f:1:needle"
    assert (await call("find", ws, {"pattern": "f"})).done.text == "f"


@pytest.mark.parametrize("kind", ["fifo", "device", "large"])
@pytest.mark.parametrize("name", [".gitignore", ".ignore", ".rgignore"])
async def test_an_endless_ignore_file_is_skipped(ws: Path, how: How, kind: str, name: str) -> None:
    make(ws, {"d/f": "needle\n"})
    plant_endless(ws / name, kind)
    start = time.monotonic()
    for path in (".", "d"):
        assert (await call("find", ws, {"pattern": "f", "path": path})).done.text == "d/f"
        assert (await call("grep", ws, {"pattern": "needle", "glob": "f", "path": path})).done.text == "d/f:1:needle"
    assert time.monotonic() - start < 5


def plant_endless(path: Path, kind: str) -> None:
    if kind == "fifo":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(b"f\n")
        os.truncate(path, MAX_IGNORE_FILE_BYTES + 1)


async def test_a_nested_device_ends_ripgrep_but_not_the_search(ws: Path, how: How) -> None:
    make(ws, {"a": "needle\n", "d/f": "needle\n"})
    plant_endless(ws / "d/.gitignore", "device")
    assert (await call("grep", ws, {"pattern": "needle"})).done.text == "a:1:needle\nd/f:1:needle"
    assert (await call("find", ws, {"pattern": "*"})).done.text == "a\nd/f"


@pytest.mark.parametrize("places", [("d",), ("d", "d/e", "x")])
async def test_a_nested_fifo_does_not_block_the_search(ws: Path, how: How, places: tuple[str, ...]) -> None:
    make(ws, {"a": "needle\n", "d/e/f": "needle\n", "x/f": "needle\n"})
    for place in places:
        plant_endless(ws / place / ".gitignore", "fifo")
    start = time.monotonic()
    assert (await call("grep", ws, {"pattern": "needle"})).done.text == "a:1:needle\nd/e/f:1:needle\nx/f:1:needle"
    assert (await call("find", ws, {"pattern": "f"})).done.text == "d/e/f\nx/f"
    assert time.monotonic() - start < 10


@pytest.mark.parametrize("place", ["", "d/"])
async def test_a_long_ignore_file_is_applied(ws: Path, how: How, place: str) -> None:
    make(
        ws,
        {
            "d/f": "needle\n",
            "d/kept": "needle\n",
            "d/sub/kept/g": "needle\n",
            "d/x.o": "needle\n",
            "d/back": "needle\n",
        },
    )
    names = "".join(f"generated-{number:09}\n" for number in range(80_000))
    make(ws, {f"{place}.gitignore": f"# {'x' * 1_000_000}\n*.o\nf\nkept\n!kept/\nback\n!b*\n{names}"})
    assert (ws / f"{place}.gitignore").stat().st_size > 2 * 1_048_576
    assert (await call("grep", ws, {"pattern": "needle"})).done.text == "d/back:1:needle\nd/sub/kept/g:1:needle"
    assert (await call("find", ws, {"pattern": "*"})).done.text == f"{place}.gitignore\nd/back\nd/sub/kept/g"


async def test_ripgrep_is_started_with_its_own_limits(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = ws.parent / "told"
    monkeypatch.setenv("PATH", str(fake(ws, f"echo $(ulimit -v) $(ulimit -t) $(ulimit -c) > {told}").parent))
    assert (await call("find", ws, {"pattern": "f"})).done.text == "No matches for 'f'."
    assert told.read_text() == f"{MAX_MEMORY_KIB} {MAX_CPU_SECONDS} 0\n"


async def test_hits_of_a_crashed_ripgrep_are_not_reported_twice(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(ws, {"a": "needle\n", "f": "needle\n"})
    begin = '{"type":"begin","data":{"path":{"text":"f"}}}'
    match = '{"type":"match","data":{"path":{"text":"f"},"lines":{"text":"needle"},"line_number":1}}'
    end = '{"type":"end","data":{"path":{"text":"f"}}}'
    program = fake(ws, f"printf '%s\\n' '{begin}' '{match}' '{end}'; kill -9 $$")
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    assert (await call("grep", ws, {"pattern": "needle"})).done.text == "a:1:needle\nf:1:needle"
    fake(ws, "printf 'f\\0'; kill -9 $$")
    assert (await call("find", ws, {"pattern": "*"})).done.text == "a\nf"


def fake(ws: Path, script: str) -> Path:
    """Make a program that is called as ripgrep is, in a directory of its own."""
    path = ws.parent / "bin/rg"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


NAMES = st.sampled_from(["a", "b.py", "c.txt", "out", "src", "Z", "[x]", "é", "a b"])
IGNORED = st.sampled_from(
    [
        "a",
        "*.py",
        "out/",
        "/src",
        "!b.py",
        "src/*",
        "!src/a",
        "**/out",
        "src/**/a",
        "# a",
        "",
        "\\!b.py",
        "[ab]*",
        "*",
        "!*/",
        "a b",
        "out/*.txt",
        "!out/",
        " ",
    ]
)
IGNORE_NAMES = st.sampled_from([".gitignore", ".ignore", ".rgignore"])
TREES = st.fixed_dictionaries(
    {
        "files": st.lists(st.lists(NAMES, min_size=1, max_size=3), min_size=1, max_size=8),
        "ignores": st.lists(
            st.tuples(st.lists(NAMES, max_size=2), IGNORE_NAMES, st.lists(IGNORED, max_size=3)), max_size=3
        ),
        "repository": st.booleans(),
        "path": st.lists(NAMES, max_size=1),
    }
)


def plant(ws: Path, tree: dict[str, Any]) -> None:
    for names in tree["files"]:
        path = ws.joinpath(*names)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("needle\n")
        except OSError:
            continue  # a name that is a file and a directory
    for names, name, lines in tree["ignores"]:
        directory = ws.joinpath(*names)
        if directory.is_dir():
            (directory / name).write_text("".join(f"{line}\n" for line in lines))
    if tree["repository"]:
        (ws / ".git").mkdir()


@pytest.fixture(scope="module")
def patch() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield monkeypatch


@given(tree=TREES, glob=st.sampled_from(["*", "*.py", "src/**", "**/a", "o*/*"]))
@settings(max_examples=120, deadline=None)
def test_ripgrep_and_the_builtin_search_find_the_same(
    tmp_path_factory: pytest.TempPathFactory, patch: pytest.MonkeyPatch, tree: dict[str, Any], glob: str
) -> None:
    ws = tmp_path_factory.mktemp("tree")
    plant(ws, tree)
    path = "/".join(tree["path"])
    if not (ws / path).is_dir():
        path = "."
    asyncio.run(both(patch, "find", ws, {"pattern": glob, "path": path}))
    asyncio.run(both(patch, "grep", ws, {"pattern": "ne+dle", "glob": glob, "path": path}))


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        ("*.py", "a/b/c.py", True),
        ("*.py", "a.pyc", False),
        ("a/*.py", "a/b.py", True),
        ("a/*.py", "a/b/c.py", False),
        ("a/**/*.py", "a/b.py", True),
        ("a/**/*.py", "a/x/y/b.py", True),
        ("a/**", "b/a/c", False),
        ("/a", "a", True),
        ("./a/b", "a/b", True),
        ("a/", "x/a", True),
        ("**/a", "a", True),
        ("x{1,2{a,b}}y", "x2by", True),
        ("x{1,2{a,b}}y", "x2y", False),
        ("x{1}y", "x{1}y", True),
        ("[!a]", "b", True),
        ("[^a]", "a", False),
        ("[", "[", True),
        ("!a", "b", True),
        ("*", ".hidden", True),
    ],
)
def test_globs(glob: str, path: str, matches: bool) -> None:
    assert Glob(glob).matches(path) == matches


@pytest.mark.parametrize("glob", ["*a" * 40 + "b", "**/a/" * 30 + "b", "{a,b}" * 40, "{" * 100 + "," * 100])
def test_any_glob_is_matched_in_linear_time(glob: str) -> None:
    start = time.monotonic()
    Glob(glob).matches("a/" * 60 + "a" * 200)
    assert time.monotonic() - start < 2
