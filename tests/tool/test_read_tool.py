"""The tools `read` and `ls`."""

import base64
import os
import random
from pathlib import Path

import pytest
from tool_calls import call, context_of

from yarrow.imaging.fit import IMAGE_BYTES
from yarrow.message import Image
from yarrow.tool.result_limits import MAX_RESULT_BYTES

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + b"\0\0\0\1" * 2


async def test_a_file_is_shown_unchanged(ws: Path) -> None:
    (ws / "a").write_bytes(b"one\ntwo\n\nfour")
    assert (await call("read", ws, {"path": "a"})).done.text == "one\ntwo\n\nfour"


async def test_an_empty_file_is_not_an_error(ws: Path) -> None:
    (ws / "a").touch()
    assert (await call("read", ws, {"path": "a", "offset": 5})).done.text == "[the file is empty]"


async def test_a_page_states_the_offset_of_the_rest(ws: Path) -> None:
    (ws / "a").write_text("".join(f"{n}\n" for n in range(1, 4_001)))
    first = (await call("read", ws, {"path": "a"})).done.text
    assert first.startswith("1\n2\n")
    assert first.endswith("\n2000\n\n[lines 1-2,000 of 4,000; continue with offset 2001]")
    second = (await call("read", ws, {"path": "a", "offset": 2_001})).done.text
    assert second == "".join(f"{n}\n" for n in range(2_001, 4_001))
    page = (await call("read", ws, {"path": "a", "offset": 7, "limit": 2})).done.text
    assert page == "7\n8\n\n[lines 7-8 of 4,000; continue with offset 9]"


@pytest.mark.parametrize("end", ["", "\n"])
async def test_an_offset_past_the_end_is_an_error_with_the_line_count(ws: Path, end: str) -> None:
    (ws / "a").write_text("a\nb\nc" + end)
    for offset in (4, 5, 100):
        assert (await call("read", ws, {"path": "a", "offset": offset})).failed.text == (
            f"a has 3 lines; offset {offset} is past its end."
        )
    assert (await call("read", ws, {"path": "a", "offset": 3})).done.text == "c" + end


@pytest.mark.parametrize("arguments", [{"offset": 0}, {"offset": -1}, {"limit": 0}])
async def test_lines_count_from_one(ws: Path, arguments: dict[str, int]) -> None:
    (ws / "a").write_text("a\n")
    assert (await call("read", ws, {"path": "a", **arguments})).failed.text == "offset and limit must be at least 1."


async def test_pages_follow_each_other_without_gap_or_overlap(ws: Path) -> None:
    """Whatever the lengths of lines, going on from page to page gives the file."""
    random.seed(7)
    text = "".join("é" * random.choice([0, 1, 30, 3_000, 20_000]) + "\n" for _ in range(60))
    (ws / "a").write_text(text)
    got, offset = "", 1
    while True:
        shown = (await call("read", ws, {"path": "a", "offset": offset})).done.text
        page, _, note = shown.partition("\n[lines ")
        got += page
        assert len(page.encode()) <= MAX_RESULT_BYTES
        if not note:
            break
        assert "of 60;" in note
        offset = int(note.rpartition(" ")[2].rstrip("]"))
    assert got == text


async def test_an_overlong_line_is_truncated_between_characters(ws: Path) -> None:
    (ws / "a").write_text("first\nx" + "é" * 40_000 + "\nthird\n")
    shown = (await call("read", ws, {"path": "a", "offset": 2})).done.text
    line, cut, rest = shown.split("\n")
    assert line == "x" + "é" * (len(line) - 1)
    assert len(line.encode()) == MAX_RESULT_BYTES - 1
    assert cut == "[line 2 is truncated after 51,199 of 80,002 bytes; the rest: sed -n 2p a | tail -c +51200]"
    assert rest == "[lines 2-2 of 3; continue with offset 3]"
    assert (await call("read", ws, {"path": "a", "offset": 3})).done.text == "third\n"


async def test_a_huge_file_is_read_in_constant_memory(ws: Path) -> None:
    import tracemalloc

    with (ws / "a").open("wb") as file:
        for _ in range(64):
            file.write(b"x" * 1_000_000 + b"\n")
    tracemalloc.start()
    shown = (await call("read", ws, {"path": "a", "offset": 64})).done.text
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "line 64 is truncated" in shown
    assert peak < 8_000_000


