"""The tool `edit`: what matches, what is refused, and law 4: outside the replaced span every byte stays the same."""

import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tool_calls import Outcome, call, names_in

from yarrow.tool.edit import EditMismatch, TextEdit, apply_edits


async def edit(ws: Path, data: bytes | str, *edits: tuple[Any, ...], dry_run: bool = False) -> tuple[Outcome, bytes]:
    """Edit a file `f` of this content; an edit is (old, new) or (old, new, all)."""
    (ws / "f").write_bytes(data.encode() if isinstance(data, str) else data)
    given_edits = [dict(zip(("old", "new", "all"), one, strict=False)) for one in edits]
    outcome = await call("edit", ws, {"path": "f", "edits": given_edits}, dry_run=dry_run)
    return outcome, (ws / "f").read_bytes()


async def test_a_unique_text_is_replaced_and_the_diff_shown(ws: Path) -> None:
    outcome, data = await edit(ws, "a\nb\nc\n", ("b", "B"))
    assert data == b"a\nB\nc\n"
    assert outcome.done.text == "Changed f in 1 place (+1 -1)."
    assert outcome.done.diff == "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"


async def test_case_T_01_crlf(ws: Path) -> None:
    _, data = await edit(ws, b"a\r\nb\r\nc\r\n", ("a\nb", "a\nB\nB2"))
    assert data == b"a\r\nB\r\nB2\r\nc\r\n"


async def test_mixed_line_endings_are_preserved(ws: Path) -> None:
    _, data = await edit(ws, b"a\r\nb\nc\r\nd\n", ("a\nb\nc\nd", "a\nx\ny\nc\nd"))
    assert data == b"a\r\nx\ny\nc\r\nd\n"
    _, data = await edit(ws, b"a\r\nb\nc", ("c", "c\nd"))
    assert data == b"a\r\nb\nc\nd"
    _, data = await edit(ws, b"a\r\nb", ("b", "b\r\nc\nd"))
    assert data == b"a\r\nb\r\nc\r\nd"


@pytest.mark.parametrize(
    ("data", "old", "new", "after"),
    [
        (b"a\r\nb\nc\r\nd\n", "a\nb\nc", "A\nb\nC", b"A\r\nb\nC\r\nd\n"),
        (b"a\nb\r\nc\nd\r\n", "a\nb\nc\nd", "A\nb\nnew\nc\nD", b"A\nb\r\nnew\nc\nD\r\n"),
        (b"a\r\nb\nc\r\nd\n", "a\nb\nc\nd", "A\nd", b"A\r\nd\n"),
        (b"a\nb\r\nc\n", "a\nb\nc", "x\ny\nz", b"x\ny\r\nz\n"),
        (b"a\r\nb\nc!\n", "a\nb\nc", "c\nx\ny", b"c\r\nx\r\ny!\n"),
        (b"a\r\nb\nc!\n", "a\nb\nc", "q\na\nb\nc\nx", b"q\r\na\r\nb\nc\r\nx!\n"),
    ],
)
async def test_mixed_line_endings_between_two_edits_are_preserved(
    ws: Path, data: bytes, old: str, new: str, after: bytes
) -> None:
    assert (await edit(ws, data, (old, new)))[1] == after


async def test_case_T_02_bom(ws: Path) -> None:
    outcome, data = await edit(ws, b"\xef\xbb\xbfhello\n\xe4\xb8\xad\n", ("hello", "hello2"))
    assert data == b"\xef\xbb\xbfhello2\n\xe4\xb8\xad\n"
    assert "\ufeff" not in outcome.done.diff
    _, data = await edit(ws, b"\xef\xbb\xbfhello\n", ("hello\n", "hello\nagain\n"))
    assert data == b"\xef\xbb\xbfhello\nagain\n"


async def test_case_T_03_foreign_bytes_are_kept(ws: Path) -> None:
    outcome, data = await edit(ws, b"// caf\xe9 x\nif (a < b)\n", ("a < b", "a <= b"))
    assert data == b"// caf\xe9 x\nif (a <= b)\n"
    assert outcome.done.text == "Changed f in 1 place, as Latin-1, (+1 -1)."
    _, data = await edit(ws, b"caf\xe9\n", ("café", "thé"))
    assert data == b"th\xe9\n"


async def test_case_T_03_unencodable_text_is_rejected(ws: Path) -> None:
    outcome, data = await edit(ws, b"caf\xe9 x\n", ("x", "中"))
    assert outcome.failed.text == "f was not changed: it is not UTF-8 and is edited as Latin-1, which has no '中'."
    assert data == b"caf\xe9 x\n"


