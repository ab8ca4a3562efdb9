"""Globs with special characters: names that contain them, sets of characters, absolute patterns."""

import fnmatch
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from test_search_tools import How, how, make
from tool_calls import call

from yarrow.tool.globs import Glob

__all__ = ["how"]

SPECIAL = (
    st.lists(
        st.sampled_from(
            [*"[]{}!^*?,\\-~@#", "a", "id", "i", ".ts", "...", "(x)", "[id]", "[[...a]]", "{a,b}", "é", " "]
        ),
        min_size=1,
        max_size=5,
    )
    .map("".join)
    .filter(lambda name: name not in (".", ".."))
)


async def test_case_rb_12_brackets_are_literal(ws: Path, how: How) -> None:
    pages = ["app/[id]/page.tsx", "app/[[...slug]]/page.tsx", "app/[...all]/a.tsx", "app/i/other.tsx", "app/(g)/b.tsx"]
    make(ws, dict.fromkeys([*pages, "app/d/page.tsx"], "needle\n"))
    for glob, right in {
        "app/[id]/page.tsx": pages[:1],
        "app/[id]/*": pages[:1],
        "./app/[id]/*.tsx": pages[:1],
        "app//[id]/./*": pages[:1],
        r"app/\[id\]/*": pages[:1],
        "app/[[...slug]]/**": pages[1:2],
        "app/[...all]/*.tsx": pages[2:3],
        "{app/[id],app/(g)}/*": [pages[4], pages[0]],
        f"{ws}/app/[id]/*": pages[:1],
        "app/[i]/*.tsx": pages[3:4],
        "app/[di]/*": ["app/d/page.tsx", "app/i/other.tsx"],
        "app/[!d]/*": pages[3:4],
        "app/[a-d]/*": ["app/d/page.tsx"],
    }.items():
        assert (await call("find", ws, {"pattern": glob})).done.text.split("\n") == right, glob
        text = (await call("grep", ws, {"pattern": "needle", "glob": glob})).done.text
        assert text.split("\n") == [f"{name}:1:needle" for name in right], glob


@pytest.mark.parametrize("path", [".", "src", "[x]"])
async def test_case_rb_12_absolute_patterns_start_with_path(ws: Path, how: How, path: str) -> None:
    make(ws, dict.fromkeys(["src/a.py", "src/deep/b.py", "[x]/a.py", "[x]/deep/b.py"], "needle\n"))
    base = ws if path == "." else ws / path
    below = "src/" if path == "." else f"{path}/"
    start = f"{base}/src" if path == "." else str(base)
    for glob, names in {
        f"{start}/*.py": ["a.py"],
        f"{start}/**/*.py": ["a.py", "deep/b.py"],
        f"{start}/{{a,c}}.py": ["a.py"],
    }.items():
        found = (await call("find", ws, {"pattern": glob, "path": path})).done.text
        assert found.split("\n") == [below + name for name in names]
        text = (await call("grep", ws, {"pattern": "needle", "glob": glob, "path": path})).done.text
        assert text.split("\n") == [f"{below}{name}:1:needle" for name in names]
    kept = (await call("find", ws, {"pattern": f"!{start}/*.py", "path": path})).done.text.split("\n")
    assert below + "a.py" not in kept
    assert below + "deep/b.py" in kept


