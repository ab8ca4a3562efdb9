"""Views that take the whole screen: keys in, a choice out, drawn whole at every size or refused in a sentence."""

import asyncio
import fcntl
import io
import termios
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pyte
import pytest
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output.vt100 import Vt100_Output

from yarrow.client.tui.editor.completion import CompletionItem
from yarrow.client.tui.live_screen import Terminal
from yarrow.client.tui.terminal_theme import TerminalTheme
from yarrow.client.tui.views.backend_picker import BackendChoice, BackendPicker, HostedBackend
from yarrow.client.tui.views.list_view import TOO_SMALL, choose_from_tree, pick, show_text
from yarrow.client.tui.views.message_picker import choose_messages, group_messages
from yarrow.v1 import agent_pb2 as pb

T = TypeVar("T")
ENTER, ESCAPE, UP, DOWN = "\r", "\x1b", "\x1b[A", "\x1b[B"
HOSTED = [HostedBackend("Gemini", "gemini", "GEMINI_API_KEY")]


async def shown(
    view: Callable[[Terminal], Awaitable[T]],
    keys: str,
    size: tuple[int, int] = (60, 12),
    *,
    until: str = "",
    before_last: Callable[[], None] = lambda: None,
) -> tuple[T, list[str]]:
    """The result of a view after some keys, and the screen before the last one.

    The screen is taken once the earlier keys were read and it shows the expected text.
    """
    columns, rows = size
    screen = pyte.Screen(columns, rows)
    stream: Any = pyte.Stream(screen)
    out = io.StringIO()
    output = Vt100_Output(out, lambda: Size(rows=rows, columns=columns), term="xterm", enable_cpr=False)
    *before, last = keys if len(keys) > 1 and keys[0] != "\x1b" else [keys]
    async with asyncio.timeout(10):
        with create_pipe_input() as pipe:
            doing = asyncio.ensure_future(view(Terminal(pipe, output, TerminalTheme())))
            pipe.send_text("".join(before))
            picture = ""
            while is_waiting(pipe) or not picture.strip() or until not in picture:
                await asyncio.sleep(0.001)
                stream.feed(out.getvalue())
                out.seek(0)
                out.truncate()
                picture = "\n".join(screen.display)
            before_last()
            pipe.send_text(last)
            result = await doing
    assert out.getvalue().count("\x1b[?1049l") == 1, "the alternate screen was not left"
    return result, [line.rstrip() for line in picture.split("\n")]


def is_waiting(pipe: PipeInput) -> bool:
    """True if a key has not been read yet."""
    return fcntl.ioctl(pipe.fileno(), termios.FIONREAD, bytes(4)) != bytes(4)


def node(name: str, session_id: str, indent: int = 0) -> pb.SessionTreeNode:
    summary = pb.SessionSummary(session_id=session_id, name=name, cwd="/p")
    return pb.SessionTreeNode(session=summary, indent=indent, gutters=[False] * indent, last=True)


NODES = [node("first", "a" * 36), node("second \x1b[31m", "b" * 36, 1), node("third", "c" * 36, 1)]


@pytest.mark.parametrize(
    ("keys", "action", "session"),
    [("\r", "resume", "b"), ("b", "branch", "b"), ("F", "fork", "b"), ("r", "rebase", "b")],
)
async def test_a_key_in_the_tree_acts_on_the_selected_session(keys: str, action: str, session: str) -> None:
    choice, picture = await shown(lambda terminal: choose_from_tree(terminal, NODES, "b" * 36), keys)
    assert choice is not None
    assert (choice.action, choice.session_id[0]) == (action, session)
    assert any("third" in line for line in picture)
    assert not any("\x1b" in line for line in picture)
    assert "Enter resume" in picture[-1]


async def test_typing_filters_the_tree() -> None:
    choice, picture = await shown(
        lambda terminal: choose_from_tree(terminal, NODES, "a" * 36), "/thi\r", until="1 of 3"
    )
    assert choice is not None
    assert choice.session_id == "c" * 36
    assert "1 of 3" in picture[0]


