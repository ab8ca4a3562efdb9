"""Notes that arrive during an answer are printed once, between its blocks, never within one."""

import pytest

from yarrow.client.tui import markdown
from yarrow.client.tui.terminal_theme import TerminalTheme
from yarrow.client.tui.view_state import ViewState
from yarrow.v1 import agent_pb2 as pb

NEVER = 10_000
NOTE = "error: NOTE"
LONG_LINES = 3
"""Lines of a block that is printed in parts, in these tests: each key of one of sixty would take minutes."""
LONG_FENCE = "```\n" + "".join(f"line {number}\n" for number in range(2 * LONG_LINES)) + "```\n\nbehind it"
ANSWER = "The first paragraph\ngoes on here.\n\n- an item\n- and another\n\n```py\nx = 1\n\ny = 2\n```\n\nThe end."


def shown(text: str, at: int, size: int = 1, thinking: str = "") -> tuple[list[str], int]:
    """The lines that are printed of an answer in pieces when a note comes before its piece `at`, and its first row."""
    scene, printed = ViewState(TerminalTheme()), ""
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    events = [pb.AgentEvent(message_start=pb.MessageStart(message_id="a1"))]
    events += [pb.AgentEvent(thinking_delta=pb.ThinkingDelta(text=letter)) for letter in thinking]
    events += [pb.AgentEvent(text_delta=pb.TextDelta(text=piece)) for piece in pieces]
    events.append(pb.AgentEvent(message_end=pb.MessageEnd(message_id="a1")))
    noted = -1
    for index, event in enumerate(events):
        if index == at:
            scene.add_note("error", "NOTE")
        scene.apply_events([event])
        frame = scene.make_frame(60, 20)
        assert at > index or NOTE in printed + frame.scrollback + "\n".join(frame.live)
        scene.mark_printed(frame)
        printed += frame.scrollback
        if noted < 0 and NOTE in printed:
            noted = index
    return [line.rstrip() for line in printed.split("\n") if line.strip()], noted


@pytest.mark.thorough
@pytest.mark.parametrize(("text", "size", "thinking"), [(ANSWER, 1, ""), (ANSWER, 3, "a thought")])
def test_a_note_does_not_split_a_block(text: str, size: int, thinking: str) -> None:
    whole, _ = shown(text, NEVER, size, thinking)
    begins = ("The first paragraph goes on here.", " • an item", "  x = 1", "The end.", "behind it")
    starts = {0, len(whole), *(whole.index(line) for line in begins if line in whole)}
    for at in range(1, len(thinking) + len(text) // size + 1):
        lines, _ = shown(text, at, size, thinking)
        place = lines.index(NOTE)
        assert [*lines[:place], *lines[place + 1 :]] == whole
        assert place in starts, lines


@pytest.mark.thorough
@pytest.mark.parametrize("size", [1, 7])
def test_a_note_does_not_split_a_block_printed_in_parts(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(markdown, "MAX_BLOCK_LINES", LONG_LINES)
    test_a_note_does_not_split_a_block(LONG_FENCE, size, "")


def test_a_note_waits_only_for_the_end_of_the_block() -> None:
    _, noted = shown(ANSWER, 5)
    assert noted == 5