async def test_line_ends_and_bom_are_not_shown(ws: Path) -> None:
    (ws / "a").write_bytes(b"\xef\xbb\xbfone\r\ntwo\r\nth\rree")
    assert (await call("read", ws, {"path": "a"})).done.text == "one\ntwo\nth\rree"


async def test_other_encodings_are_read_without_loss_and_noted(ws: Path) -> None:
    (ws / "a").write_bytes(b"// caf\xe9 x\n")
    assert (await call("read", ws, {"path": "a"})).done.text == "// café x\n\n[not UTF-8: shown as Latin-1]"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"a\0b", "a is a binary file of 3 bytes and cannot be shown."),
        (b"%PDF-1.7\nabc", "a is a PDF document of 12 bytes and cannot be shown."),
        (b"\x7fELF\2", "a is an ELF program of 5 bytes and cannot be shown."),
        ("\ufeffhi\0".encode("utf-16-le"), "a is a binary file of 8 bytes and cannot be shown."),
        ("\ufeffhi".encode("utf-32-le"), "a is UTF-32 text, which is not supported (try: iconv -f UTF-32 -t UTF-8)"),
    ],
)
async def test_a_binary_file_is_reported_not_shown(ws: Path, data: bytes, said: str) -> None:
    (ws / "a").write_bytes(data)
    assert said in (await call("read", ws, {"path": "a"})).failed.text


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
async def test_utf_16_is_read_in_pages(ws: Path, encoding: str) -> None:
    (ws / "a").write_bytes("\ufeffone\r\ntwo é\r\nthree\r\n".encode(encoding))
    assert (await call("read", ws, {"path": "a"})).done.text == "one\ntwo é\nthree\n\n[UTF-16]"
    page = (await call("read", ws, {"path": "a", "offset": 2, "limit": 1})).done.text
    assert page == "two é\n\n[lines 2-2 of 3; continue with offset 3]\n[UTF-16]"


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xc0\0\x0b\x08\0\1\0\1", "image/jpeg"),
        (b"GIF89a\1\0\1\0", "image/gif"),
        (b"RIFF\x16\0\0\0WEBPVP8X\n\0\0\0" + b"\0" * 10, "image/webp"),
    ],
)
async def test_an_image_is_recognized_by_its_content(ws: Path, data: bytes, media_type: str) -> None:
    (ws / "a.txt").write_bytes(data)
    done = (await call("read", ws, {"path": "a.txt"})).done
    assert done.images == (Image(media_type, base64.b64encode(data).decode()),)
    assert done.text == f"[{media_type}, {len(data)} bytes]"


async def test_an_image_has_a_bound(ws: Path) -> None:
    (ws / "a.png").write_bytes(PNG.ljust(IMAGE_BYTES, b"\0"))
    assert (await call("read", ws, {"path": "a.png"})).done.images
    (ws / "a.png").write_bytes(PNG.ljust(IMAGE_BYTES + 1, b"\0"))
    assert "the limit is 3,932,160" in (await call("read", ws, {"path": "a.png"})).failed.text


async def test_a_missing_name_lists_similar_names(ws: Path) -> None:
    (ws / "src").mkdir()
    (ws / "src/main.py").touch()
    missing = (await call("read", ws, {"path": "src/mian.py"})).failed.text
    assert missing == "src/mian.py does not exist. Did you mean main.py, in the same directory?"
    nowhere = (await call("read", ws, {"path": "scr/main.py"})).failed.text
    assert nowhere.startswith("scr/main.py does not exist, nor does its directory")


@pytest.mark.parametrize("name", ["read", "ls", "grep", "find"])
async def test_special_files_are_an_error_without_blocking(ws: Path, name: str) -> None:
    os.mkfifo(ws / "pipe")
    (ws / "loop").symlink_to("loop")
    for path in ("pipe", "loop", "no/such", "a\0b", "pipe/x"):
        arguments = {"path": path} | ({"pattern": "x"} if name in {"grep", "find"} else {})
        assert (await call(name, ws, arguments)).failed.text