async def test_case_T_04_the_new_text_is_not_a_pattern(ws: Path) -> None:
    new = r'log("$& \1 \g<0> $$ %s {0}");'
    _, data = await edit(ws, 'log("done");\n', ('log("done");', new))
    assert data == new.encode() + b"\n"
    _, data = await edit(ws, "a.*b (x|y) \\d [z]", (".*b (x|y) \\d [z]", "!"))
    assert data == b"a!"


@pytest.mark.parametrize("bits", [0o755, 0o600])
async def test_case_T_05_the_mode_is_kept(ws: Path, bits: int) -> None:
    (ws / "f").touch()
    (ws / "f").chmod(bits)
    await edit(ws, "a\n", ("a", "b"))
    assert stat.S_IMODE((ws / "f").stat().st_mode) == bits
    assert names_in(ws) == ["f"]


async def test_case_T_06_a_symlink_stays_a_symlink(ws: Path) -> None:
    (ws / "conf.d").mkdir()
    (ws / "conf.d/real").touch()
    (ws / "f").symlink_to("conf.d/real")
    await edit(ws, "a\n", ("a", "b"))
    assert (ws / "f").is_symlink()
    assert (ws / "conf.d/real").read_text() == "b\n"


async def test_all_replaces_every_occurrence(ws: Path) -> None:
    outcome, data = await edit(ws, "x x\nx", ("x", "yx", True))
    assert data == b"yx yx\nyx"
    assert outcome.done.text == "Changed f in 3 places (+2 -2)."
    _, data = await edit(ws, "aaaa", ("aa", "b", True))
    assert data == b"bb"


async def test_several_edits_are_matched_against_the_original(ws: Path) -> None:
    outcome, data = await edit(ws, "one two three", ("three", "one"), ("one", "two"), ("two", "three"))
    assert data == b"two three one"
    assert outcome.done.text == "Changed f in 3 places (+1 -1)."


@pytest.mark.parametrize(
    ("text", "edits", "said"),
    [
        ("x\nx\n", [("x", "y")], "`old` occurs 2 times, at lines 1, 2."),
        ("aaa", [("aa", "b")], "`old` occurs 2 times, at lines 1, 1."),
        ("x\n" * 30, [("x", "y")], "at lines 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, ..."),
        ("x", [("", "y")], "`old` is empty."),
        ("x", [("x", "x")], "`old` and `new` are the same."),
        ("x\r\ny", [("x\r\ny", "x\ny")], "`old` and `new` are the same."),
        ("a b c", [("a b", "1"), ("b c", "2")], "Two edits overlap at line 1."),
        ("a\nb", [("b", "1"), ("b", "2")], "Two edits overlap at line 2."),
        ("a\nb", [("b", "bc"), ("b", "bc")], "Two edits overlap at line 2."),
        ("a b", [("a", "1"), ("z", "2")], "Edit 2 of 2: `old` was not found"),
        ("“a”", [('"a"', "“a”")], "change nothing"),
        ("x", [("nothing", "2")], "nor any line similar to its first. Read the file again."),
    ],
)
async def test_mismatches_are_rejected_and_nothing_is_changed(
    ws: Path, text: str, edits: list[tuple[str, str]], said: str
) -> None:
    for dry_run in (False, True):
        outcome, data = await edit(ws, text, *edits, dry_run=dry_run)
        assert said in outcome.failed.text
        assert "was not changed" in outcome.text
        assert data == text.encode()


async def test_an_empty_edit_list_is_rejected(ws: Path) -> None:
    outcome, _ = await edit(ws, "x")
    assert "length >= 1" in outcome.failed.text


async def test_the_nearest_lines_are_shown_with_their_numbers(ws: Path) -> None:
    text = "import os\n\ndef total(values):\n    return sum(values)\n\ndef other():\n    pass\n"
    outcome, _ = await edit(ws, text, ("def totals(values):\n    return sum(value)", "x"))
    assert outcome.failed.text == (
        "f was not changed. `old` was not found. The nearest lines:\n"
        "3: def total(values):\n4:     return sum(values)\nCopy the text exactly."
    )