@pytest.mark.parametrize("size", [(10, 3), (15, 20), (40, 3)])
async def test_a_too_small_window_shows_a_message(size: tuple[int, int]) -> None:
    choice, picture = await shown(lambda terminal: choose_from_tree(terminal, NODES, ""), ESCAPE, size)
    assert choice is None
    said = "".join(picture).replace(" ", "")
    assert said == TOO_SMALL[: size[0] * size[1]].replace(" ", "")


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (20, 5)])
async def test_a_list_is_drawn_completely_at_each_size(size: tuple[int, int]) -> None:
    choices = [CompletionItem(f"model-{number}", "한글 " * 20) for number in range(100)]
    picked, picture = await shown(lambda terminal: pick(terminal, ("Models",), choices, present="model-50"), "\r", size)
    assert picked == "model-50"
    assert picture[0].startswith("Models")
    assert any("model-50" in line for line in picture)
    assert len(picture) == size[1]


MESSAGES = [
    pb.Message(role=pb.ROLE_USER, content=[pb.ContentBlock(text=pb.TextBlock(text="look"))]),
    pb.Message(role=pb.ROLE_ASSISTANT, content=[pb.ContentBlock(tool_call=pb.ToolCallBlock(id="c", name="ls"))]),
    pb.Message(role=pb.ROLE_TOOL, tool_call_id="c", tool_name="ls"),
    pb.Message(role=pb.ROLE_ASSISTANT, content=[pb.ContentBlock(text=pb.TextBlock(text="done"))]),
]


def test_a_call_and_its_results_are_one_group() -> None:
    assert group_messages(MESSAGES) == [{0}, {1, 2}, {1, 2}, {3}]


@pytest.mark.parametrize(
    ("keys", "indices", "squash"),
    [("\r", (0, 1, 2, 3), False), (" \r", (0, 1, 2), False), (" s", (0, 1, 2), True), ("aa\r", (0, 1, 2, 3), False)],
)
async def test_messages_are_selected_with_their_group(keys: str, indices: tuple[int, ...], squash: bool) -> None:
    chosen, picture = await shown(lambda terminal: choose_messages(terminal, MESSAGES), keys)
    assert chosen is not None
    assert (chosen.indices, chosen.squash) == (indices, squash)
    assert "[" in picture[1]


async def test_keys_are_case_insensitive() -> None:
    chosen, _ = await shown(lambda terminal: choose_messages(terminal, MESSAGES), "AAS")
    assert chosen is not None
    assert (len(chosen.indices), chosen.squash) == (len(MESSAGES), True)
    await shown(lambda terminal: show_text(terminal, "bash", "text"), "Q")


async def test_an_empty_selection_creates_nothing() -> None:
    chosen, _ = await shown(lambda terminal: choose_messages(terminal, MESSAGES), "a\r\x1b")
    assert chosen is None


async def test_a_long_text_can_be_paged() -> None:
    text = "\n".join(f"line {number} \x1b[2J" for number in range(100))
    _, picture = await shown(lambda terminal: show_text(terminal, "bash", text), "q", (20, 6))
    assert picture[1].startswith("line 0")


async def test_keys_do_not_act_on_a_hidden_row() -> None:
    choice, picture = await shown(lambda terminal: choose_from_tree(terminal, NODES, "b" * 36), "bfr\r\x1b", (19, 5))
    assert choice is None
    assert "The window is too small" in "".join(picture)


@pytest.mark.parametrize(
    ("keys", "provider", "needs_starter"),
    [("\r", "ollama", False), ("/starter\r", "local", True), ("/gem\r", "gemini", False)],
)
async def test_the_first_start_returns_a_backend(keys: str, provider: str, needs_starter: bool) -> None:
    backend, _ = await shown(
        lambda terminal: BackendPicker(terminal, size="98 MB", hosted=HOSTED, questions={}).choose(), keys, (80, 24)
    )
    assert backend is not None
    assert (backend.provider, backend.needs_starter) == (provider, needs_starter)


async def test_the_first_start_selects_the_choice_that_failed() -> None:
    async def choose_twice(terminal: Terminal) -> list[BackendChoice | None]:
        picker = BackendPicker(terminal, size="98 MB", hosted=HOSTED, questions={})
        return [await picker.choose(), await picker.choose("it failed")]

    chosen, _ = await shown(choose_twice, "/gem\r\r", (80, 24))
    assert [one and one.provider for one in chosen] == ["gemini", "gemini"]


async def test_leaving_the_first_start_returns_no_backend() -> None:
    backend, picture = await shown(
        lambda terminal: BackendPicker(terminal, size="98 MB", hosted=HOSTED, questions={}).choose(), ESCAPE, (80, 24)
    )
    assert backend is None
    assert "98 MB" in "".join(picture)
