"""The keys and commands of docs/terminal.md match the code."""

from pathlib import Path

from yarrow.client.conversation import CHAT_COMMANDS
from yarrow.client.tui.editor.attachments import MAX_INLINE_CHARACTERS, MAX_INLINE_LINES
from yarrow.client.tui.key_bindings import KEYS

PAGE = (Path(__file__).parents[2] / "docs" / "terminal.md").read_text()


def test_every_key_and_command_is_documented() -> None:
    assert [key for key in (*(key.shown for key in KEYS), "Ctrl+J", "Up, Down", "Tab") if f"| {key} " not in PAGE] == []
    assert [name for name in CHAT_COMMANDS if f"/{name}" not in PAGE] == []


def test_the_limits_of_a_paste_are_documented() -> None:
    assert MAX_INLINE_LINES == 10
    assert "more than ten lines" in PAGE
    assert f"{MAX_INLINE_CHARACTERS:,} characters" in PAGE