@pytest.mark.parametrize(
    ("text", "old", "new", "right"),
    [
        ("a  \nb\t\nc\n", "a\nb\nc", "A\nB\nC", "A\nB\nC\n"),
        ("a\nb\n", "a  \nb", "A\nB", "A\nB\n"),
        ("say “hi”\n", 'say "hi"', 'say "ho"', 'say "ho"\n'),
        ("it\u2019s \u2014 so\n", "it's - so", "so", "so\n"),
        ("a\u00a0b\n", "a b", "ab", "ab\n"),
        ("cafe\u0301 x\n", "caf\u00e9 x", "thé", "thé\n"),
        ("caf\u00e9 x\n", "cafe\u0301 x", "thé", "thé\n"),
        ("\ud55c\uae00 x\n", "\u1112\u1161\u11ab\u1100\u1173\u11af x", "y", "y\n"),
        ("x “a” y\r\nz\r\n", 'x "a" y\nz', "1\n2", "1\r\n2\r\n"),
        ("é “x” y\n", '"x"', "z", "é z y\n"),
        ("keep  \na “b”\nkeep  \n", 'a "b"', "c", "keep  \nc\nkeep  \n"),
    ],
)
async def test_a_unique_fuzzy_match_is_used(ws: Path, text: str, old: str, new: str, right: str) -> None:
    outcome, data = await edit(ws, text, (old, new))
    assert outcome.done
    assert data.decode() == right
    twice, data = await edit(ws, text + "--\n" + text, (old, new))
    assert "not found" in twice.failed.text
    assert data.decode() == text + "--\n" + text


async def test_an_exact_match_precedes_a_fuzzy_one(ws: Path) -> None:
    _, data = await edit(ws, '“a”\n"a"\n', ('"a"', "b"))
    assert data == "“a”\nb\n".encode()


@pytest.mark.parametrize(
    ("text", "old"),
    [("cafe\u0301\n", "cafe"), ("   \n\n", "\n\n\n"), ("foobar\n", "foo  "), ("x “\n", ' "')],
)
def test_no_fuzzy_match_splits_a_character_or_is_empty(text: str, old: str) -> None:
    outcome = apply_edits(text, [TextEdit(old, "Z")])
    if isinstance(outcome, tuple):
        assert outcome[0] in {"xZ\n", "Z\u0301\n"}
    else:
        assert "not found" in outcome.text


async def test_a_missing_or_binary_file_is_rejected(ws: Path) -> None:
    (ws / "main.py").write_text("x")
    missing = await call("edit", ws, {"path": "mian.py", "edits": [{"old": "a", "new": "b"}]})
    assert "Did you mean main.py" in missing.failed.text
    assert "use write" in missing.text
    for data in (b"a\0b", b"\xff\xfea\0\0\0", b"\xff\xfe\0\0a\0\0\0", b"a" * 10_000 + b"\0"):
        outcome, after = await edit(ws, data, ("a", "b"))
        assert "cannot be edited" in outcome.failed.text
        assert after == data


async def test_a_dry_run_shows_the_diff_and_changes_nothing(ws: Path) -> None:
    outcome, data = await edit(ws, "a\r\nb\r\n", ("b", "B"), dry_run=True)
    diff = "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\r\n-b\r\n+B\r\n"
    assert data == b"a\r\nb\r\n"
    assert outcome.done.diff == diff
    assert outcome.text == f"Dry run: nothing was changed. Would change f in 1 place (+1 -1):\n{diff}"
    real, _ = await edit(ws, "a\r\nb\r\n", ("b", "B"))
    assert real.done.diff == diff


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
async def test_utf_16_is_edited_and_otherwise_unchanged(ws: Path, encoding: str) -> None:
    text = "\ufeffone é\r\ntwo \U0001f30d\nthree\r\n"
    outcome, after = await edit(ws, text.encode(encoding), ("two \U0001f30d", "2 “x”"))
    assert after == text.replace("two \U0001f30d", "2 “x”").encode(encoding)
    assert outcome.done.diff == "--- a/f\n+++ b/f\n@@ -1,3 +1,3 @@\n one é\r\n-two \U0001f30d\n+2 “x”\n three\r\n"


@given(text=st.text(st.sampled_from("aé中\U0001f30d\r\n\ud800\udc00\u0d0a\u0a0d"), max_size=30), big=st.booleans())
def test_law_4_in_utf_16_with_lone_surrogates(
    tmp_path_factory: pytest.TempPathFactory, text: str, *, big: bool
) -> None:
    import asyncio

    encoding = "utf-16-be" if big else "utf-16-le"
    whole = "\ufeff".encode(encoding) + f"{text}<old>{text}".encode(encoding, "surrogatepass")
    _, after = asyncio.run(edit(tmp_path_factory.mktemp("law4"), whole, ("<old>", "<new>")))
    assert after == whole.replace("old".encode(encoding), "new".encode(encoding))