async def test_an_at_sign_of_a_mention_is_dropped(ws: Path) -> None:
    (ws / "src").mkdir()
    (ws / "src/a").write_text("plain")
    assert (await call("read", ws, {"path": "@src/a"})).done.text == "plain"
    (ws / "@src").mkdir()
    (ws / "@src/a").write_text("scoped")
    assert (await call("read", ws, {"path": "@src/a"})).done.text == "scoped"


async def test_the_home_directory_is_expanded(ws: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(ws))
    (ws / "a").write_text("home")
    assert (await call("read", ws, {"path": "~/a"})).done.text == "home"
    assert (await call("ls", ws, {"path": "~"})).done.text == "a"


async def test_absolute_and_parent_paths_inside_the_workspace_work(ws: Path) -> None:
    (ws / "d").mkdir()
    (ws / "a").write_text("text")
    assert (await call("read", ws, {"path": str(ws / "a")})).done.text == "text"
    assert (await call("read", ws, {"path": "d/../a"})).done.text == "text"


async def test_a_directory_is_listed(ws: Path) -> None:
    for name in ("b", ".hidden", "C"):
        (ws / name).touch()
    (ws / "a").mkdir()
    (ws / "link").symlink_to("a")
    listed = ".hidden\nC\na/\nb\nlink/"
    assert (await call("ls", ws, {})).done.text == listed
    assert (await call("read", ws, {"path": "."})).done.text == listed
    assert (await call("ls", ws, {"path": "a"})).done.text == "[the directory is empty]"
    assert (await call("ls", ws, {"path": "b"})).failed.text == "b is not a directory. To read a file, use read."


async def test_a_truncated_listing_states_the_total(ws: Path) -> None:
    for number in range(1_501):
        (ws / f"{number:05}").touch()
    *names, note = (await call("ls", ws, {})).done.text.split("\n")
    assert names == [f"{number:05}" for number in range(500)]
    assert note == "[500 of 1,501 names; set limit to see more]"
    assert (await call("ls", ws, {"limit": 1_501})).done.text.count("\n") == 1_500


async def test_case_X_02_reading_through_a_symlink_out_of_the_workspace(ws: Path) -> None:
    outside = ws.parent / "outside"
    outside.mkdir()
    (outside / "s").write_text("secret")
    (ws / "outbox").symlink_to(outside)
    for name, path in (
        ("read", "outbox/s"),
        ("ls", "outbox"),
        ("grep", "outbox"),
        ("find", "outbox"),
        ("read", "../outside/s"),
    ):
        arguments = {"path": path} | ({"pattern": "secret"} if name in {"grep", "find"} else {})
        refused = (await call(name, ws, arguments)).failed.text
        assert "outside the workspace" in refused
        assert "workspace.read" in refused
    allowed = context_of(ws, read=[str(outside)])
    assert (await call("read", allowed, {"path": "outbox/s"})).done.text == "secret"


async def test_case_X_02_a_workspace_reached_through_a_symlink(ws: Path) -> None:
    (ws / "a").write_text("text")
    (ws.parent / "way").symlink_to(ws)
    way = ws.parent / "way"
    assert (await call("read", way, {"path": "a"})).done.text == "text"
    assert (await call("read", way, {"path": str(way / "a")})).done.text == "text"
    assert (await call("write", way, {"path": "b", "content": "new"})).done.text.startswith("Created b ")
    assert (ws / "b").read_text() == "new"


async def test_case_X_05_env_files(ws: Path) -> None:
    (ws / "sub").mkdir()
    (ws / ".env").write_text("K=v1\n")
    (ws / "sub/.env.local").write_text("K=v1\n")
    (ws / ".env.example").write_text("K=\n")
    for path in (".env", "./sub/../.env", "sub/.env.local"):
        assert "secrets" in (await call("read", ws, {"path": path})).failed.text
        assert "secrets" in (await call("grep", ws, {"path": path, "pattern": "K="})).failed.text
    found = (await call("grep", ws, {"pattern": "K="})).done.text
    assert found == ".env.example:1:K=\n[.env not searched: may contain secrets]"
    listed = (await call("find", ws, {"pattern": "*"})).done.text
    assert listed == ".env.example\n[2 left out: files such as .env contain secrets]"
    assert (await call("read", ws, {"path": ".env.example"})).done.text == "K=\n"
