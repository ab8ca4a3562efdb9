"""File names with line feeds, terminal codes or invalid UTF-8: how they are shown and accepted."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tool_calls import call, names_in

from yarrow.tool.globs import Glob, compile_names
from yarrow.tool.paths import quote_path, unquote_path

ODD = {
    "nl\nname": r'"nl\nname"',
    "esc\x1b[2Jx": r'"esc\u001b[2Jx"',
    "c1\x9b2Jx": r'"c1\u009b2Jx"',
    "line\u2028end": r'"line\u2028end"',
    "byte\udcff": r'"byte\udcff"',
    '"nl\\nname"': r'"\"nl\\nname\""',
    "é\x7f": r'"é\u007f"',
}
"""Names, and how they are shown."""


@pytest.mark.parametrize(("name", "shown"), ODD.items())
async def test_an_odd_name_is_one_line_and_round_trips(ws: Path, name: str, shown: str) -> None:
    (ws / "d").mkdir()
    (ws / "d" / name).write_text("needle\n")
    whole = f'"d/{shown[1:]}'
    assert (await call("ls", ws, {"path": "d"})).done.text == shown
    assert (await call("find", ws, {"pattern": "*"})).done.text == whole
    assert (await call("grep", ws, {"pattern": "needle"})).done.text == f"{whole}:1:needle"
    for number, path in enumerate((whole, f"d/{shown}")):
        assert (await call("read", ws, {"path": path})).done.text == f"{'new ' * number}needle\n"
        edits = [{"old": "needle", "new": "new needle"}]
        assert (await call("edit", ws, {"path": path, "edits": edits})).done.text.startswith(f"Changed {whole} in")
    assert (await call("write", ws, {"path": whole, "content": "x"})).done.text.startswith(f"Replaced {whole}, ")
    assert [path.name for path in (ws / "d").iterdir()] == [name]
    assert (ws / "d" / name).read_text() == "x"


async def test_an_odd_directory_is_listed_and_entered(ws: Path) -> None:
    (ws / "a\nb").mkdir()
    (ws / "a\nb/f").write_text("x\n")
    assert (await call("ls", ws, {})).done.text == r'"a\nb/"'
    for path in (r'"a\nb/"', r'"a\nb"', r'"a\nb"/'):
        assert (await call("ls", ws, {"path": path})).done.text == "f"
    assert (await call("read", ws, {"path": r'"a\nb"/f'})).done.text == "x\n"


async def test_quotation_marks_in_a_name_belong_to_it(ws: Path) -> None:
    await call("write", ws, {"path": '"a"', "content": "x"})
    await call("write", ws, {"path": 'say "no"', "content": "x"})
    assert names_in(ws) == ['"a"', 'say "no"']
    assert (await call("ls", ws, {})).done.text == '"\\"a\\""\nsay "no"'


async def test_a_tilde_with_a_user_name_is_not_expanded(ws: Path) -> None:
    path = "~no-such-user/x"
    assert "does not exist" in (await call("read", ws, {"path": path})).failed.text
    for name, rest in (("write", {"content": "x"}), ("edit", {"edits": [{"old": "a", "new": "b"}]})):
        failed = (await call(name, ws, {"path": path, **rest})).failed
        assert failed.text == f"'{path}' was not written: only ~ alone expands to a home directory. Use the full path."
    assert not list(ws.iterdir())
    (ws / "~no-such-user").mkdir()
    assert (await call("write", ws, {"path": path, "content": "x"})).done


@given(path=st.text(st.sampled_from('ab"\\nu0/\n\x1b\x9b\u2028\udcffé'), min_size=1))
def test_every_path_is_one_line_and_round_trips(path: str) -> None:
    text = quote_path(path)
    assert not re.search("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]", text)
    assert unquote_path(text) == path


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("read", {"path": "x" * 300}),
        ("ls", {"path": "x" * 300}),
        ("grep", {"path": "x" * 300, "pattern": "a"}),
        ("find", {"path": "x" * 300, "pattern": "a"}),
        ("bash", {"command": "true", "cwd": "x" * 300}),
    ],
)
async def test_a_too_long_name_is_reported_as_an_error(
    ws: Path, tool: str, arguments: dict[str, str], dry_run: bool
) -> None:
    text = (await call(tool, ws, arguments, dry_run=dry_run)).text
    assert "File name too long" in text
    assert "failed" not in text


async def test_a_symlink_loop_does_not_prevent_listing_its_directory(ws: Path) -> None:
    (ws / "round").symlink_to("round")
    (ws / "sub").mkdir()
    assert (await call("ls", ws, {})).done.text == "round\nsub/"
    assert "round\nsub/" in (await call("read", ws, {"path": "."})).done.text


@pytest.mark.parametrize("target", ["round", "gone"])
async def test_a_dangling_symlink_is_reported(ws: Path, target: str) -> None:
    (ws / "round").symlink_to(target)
    for tool in ("grep", "find"):
        text = (await call(tool, ws, {"path": "round", "pattern": "x"})).failed.text
        assert text == "round is a dangling symlink. Check with ls or find."


async def test_a_searched_directory_is_not_reported_as_omitted(ws: Path) -> None:
    (ws / ".env").mkdir()
    (ws / ".env/activate").write_text("here")
    assert (await call("grep", ws, {"pattern": "here"})).done.text == ".env/activate:1:here"


def test_consecutive_double_stars_are_merged() -> None:
    assert len(compile_names("**/" * 300 + "x")) == len(compile_names("**/x"))
    assert Glob("**/**/x").matches("x")
    assert Glob("a/**/**").matches("a/b/c")
    assert not Glob("**/**/x").matches("x/y")
