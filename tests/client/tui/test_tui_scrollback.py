"""Finished output is printed exactly once for any stream and chunks; nothing exceeds the width."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from yarrow.client.tui.conversation_items import (
    CallItem,
    HistoryEntry,
    SessionHistory,
    TextItem,
    close_entry,
    make_history,
    reduce_history,
)
from yarrow.client.tui.scrollback import PrintedState, next_frame, skip_to_last
from yarrow.client.tui.terminal_theme import HistoryView, TerminalTheme, detect_theme
from yarrow.v1 import agent_pb2 as pb

PLAIN = TerminalTheme()
COLOURED = TerminalTheme("true")
SGR = re.compile(r"\x1b\[[0-9;]*m")


def view(columns: int = 40, rows: int = 10, look: TerminalTheme = PLAIN, *, folded: bool = True) -> HistoryView:
    return HistoryView(columns, look, rows, folds_output=folded, folds_thinking=folded)


def run(*texts: str, thinking: str = "", calls: Sequence[pb.ToolCall] = ()) -> list[pb.AgentEvent]:
    """The events of a run with one message, its text in these pieces."""
    events = [
        pb.AgentEvent(agent_start=pb.AgentStart(text="do it", message_id="u1")),
        pb.AgentEvent(turn_start=pb.TurnStart(turn=1)),
        pb.AgentEvent(message_start=pb.MessageStart(message_id="a1")),
    ]
    if thinking:
        events.append(pb.AgentEvent(thinking_delta=pb.ThinkingDelta(text=thinking)))
    events += [pb.AgentEvent(text_delta=pb.TextDelta(text=text)) for text in texts]
    events += [pb.AgentEvent(tool_call=call) for call in calls]
    events.append(pb.AgentEvent(message_end=pb.MessageEnd(message_id="a1")))
    for call in calls:
        events.append(pb.AgentEvent(tool_delta=pb.ToolDelta(tool_call_id=call.id, text="working\n")))
        events.append(pb.AgentEvent(tool_output=pb.ToolOutput(tool_call_id=call.id, name=call.name, text="result")))
    return [
        *events,
        pb.AgentEvent(turn_end=pb.TurnEnd(turn=1)),
        pb.AgentEvent(agent_end=pb.AgentEnd(reason=pb.END_REASON_COMPLETED)),
    ]


def watch(events: Sequence[pb.AgentEvent], looked: HistoryView) -> tuple[str, list[tuple[str, ...]]]:
    """Show events one by one; return what was printed and each live part."""
    history, shown, printed, lives = SessionHistory(), PrintedState(), "", []
    for event in events:
        history = reduce_history(history, [event])
        frame = next_frame(shown, history, looked)
        shown = frame.printed
        printed += frame.scrollback
        lives.append(frame.live)
    return printed, lives


BLOCKS = st.sampled_from(
    [
        "# W",
        "W W *W* W",
        "- W\n- W W\n  - W",
        "1. W\n2. W\n\n3. W",
        "```py\nW = W\n\nW\n```",
        "    W\n    W",
        "> W\n> W",
        "| W | W |\n|---|---|\n| W | W |",
        "---",
        "W\nW\nW",
        "~~~\n```\nW\n~~~",
        "- W\n\n  ```sh\n  W\n  ```",
    ]
)


@st.composite
def answers(draw: st.DrawFn) -> list[str]:
    """Markdown whose words are all different, in pieces."""
    text = "\n\n".join(draw(st.lists(BLOCKS, min_size=1, max_size=12)))
    count = iter(range(10_000))
    text = re.sub("W", lambda _: f"w{next(count):03}", text)
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=20)))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def words(text: str) -> list[str]:
    return re.findall(r"w\d{3}", SGR.sub("", text))


@pytest.mark.thorough
@settings(max_examples=150, deadline=None)
@given(answers(), st.integers(20, 100), st.integers(0, 20))
def test_each_word_is_printed_once_in_order(pieces: list[str], columns: int, rows: int) -> None:
    printed, lives = watch(run(*pieces), view(columns, rows, COLOURED))
    assert words(printed) == words("".join(pieces))
    assert all(len(live) <= rows for live in lives)
    assert lives[-1] == ()
    for line in [*printed.split("\n"), *(line for live in lives for line in live)]:
        assert cell_len(SGR.sub("", line)) <= columns
        assert "\x1b" not in SGR.sub("", line)


@settings(max_examples=60, deadline=None)
@given(answers())
def test_the_final_output_does_not_depend_on_the_deltas(pieces: list[str]) -> None:
    assert watch(run(*pieces), view())[0].split() == watch(run("".join(pieces)), view())[0].split()


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=400), st.integers(1, 60))
def test_any_text_fits_the_width_and_is_sanitized(text: str, columns: int) -> None:
    calls = [pb.ToolCall(id="c1", name=text[:20], arguments_json=text)]
    printed, lives = watch(run(text, thinking=text, calls=calls), view(columns, 5, COLOURED))
    for line in [*printed.split("\n"), *(line for live in lives for line in live)]:
        plain = SGR.sub("", line)
        assert cell_len(plain) <= max(columns, 5)
        assert not re.search("[\x00-\x1f\x7f-\x9f]", plain)


def test_a_table_that_is_too_wide_loses_no_letter() -> None:
    path = "".join(f"/part{number}" for number in range(30))
    printed, _ = watch(run(f"| a | b |\n|--|--|\n| 1 | {path} |\n"), view())
    assert path in re.sub(r"\s", "", printed)
    assert "\u2026" not in printed


@pytest.mark.thorough
def test_a_long_block_is_printed_while_it_streams() -> None:
    code = "".join(f"line {number:04}\n" for number in range(1_000))
    history, shown, printed = SessionHistory(), PrintedState(), ""
    for event in run("```\n", *code.splitlines(keepends=True))[:-3]:
        history = reduce_history(history, [event])
        frame = next_frame(shown, history, view())
        shown, printed = frame.printed, printed + frame.scrollback
        assert len(frame.live) <= 10
    assert "line 0900" in printed
    assert printed.count("line 0500") == 1
    assert "```" not in printed


def test_a_call_is_live_until_its_result_and_then_printed() -> None:
    events = run("ok", calls=[pb.ToolCall(id="c1", name="bash", arguments_json='{"command": "ls"}')])
    printed, lives = watch(events, view())
    assert printed == "> do it\n\nok\n\n+ bash: ls\n  | result\n".replace("> ", "\u276f ").replace("+ ", "● ").replace(
        "|", "│"
    )
    assert ("", "◐ bash: ls", "  │ working") in lives


def test_the_recorded_messages_make_the_same_history() -> None:
    call = pb.ToolCall(id="c1", name="bash", arguments_json="{}")
    told = reduce_history(SessionHistory(), run("hello", thinking="hm", calls=[call]))
    recorded = make_history(
        [
            pb.Message(id="u1", role=pb.ROLE_USER, content=[pb.ContentBlock(text=pb.TextBlock(text="do it"))]),
            pb.Message(
                id="a1",
                role=pb.ROLE_ASSISTANT,
                content=[
                    pb.ContentBlock(thinking=pb.ThinkingBlock(text="hm")),
                    pb.ContentBlock(text=pb.TextBlock(text="hello")),
                    pb.ContentBlock(tool_call=pb.ToolCallBlock(id="c1", name="bash", arguments_json="{}")),
                ],
            ),
            pb.Message(
                id="t1",
                role=pb.ROLE_TOOL,
                tool_call_id="c1",
                tool_name="bash",
                content=[pb.ContentBlock(text=pb.TextBlock(text="result"))],
            ),
        ]
    )
    assert told == recorded


def test_output_is_collapsed_with_a_hint_to_the_rest() -> None:
    output = "\n".join(f"line {number}" for number in range(30))
    history = SessionHistory(
        (HistoryEntry("a", "assistant", (CallItem("call_123456", "bash", "{}", state="done", output=output),)),)
    )
    folded = next_frame(PrintedState(), history, view()).scrollback
    assert "line 9" in folded
    assert "line 10" not in folded
    assert "20 more lines (/show 123456)" in folded
    assert "line 29" in next_frame(PrintedState(), history, view(folded=False)).scrollback


def test_a_command_cannot_print_that_it_did_not_run() -> None:
    events = [pb.AgentEvent(tool_call=pb.ToolCall(id="c1", name="bash", arguments_json='{"command": "x"}'))]
    text = "Not run: the user denied it.\n[exit code 1]"
    events += [pb.AgentEvent(tool_output=pb.ToolOutput(tool_call_id="c1", name="bash", text=text, is_error=True))]
    shown = next_frame(PrintedState(), close_entry(reduce_history(SessionHistory(), events)), view()).scrollback
    assert "bash: x failed" in shown
    assert "exit code 1" in shown


def test_a_diff_shows_line_numbers() -> None:
    diff = "--- a/x.py\n+++ b/x.py\n@@ -3,2 +3,2 @@\n same\n-old\n+new\n"
    asked = '{"path": "x.py", "edits": [{"old": "old", "new": "new"}]}'
    call = CallItem("c1", "edit", asked, state="done", output="done", diff=diff)
    lines = next_frame(
        PrintedState(), SessionHistory((HistoryEntry("a", "assistant", (call,)),)), view()
    ).scrollback.splitlines()
    assert lines[0].endswith("edit: x.py")
    assert lines[1:] == ["   3   same", "   4 - old", "   4 + new"]


def test_an_opened_session_shows_its_last_entries() -> None:
    history = SessionHistory(
        tuple(HistoryEntry(str(number), "user", (TextItem(f"text {number}"),)) for number in range(100))
    )
    printed = next_frame(skip_to_last(history, 3), history, view()).scrollback
    assert re.findall(r"text \d+", printed) == ["text 97", "text 98", "text 99"]


@pytest.mark.parametrize(
    ("environment", "background", "look"),
    [
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, None, TerminalTheme("true")),
        ({"TERM": "xterm-256color"}, (255, 255, 255), TerminalTheme("256", is_dark=False)),
        ({"TERM": "linux"}, None, TerminalTheme("16")),
        ({"TERM": "dumb", "COLORTERM": "truecolor"}, None, TerminalTheme("none")),
        ({"TERM": "xterm", "NO_COLOR": "1"}, (0, 0, 0), TerminalTheme("none")),
        ({"TERM": "screen", "COLORFGBG": "0;15"}, None, TerminalTheme("16", is_dark=False)),
        ({"TERM": "screen", "COLORFGBG": "15;0"}, None, TerminalTheme("16")),
    ],
)
def test_capabilities_of_a_terminal(
    environment: dict[str, str], background: tuple[int, int, int] | None, look: TerminalTheme
) -> None:
    assert detect_theme(environment, background, "UTF-8") == look


def test_a_terminal_without_unicode_gets_ascii() -> None:
    printed, lives = watch(
        run(
            "- one\n\n---\n",
            thinking="x",
            calls=[pb.ToolCall(id="c1", name="bash", arguments_json='{"command": "ls"}')],
        ),
        view(look=detect_theme({"TERM": "linux"}, None, "ascii")),
    )
    assert printed.isascii() or "•" in printed
    assert all(line.isascii() or "•" in line for live in lives for line in live)


def test_numbered_lists_have_dots() -> None:
    text = "\n".join(f"{number}. W" for number in range(1, 11)) + "\n\n5) V"
    printed, _ = watch(run(text), view())
    assert " 1. W\n 2. W\n" in printed
    assert "10. W\n" in printed
    assert "5. V" in printed
