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

from yarrow.client.tui.editor.completion import Choice
from yarrow.client.tui.look import Look
from yarrow.client.tui.questions import Questions
from yarrow.client.tui.screen import Terminal
from yarrow.client.tui.views import ask as ask_view
from yarrow.client.tui.views.ask import NO, Answered, Question
from yarrow.client.tui.views.first_start import FirstStart
from yarrow.client.tui.views.listing import TOO_SMALL
from yarrow.client.tui.views.picker import pick
from yarrow.client.tui.views.reading import read_through
from yarrow.client.tui.views.rebase import choose_messages, groups
from yarrow.client.tui.views.tree import choose_session
from yarrow.v1 import agent_pb2 as pb

T = TypeVar("T")
ENTER, ESCAPE, UP, DOWN = "\r", "\x1b", "\x1b[A", "\x1b[B"


async def shown(
    view: Callable[[Terminal], Awaitable[T]],
    keys: str,
    size: tuple[int, int] = (60, 12),
    *,
    until: str = "",
    before_last: Callable[[], None] = lambda: None,
) -> tuple[T, list[str]]:
    """What comes of a view when keys are pressed, and the screen as it was before the last one.

    That is when the keys before it were read, and the screen shows what is waited for.
    """
    columns, rows = size
    screen = pyte.Screen(columns, rows)
    stream: Any = pyte.Stream(screen)
    out = io.StringIO()
    output = Vt100_Output(out, lambda: Size(rows=rows, columns=columns), term="xterm", enable_cpr=False)
    *before, last = keys if len(keys) > 1 and keys[0] != "\x1b" else [keys]
    async with asyncio.timeout(10):
        with create_pipe_input() as pipe:
            doing = asyncio.ensure_future(view(Terminal(pipe, output, Look())))
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
    """Whether a key was not read yet."""
    return fcntl.ioctl(pipe.fileno(), termios.FIONREAD, bytes(4)) != bytes(4)


def node(name: str, session_id: str, indent: int = 0) -> pb.SessionTreeNode:
    summary = pb.SessionSummary(session_id=session_id, name=name, cwd="/p")
    return pb.SessionTreeNode(session=summary, indent=indent, gutters=[False] * indent, last=True)


NODES = [node("first", "a" * 36), node("second \x1b[31m", "b" * 36, 1), node("third", "c" * 36, 1)]


@pytest.mark.parametrize(
    ("keys", "action", "session"),
    [("\r", "resume", "b"), ("b", "branch", "b"), ("F", "fork", "b"), ("r", "rebase", "b")],
)
async def test_the_tree_gives_what_a_key_does_with_the_chosen_session(keys: str, action: str, session: str) -> None:
    choice, picture = await shown(lambda terminal: choose_session(terminal, NODES, "b" * 36), keys)
    assert choice is not None
    assert (choice.action, choice.session_id[0]) == (action, session)
    assert any("third" in line for line in picture)
    assert not any("\x1b" in line for line in picture)
    assert "Enter resume" in picture[-1]


async def test_the_tree_is_narrowed_by_typing() -> None:
    choice, picture = await shown(lambda terminal: choose_session(terminal, NODES, "a" * 36), "/thi\r", until="1 of 3")
    assert choice is not None
    assert choice.session_id == "c" * 36
    assert "1 of 3" in picture[0]


@pytest.mark.parametrize("size", [(10, 3), (15, 20), (40, 3)])
async def test_a_window_that_is_too_small_says_so(size: tuple[int, int]) -> None:
    choice, picture = await shown(lambda terminal: choose_session(terminal, NODES, ""), ESCAPE, size)
    assert choice is None
    said = "".join(picture).replace(" ", "")
    assert said == TOO_SMALL[: size[0] * size[1]].replace(" ", "")


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (20, 5)])
async def test_a_list_is_drawn_whole_at_each_size(size: tuple[int, int]) -> None:
    choices = [Choice(f"model-{number}", "한글 " * 20) for number in range(100)]
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
    assert groups(MESSAGES) == [{0}, {1, 2}, {1, 2}, {3}]


@pytest.mark.parametrize(
    ("keys", "indices", "squash"),
    [("\r", (0, 1, 2, 3), False), (" \r", (0, 1, 2), False), (" s", (0, 1, 2), True), ("aa\r", (0, 1, 2, 3), False)],
)
async def test_messages_are_chosen_with_what_belongs_to_them(keys: str, indices: tuple[int, ...], squash: bool) -> None:
    chosen, picture = await shown(lambda terminal: choose_messages(terminal, MESSAGES), keys)
    assert chosen is not None
    assert (chosen.indices, chosen.squash) == (indices, squash)
    assert "[" in picture[1]


async def test_a_letter_is_pressed_small_or_large() -> None:
    chosen, _ = await shown(lambda terminal: choose_messages(terminal, MESSAGES), "AAS")
    assert chosen is not None
    assert (len(chosen.indices), chosen.squash) == (len(MESSAGES), True)
    await shown(lambda terminal: read_through(terminal, "bash", "text"), "Q")
    answered, _ = await shown(question(later()), "Y")
    assert answered.answer == pb.PERMISSION_ANSWER_ONCE


async def test_nothing_chosen_makes_nothing() -> None:
    chosen, _ = await shown(lambda terminal: choose_messages(terminal, MESSAGES), "a\r\x1b")
    assert chosen is None


async def test_a_text_is_read_through() -> None:
    text = "\n".join(f"line {number} \x1b[2J" for number in range(100))
    _, picture = await shown(lambda terminal: read_through(terminal, "bash", text), "q", (20, 6))
    assert picture[1].startswith("line 0")


