"""The editor's parts: what was typed before, long pastes, completion, pictures, and the person's own editor."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.utils import get_cwidth

from yarrow.client.tui.editor.attachments import (
    MAX_INLINE_LINES,
    ImageAttachments,
    PastePlaceholders,
    find_mentioned_images,
)
from yarrow.client.tui.editor.completion import (
    CompletionItem,
    CompletionSources,
    InputCompleter,
    completes_while_typing,
)
from yarrow.client.tui.editor.editor import MAX_TEXTS, Editor, InputHistory
from yarrow.client.tui.input_actions import EditorError, edit_text
from yarrow.client.tui.terminal import separate_cells

PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\1\0\0\0\1"


def test_the_draft_is_kept_while_browsing_the_history() -> None:
    past = InputHistory()
    past.replace_all(["one", "two", "two", " "])
    assert past.go_forward() is None
    assert past.go_back("draft") == "two"
    assert past.go_back("two") == "one"
    assert past.go_back("one") is None
    assert past.go_forward() == "two"
    assert past.go_forward() == "draft"
    assert past.go_forward() is None


def test_sent_texts_are_added_and_the_oldest_dropped() -> None:
    past = InputHistory()
    past.replace_all(str(number) for number in range(MAX_TEXTS + 5))
    past.add("new")
    assert past.go_back("") == "new"
    texts = list(iter(lambda: past.go_back(""), None))
    assert len(texts) == MAX_TEXTS - 1
    assert texts[-1] == "6"


def test_a_long_paste_is_a_placeholder_and_is_sent_whole() -> None:
    pastes = PastePlaceholders()
    long = "\r\n".join(f"line {number}" for number in range(10_000))
    shown = pastes.shorten(long)
    assert shown == "[pasted 10,000 lines #1]"
    assert pastes.expand(f"look: {shown}!") == f"look: {long}!".replace("\r\n", "\n")
    assert pastes.placeholder_before(f"look: {shown}") == shown
    assert pastes.placeholder_before("[pasted 3 lines #9]") == ""
    assert pastes.expand("[pasted 3 lines #9]") == "[pasted 3 lines #9]"
    assert pastes.shorten("x" * 3_000) == "[pasted 3,000 characters #2]"


def test_a_short_paste_is_inserted_unchanged() -> None:
    text = "a\n" * (MAX_INLINE_LINES - 1)
    assert PastePlaceholders().shorten(text) == text


async def _commands() -> Sequence[CompletionItem]:
    return [CompletionItem("stats", "figures"), CompletionItem("steer"), CompletionItem("tree")]


async def _models() -> Sequence[CompletionItem]:
    return [CompletionItem("p/Qwen3"), CompletionItem("p/gemma")]


async def _files(prefix: str) -> Sequence[str]:
    return [path for path in ("src/main.py", "src/other.py") if path.startswith(prefix)]


SOURCES = CompletionSources(commands=_commands, files=_files, command_arguments={"model": _models})


@pytest.mark.parametrize(
    ("text", "asked", "words"),
    [
        ("/", False, ["/stats", "/steer", "/tree"]),
        ("/st", False, ["/stats", "/steer"]),
        ("/model q", False, ["p/Qwen3"]),
        ("/model ", False, ["p/Qwen3", "p/gemma"]),
        ("/other x", False, []),
        ("look at @src/m", False, ["src/main.py"]),
        ("@", False, ["src/main.py", "src/other.py"]),
        ("mail me@src", False, []),
        ("look at src/o", False, []),
        ("look at src/o", True, ["src/other.py"]),
        ("", True, []),
    ],
)
async def test_completions_of_a_prefix(text: str, asked: bool, words: list[str]) -> None:
    event = CompleteEvent(completion_requested=asked)
    found = [one.text async for one in InputCompleter(SOURCES).get_completions_async(Document(text), event)]
    assert found == words
    assert list(InputCompleter(SOURCES).get_completions(Document(text), event)) == []


@pytest.mark.parametrize(
    ("text", "opens"), [("/s", True), ("a @b", True), ("/s x", False), ("a/b", False), ("", False)]
)
def test_completions_open_by_themselves_for_commands_and_mentions(text: str, opens: bool) -> None:
    assert completes_while_typing(text) is opens


def test_taking_the_text_clears_the_editor() -> None:
    editor = Editor(SOURCES, sign="> ", attachments=ImageAttachments())
    assert editor.take() == ""
    editor.set_text(f"see {editor.pastes.shorten('x' * 3_000)}")
    assert editor.take() == f"see {'x' * 3_000}"
    assert editor.text == ""
    editor.set_history(["before"])
    assert editor.history.go_back("") == "before"


def test_images_are_recognized_by_their_content(tmp_path: Path) -> None:
    (tmp_path / "shot.txt").write_bytes(PNG)
    (tmp_path / "fake.png").write_text("no picture")
    (tmp_path / "dir.png").mkdir()
    found = find_mentioned_images(
        "look @shot.txt and @shot.txt, @fake.png @dir.png @missing.png @nul\0 mail@shot.txt", str(tmp_path)
    )
    assert [(name, image.media_type, image.data) for name, image in found.items()] == [("shot.txt", "image/png", PNG)]


async def test_an_external_editor_changes_the_text(tmp_path: Path) -> None:
    script = tmp_path / "my editor"
    script.write_text('#!/bin/sh\nstat -c %a "$2" > seen\necho "$1" >> "$2"\n'.replace("seen", str(tmp_path / "seen")))
    script.chmod(0o755)
    changed = await edit_text("draft", {"VISUAL": f"'{script}' more", "EDITOR": "false"})
    assert changed == "draftmore"
    assert (tmp_path / "seen").read_text().strip() == "600"


@pytest.mark.parametrize(
    ("editor", "said"), [("false", "exited with code 1"), ("/no/such", "set VISUAL or EDITOR"), ("'", "set")]
)
async def test_a_failing_external_editor_keeps_the_text(editor: str, said: str) -> None:
    with pytest.raises(EditorError, match=said):
        await edit_text("draft", {"EDITOR": editor})


async def test_an_external_editor_in_the_workspace_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    script = tmp_path / "vi"
    script.write_text("#!/bin/sh\ntouch ran\n")
    script.chmod(0o755)
    with pytest.raises(EditorError, match="the editor 'vi' is inside the workspace and is not run"):
        await edit_text("draft", {"EDITOR": "vi", "PATH": str(tmp_path)})
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("plain", "plain"),
        ("\x1b[1mé한\x1b[0m", "\x1b[1mé한\x1b[0m"),
        ("\U0001f468\u200d\U0001f469", "\U0001f468\U0001f469"),
        ("\U0001f44d\U0001f3fd.", "\U0001f44d  ."),
        ("\u2764\ufe0f1\ufe0f\u20e3", "\u27641"),
        ("a\u202eb\u200bc", "abc"),
        ("so\u00adft", "so-ft"),
    ],
)
def test_combining_characters_keep_their_columns(text: str, drawn: str) -> None:
    assert separate_cells(text) == drawn
    assert get_cwidth(separate_cells(text)) == get_cwidth(text)
