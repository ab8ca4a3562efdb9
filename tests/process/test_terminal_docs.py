"""What docs/terminal.md says of keys and commands is what there is."""

from pathlib import Path

from yarrow.client.table import CONVERSING
from yarrow.client.tui.commands import OWN
from yarrow.client.tui.editor.paste import SHORT_CHARACTERS, SHORT_LINES
from yarrow.client.tui.keys import KEYS

PAGE = (Path(__file__).parents[2] / "docs" / "terminal.md").read_text()


def test_every_key_and_every_command_is_told() -> None:
    assert [key for key in (*(key.shown for key in KEYS), "Ctrl+J", "Up, Down", "Tab") if f"| {key} " not in PAGE] == []
    assert [name for name in {**OWN, **CONVERSING} if f"/{name}" not in PAGE] == []


def test_the_limits_of_a_paste_are_told() -> None:
    assert SHORT_LINES == 10
    assert "more than ten lines" in PAGE
    assert f"{SHORT_CHARACTERS:,} characters" in PAGE