async def test_truncated_utf_16_is_rejected_with_the_cause(ws: Path) -> None:
    data = "\ufeffab".encode("utf-16-le") + b"c"
    outcome, after = await edit(ws, data, ("a", "b"))
    assert "it has a UTF-16 BOM but ends in the middle of a character" in outcome.failed.text
    assert after == data


TOKENS = st.sampled_from(
    [
        "\n",
        "\r\n",
        "\r",
        "a",
        "b",
        "  ",
        "\t",
        "é",
        "e\u0301",
        "中",
        "\U0001f30d",
        "“",
        '"',
        "—",
        "-",
        "\u2028",
        "\ufeff",
        "\x0c",
        "$&",
        "\\1",
    ]
)
TEXTS = st.lists(TOKENS, max_size=14).map("".join)


@given(before=TEXTS, old=TEXTS, after=TEXTS, new=TEXTS)
@settings(max_examples=400)
def test_law_4_outside_the_replaced_span_every_byte_stays_the_same(before: str, old: str, after: str, new: str) -> None:
    """The bytes before and behind the span are in the result, whatever was put in between."""
    assume(
        old
        and not (before.endswith("\r") and old.startswith("\n"))
        and not (old.endswith("\r") and after.startswith("\n"))
        and "\r" not in new.replace("\r\n", "")
    )
    text = before + old + after
    outcome = apply_edits(text, [TextEdit(old, new)])
    if isinstance(outcome, EditMismatch):
        return
    changed, count = outcome
    assert count == 1
    assert changed.startswith(before)
    assert changed.endswith(after)
    put_in = changed[len(before) : len(changed) - len(after)]
    assert put_in.replace("\r\n", "\n") == new.replace("\r\n", "\n")


@given(
    lines=st.lists(st.tuples(TEXTS, st.sampled_from(["\n", "\r\n"])), min_size=1, max_size=12),
    data=st.data(),
    bom=st.booleans(),
    foreign=st.booleans(),
    end=TEXTS,
)
@settings(max_examples=150, deadline=None)
def test_law_4_holds_on_disk(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[tuple[str, str]],
    data: st.DataObject,
    bom: bool,
    foreign: bool,
    end: str,
) -> None:
    """Lines that an edit does not name are byte for byte where they were, foreign bytes among them."""
    import asyncio

    parts = [f"<{n}>{''.join(text.split())}".encode() + ending.encode() for n, (text, ending) in enumerate(lines)]
    if foreign:
        parts = [b"\xe9" + part for part in parts]
    tail = "".join(end.split()).encode()
    chosen = sorted(data.draw(st.sets(st.integers(0, len(lines) - 1), max_size=3)))
    replacement = data.draw(st.sampled_from(["new", "new\nlines", "new\r\nlines", "", "é"]))
    whole = (b"\xef\xbb\xbf" if bom else b"") + b"".join(parts) + tail
    ws = tmp_path_factory.mktemp("law4")
    (ws / "f").write_bytes(whole)
    edits = [{"old": f"<{n}>", "new": replacement} for n in chosen]
    outcome = asyncio.run(call("edit", ws, {"path": "f", "edits": edits or [{"old": "absent!", "new": "x"}]}))
    after = (ws / "f").read_bytes()
    if not edits:
        assert outcome.failed
        assert after == whole
        return
    assert outcome.done
    encoded = replacement.replace("\r\n", "\n").encode("latin-1" if _is_latin(whole) else "utf-8")
    expected = list(parts)
    for n in chosen:
        ending = lines[n][1].encode()
        expected[n] = parts[n].replace(f"<{n}>".encode(), encoded.replace(b"\n", ending))
    assert after == (b"\xef\xbb\xbf" if bom else b"") + b"".join(expected) + tail


def _is_latin(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return True
    return False


@given(old=TEXTS, new=TEXTS)
@settings(max_examples=60, deadline=None)
def test_every_diff_applies(tmp_path_factory: pytest.TempPathFactory, old: str, new: str) -> None:
    from yarrow.tool.diff import make_unified_diff

    diff = make_unified_diff("f", old, new)
    assert bool(diff) == (old != new)
    if not diff:
        return
    ws = tmp_path_factory.mktemp("diff")
    (ws / "f").write_bytes(old.encode())
    subprocess.run(["git", "apply", "-"], input=diff.encode(), cwd=ws, check=True, capture_output=True)
    after = (ws / "f").read_bytes() if (ws / "f").exists() else b""
    assert after == new.encode()