async def test_case_rb_12_a_root_reached_by_a_symlink_or_home(
    ws: Path, how: How, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(ws, {"src/a.py": "needle\n"})
    (ws / "link").symlink_to("src")
    assert (await call("find", ws, {"pattern": f"{ws}/link/*", "path": "link"})).done.text == "link/a.py"
    assert (await call("find", ws, {"pattern": f"{ws}/src/*", "path": "link"})).done.text == "link/a.py"
    monkeypatch.setenv("HOME", str(ws))
    assert (await call("find", ws, {"pattern": "~/src/*.py"})).done.text == "src/a.py"


@pytest.mark.parametrize("glob", ["/elsewhere/*.py", "~/elsewhere/*.py", "../*.py", "src/../../*.py"])
async def test_case_rb_12_a_glob_that_reaches_outside_gets_a_note(ws: Path, how: How, glob: str) -> None:
    make(ws, {"a.py": "needle\n", "src/b.py": "needle\n"})
    note = "[a glob only matches inside path; set path to search another directory]"
    assert (await call("find", ws, {"pattern": glob})).done.text.endswith(f"\n{note}")
    text = (await call("grep", ws, {"pattern": "needle", "glob": glob})).done.text
    assert text == f"No matches for 'needle'.\n{note}"


@pytest.mark.parametrize("glob", ["*.rs", "src/*.rs", "~nobody-here", "a..b", "[x]"])
async def test_case_rb_12_other_globs_get_no_note(ws: Path, how: How, glob: str) -> None:
    assert (await call("find", ws, {"pattern": glob})).done.text == f"No matches for {glob!r}."
    assert (await call("grep", ws, {"pattern": "x", "glob": glob})).done.text == "No matches for 'x'."


async def test_a_glob_shows_nothing_of_what_exists_outside(ws: Path, how: How) -> None:
    make(ws, {"a": ""})
    (ws.parent / "there").mkdir()
    results = [(await call("find", ws, {"pattern": f"!../{name}"})).done.text for name in ("there", "gone")]
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("glob", "path", "matches"),
    [
        (r"[\*a]", "a", True),
        (r"[\*a]", "*", True),
        (r"\{a,b\}/{c,d}", "{a,b}/d", True),
        (r"\{a,b\}/{c,d}", "a/d", False),
        (r"\*.py", "*.py", True),
        (r"\*.py", "a.py", False),
        (r"\!a", "!a", True),
        (r"\!a", "b", False),
        ("{a}", "{a}", True),
        ("[]]", "]", True),
        ("[]]", "[]]", True),
    ],
)
def test_escaped_characters_are_literal(glob: str, path: str, matches: bool) -> None:
    assert Glob(glob).matches(path) == matches


@given(names=st.lists(SPECIAL, min_size=1, max_size=3))
@settings(max_examples=150, deadline=None)
@example(names=["!a", "b"])
@example(names=["~", "src"])
@example(names=["{a,b}"])
@example(names=["\\[id\\]"])
@example(names=["a\\"])
def test_case_rb_12_a_path_that_exists_is_a_glob_for_itself(
    tmp_path_factory: pytest.TempPathFactory, names: list[str]
) -> None:
    root = tmp_path_factory.mktemp("globs")
    path = "/".join(names)
    make(root, {path: ""})
    assert Glob(path, root).matches(path)
    assert Glob(f"{root}/{path}", root).matches(path)
    assert Glob(f"**/{path}", root).matches(f"x/{path}")
    if not set(path) & set("*?{"):
        assert not Glob(path, root).matches(f"{path}x")
        assert not Glob(f"{root}/{path}", root).matches(f"{path}x")


@given(name=SPECIAL, below=SPECIAL)
@settings(max_examples=150, deadline=None)
def test_case_rb_12_an_escaped_name_is_a_glob_for_itself(name: str, below: str) -> None:
    path = f"x{name}/{below}"
    escaped = "".join(f"\\{one}" if one in "*?[]{}!\\" else one for one in path)
    assert Glob(escaped).matches(path)


@given(
    inner=st.text("abcdi!^-", min_size=1, max_size=4).filter(lambda text: text.strip("!^")),
    letter=st.sampled_from("abcdi"),
)
@settings(deadline=None)
def test_sets_of_characters_match_where_no_such_name_exists(
    tmp_path_factory: pytest.TempPathFactory, inner: str, letter: str
) -> None:
    root = tmp_path_factory.getbasetemp()
    if fnmatch.fnmatchcase(letter, f"[{inner}]".replace("[^", "[!")):
        assert Glob(f"no/[{inner}]/x", root).matches(f"no/{letter}/x")
        assert Glob(f"[{inner}]", root).matches(letter)


@pytest.mark.parametrize("glob", [r"*\[" * 40 + "b", "*[" * 60 + "b", "*[a]" * 40 + "b", "[" * 200, r"*\*" * 50])
def test_special_characters_are_matched_in_linear_time(glob: str) -> None:
    assert not Glob(glob).matches("[" * 250 + "c")
    assert not Glob(f"**/{glob}").matches("a/" * 60 + "[a" * 120)