REQUEST = pb.PermissionRequest(
    request_id="q1", tool="bash", arguments_json='{"command": "rm -rf \\u202e/ # x"}', reason="no sandbox"
)


def question(now: Callable[[], float]) -> Callable[[Terminal], Awaitable[Answered]]:
    return lambda terminal: Question(REQUEST, now=now).run(terminal)


def later() -> Callable[[], float]:
    """A clock on which more time passes at each look than the guard waits."""
    times = iter(range(1_000_000))
    return lambda: float(next(times))


@pytest.mark.parametrize(
    ("keys", "answer", "text"),
    [
        ("y", pb.PERMISSION_ANSWER_ONCE, ""),
        ("s", pb.PERMISSION_ANSWER_SESSION, ""),
        ("a", pb.PERMISSION_ANSWER_ALWAYS, ""),
        ("n", pb.PERMISSION_ANSWER_NO, ""),
        ("\x1b", pb.PERMISSION_ANSWER_NO, ""),
        ("\r\rn", pb.PERMISSION_ANSWER_NO, ""),
        ("tuse rx\x7fm\r", pb.PERMISSION_ANSWER_NO, "use rm"),
    ],
)
async def test_a_question_is_answered_by_its_key(keys: str, answer: int, text: str) -> None:
    answered, picture = await shown(question(later()), keys)
    assert (answered.answer, answered.text) == (answer, text)
    assert any("<U+202E>" in line for line in picture), "what hides in a command is shown"
    assert any("bash asks for permission" in line for line in picture)


async def test_keys_that_were_meant_for_something_else_answer_nothing() -> None:
    clock = [0.0]

    async def view(terminal: Terminal) -> Answered:
        return await Question(REQUEST, now=lambda: clock[0]).run(terminal)

    answered, _ = await shown(view, "yyy\r\x1b", before_last=lambda: clock.__setitem__(0, 9.0))
    assert answered == NO


async def test_a_question_that_cannot_be_read_is_not_allowed() -> None:
    answered, picture = await shown(question(later()), "ysatn", (19, 5))
    assert answered == NO
    assert "Too small" in "".join(picture)


async def test_nothing_is_done_to_a_row_that_is_not_seen() -> None:
    choice, picture = await shown(lambda terminal: choose_session(terminal, NODES, "b" * 36), "bfr\r\x1b", (19, 5))
    assert choice is None
    assert "Too small" in "".join(picture)


@pytest.mark.parametrize(("size", "foot"), [((80, 24), "Enter sends it, Esc goes back"), ((20, 5), "Enter sends, Esc")])
async def test_a_text_that_is_said_with_a_no_is_seen_while_it_is_typed(size: tuple[int, int], foot: str) -> None:
    answered, picture = await shown(question(later()), f"t{'word ' * 20}the end\r", size, until="end_")
    assert answered.text.endswith("word the end")
    assert picture[-1] == foot
    assert "end_" in picture[-2]


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (20, 5)])
async def test_a_question_shows_the_whole_command_by_scrolling(size: tuple[int, int]) -> None:
    long = pb.PermissionRequest(tool="bash", arguments_json='{"command": "' + "echo more && " * 200 + '"}')
    answered, picture = await shown(lambda terminal: Question(long, now=later()).run(terminal), ESCAPE, size)
    assert answered == NO
    assert any("more rows below" in line for line in picture) or size[0] > 100
    assert ask_view.CHOICES[:10] in "".join(picture) or ask_view.SHORT_CHOICES in picture


@pytest.mark.parametrize(
    ("keys", "provider", "needs_starter"),
    [("\r", "ollama", False), ("/starter\r", "local", True), ("/gem\r", "gemini", False)],
)
async def test_a_first_start_gives_a_backend(keys: str, provider: str, needs_starter: bool) -> None:
    backend, _ = await shown(lambda terminal: FirstStart(terminal, size="98 MB", about={}).choose(), keys, (80, 24))
    assert backend is not None
    assert (backend.provider, backend.needs_starter) == (provider, needs_starter)


async def test_a_first_start_that_is_left_gives_none() -> None:
    backend, picture = await shown(
        lambda terminal: FirstStart(terminal, size="98 MB", about={}).choose(), ESCAPE, (80, 24)
    )
    assert backend is None
    assert "98 MB" in "".join(picture)


def asked(request_id: str) -> pb.AgentEvent:
    return pb.AgentEvent(permission_request=pb.PermissionRequest(request_id=request_id))


def settled(request_id: str) -> pb.AgentEvent:
    return pb.AgentEvent(permission_settled=pb.PermissionSettled(request_id=request_id))


async def test_questions_are_asked_one_after_the_other_and_taken_back_when_settled() -> None:
    seen: list[str] = []
    answers: asyncio.Queue[Answered] = asyncio.Queue()
    given: asyncio.Queue[str] = asyncio.Queue()

    async def show(request: pb.PermissionRequest) -> Answered:
        seen.append(request.request_id)
        return await answers.get()

    async def answer(request_id: str, _answered: Answered) -> None:
        await given.put(request_id)

    questions = Questions(show, answer, seen.append)
    running = asyncio.ensure_future(questions.run())
    questions.see([asked("one"), asked("two"), asked("three")])
    await answers.put(NO)
    assert await given.get() == "one"
    while seen != ["one", "two"]:
        await asyncio.sleep(0)
    questions.see([settled("two")])
    while seen != ["one", "two", "three"]:
        await asyncio.sleep(0)
    questions.begin([pb.PermissionRequest(request_id="other")])
    while seen[-1] != "other":
        await asyncio.sleep(0)
    await answers.put(NO)
    assert await given.get() == "other"
    running.cancel()
    await asyncio.wait([running])
