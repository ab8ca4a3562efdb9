"""The permission question: it takes the keys after a pause alone, and shows all that it asks about."""

import asyncio
import io
import itertools
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from google.rpc import error_details_pb2, status_pb2
from grpc import StatusCode, aio
from hypothesis import example, given
from hypothesis import strategies as st
from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Size
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.layout import HSplit, Layout
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.widgets import TextArea
from pyte import Screen, Stream
from rich.cells import cell_len

from yarrow.client.permission_texts import DENIAL, PermissionReply
from yarrow.client.tui.permission_queue import PermissionQueue
from yarrow.client.tui.status import SessionStatus, format_line, reduce_status
from yarrow.client.tui.terminal_theme import TerminalTheme
from yarrow.client.tui.views.permission_layout import TOO_SMALL, fold_keeping_blanks
from yarrow.client.tui.views.permission_question import (
    QUIET_SECONDS,
    FocusGuard,
    PermissionQuestion,
    QuestionHost,
    QueuedRequest,
)
from yarrow.v1 import agent_pb2 as pb

ENTER, ESCAPE, UP, DOWN, TAB, PASTE = "\r", "\x1b", "\x1b[A", "\x1b[B", "\t", "\x1b[200~{}\x1b[201~"
REQUEST = pb.PermissionRequest(
    request_id="q1", tool="bash", arguments_json='{"command": "rm -rf \\u202e/ # x"}', reason="the rule says so"
)
ONCE, SESSION, ALWAYS = (
    PermissionReply(answer)
    for answer in (pb.PERMISSION_ANSWER_ONCE, pb.PERMISSION_ANSWER_SESSION, pb.PERMISSION_ANSWER_ALWAYS)
)


class Bench:
    """A question above an editor, with a clock that the test advances."""

    def __init__(self, pipe: PipeInput, size: tuple[int, int]) -> None:
        columns, rows = size
        self.now = 0.0
        self.answers: list[PermissionReply] = []
        self.editor = TextArea()
        self.submitted: list[str] = []
        self._pipe = pipe
        self._out = io.StringIO()
        self._screen = Screen(columns, rows)
        self._stream: Any = Stream(self._screen)
        host = QuestionHost(
            answer=self.answers.append,
            focus_question=lambda: self.app.layout.focus(self.question.container),
            focus_editor=lambda: self.app.layout.focus(self.editor),
            has_focus=lambda: self.app.layout.has_focus(self.question.container),
            screen_rows=lambda: rows,
            theme=TerminalTheme,
            cwd=lambda: "/p",
        )
        self.question = PermissionQuestion(host, FocusGuard(lambda: self.now))
        outside = self.question.make_outside_bindings(is_empty=lambda: not self.editor.text, has_menu=lambda: False)
        self.app: Application[None] = Application(
            Layout(HSplit([self.question.container, self.editor]), focused_element=self.editor),
            key_bindings=outside,
            input=pipe,
            output=Vt100_Output(self._out, lambda: Size(rows=rows, columns=columns), term="xterm", enable_cpr=False),
            full_screen=True,
        )
        self.app.ttimeoutlen = self.app.timeoutlen = 0.001
        self.app.key_processor.before_key_press += self._key_comes
        self._keys = 0

    def _key_comes(self, _: object) -> None:
        self._keys += 1
        self.question.on_key()

    async def press(self, *keys: str, pause: float = 0.1) -> None:
        """Press keys, each some seconds of the clock after the one before it."""
        for key in keys:
            self.now += pause
            before = self._keys
            self._pipe.send_text(key)
            async with asyncio.timeout(10):
                while self._keys == before or self.app.key_processor.input_queue:
                    await asyncio.sleep(0.001)
            if key == ESCAPE:
                self.question.go_back()
            await self.drawn()

    async def drawn(self) -> list[str]:
        """The rows of the screen, redrawn."""
        before = self.app.render_counter
        self.app.invalidate()
        async with asyncio.timeout(10):
            while self.app.render_counter == before:
                await asyncio.sleep(0.001)
        self._stream.feed(self._out.getvalue())
        self._out.seek(0)
        self._out.truncate()
        return [row.rstrip() for row in self._screen.display]

    async def ask(self, request: pb.PermissionRequest = REQUEST) -> None:
        """Show a request."""
        self.question.show(QueuedRequest(request))
        await self.drawn()

    async def enter(self) -> None:
        """Move the keys to the question."""
        await self.press(TAB, pause=QUIET_SECONDS)
        assert self.has_focus

    @property
    def has_focus(self) -> bool:
        """True if the question has the focus."""
        return self.app.layout.has_focus(self.question.container)


@asynccontextmanager
async def bench(size: tuple[int, int] = (60, 20)) -> AsyncGenerator[Bench]:
    with create_pipe_input() as pipe:
        made = Bench(pipe, size)
        running = asyncio.ensure_future(made.app.run_async())
        await made.drawn()
        try:
            yield made
        finally:
            made.app.exit()
            await running


@pytest.mark.parametrize(
    ("keys", "answers"),
    [
        ([ENTER], [DENIAL]),
        ([UP, UP, UP, ENTER], [ONCE]),
        (["1", ENTER], [ONCE]),
        (["2", ENTER], [SESSION]),
        (["3", ENTER], []),
        (["3", ENTER, ENTER, ENTER], [DENIAL]),
        (["3", ENTER, UP, ENTER], [ALWAYS]),
        (["3", ENTER, "1", ENTER], [ALWAYS]),
        (["3", ENTER, ESCAPE, ENTER], [DENIAL]),
        (["4", ENTER], [DENIAL]),
        ([DOWN, ENTER, *"use rx", "\x7f", "m", ENTER], [PermissionReply(pb.PERMISSION_ANSWER_NO, "use rm")]),
        (["5", ENTER, *"12", PASTE.format("3\r4"), ENTER], [PermissionReply(pb.PERMISSION_ANSWER_NO, "123 4")]),
        (["5", ENTER, ENTER], [DENIAL]),
        (["5", ENTER, "a", ESCAPE, "1", ENTER], [ONCE]),
    ],
)
async def test_a_question_is_answered_by_choosing_and_enter(keys: list[str], answers: list[PermissionReply]) -> None:
    async with bench() as at:
        await at.ask()
        await at.enter()
        await at.press(*keys)
        assert at.answers == answers
        assert at.editor.text == ""


async def test_always_shows_the_rule_and_its_file_before_it_is_confirmed() -> None:
    request = pb.PermissionRequest()
    request.CopyFrom(REQUEST)
    request.rule_json, request.rule_file = '{"tool":"bash","subject":"rm"}', "/etc/config.json"
    async with bench((90, 20)) as at:
        await at.ask(request)
        await at.enter()
        await at.press("3", ENTER)
        rows = "\n".join(await at.drawn())
        assert "permissions.always in /etc/config.json:" in rows
        assert '{"tool":"bash","subject":"rm"}' in rows
        assert "the rule says so" not in rows
        assert at.answers == []


@pytest.mark.parametrize("key", [*"yYsSaAnN0679 .t", "\x1b[D", "\x1b[3~", "\x04", "\n", "\x1b\r", "\x7f", "é", "中"])
async def test_no_other_key_answers_and_every_character_is_typed_in_the_editor(key: str) -> None:
    async with bench() as at:
        await at.ask()
        await at.enter()
        await at.press("1", key)
        assert at.answers == []
        assert at.has_focus is not key.isprintable()
        assert at.editor.text == (key if key.isprintable() else "")
        if key.isprintable():
            await at.press(ENTER)
            assert at.answers == []


async def test_a_paste_goes_to_the_editor() -> None:
    async with bench() as at:
        await at.ask()
        await at.enter()
        await at.press(PASTE.format("1\r\rtwo"))
        assert (at.answers, at.has_focus) == ([], False)
        assert at.editor.text.split() == ["1", "two"]


@pytest.mark.parametrize("key", [ESCAPE, TAB, "\x03"])
async def test_the_focus_returns_to_the_editor(key: str) -> None:
    async with bench() as at:
        await at.ask()
        await at.enter()
        await at.press(key)
        assert (at.answers, at.has_focus) == ([], False)


@pytest.mark.parametrize("key", [TAB, DOWN])
@pytest.mark.parametrize(("typed_at", "pressed_at", "enters"), [
    (0.0, 2.0, True), (0.5, 1.5, True), (0.6, 1.5, False), (0.0, 0.9, False), (0.0, 1.0, True), (1.9, 2.0, False),
])  # fmt: skip
async def test_the_question_gets_the_focus_only_after_a_pause(
    typed_at: float, pressed_at: float, key: str, *, enters: bool
) -> None:
    async with bench() as at:
        at.question.guard.note_key()
        await at.ask()
        await at.press(" ", pause=typed_at)
        at.editor.text = ""
        await at.press(key, pause=pressed_at - typed_at)
        assert at.has_focus is enters
        assert any(("stop typing" in row) is not enters for row in await at.drawn() if "Tab" in row or "Enter" in row)
        await at.press(ENTER)
        assert bool(at.answers) is enters


async def test_a_question_that_was_just_drawn_ignores_keys() -> None:
    async with bench() as at:
        at.now = 100
        await at.ask()
        await at.press(TAB, pause=0.5)
        assert not at.has_focus
        await at.press(TAB, pause=1.0)
        assert at.has_focus


async def test_down_moves_within_a_text() -> None:
    async with bench() as at:
        await at.ask()
        at.editor.text = "one\ntwo"
        await at.press(DOWN, pause=5)
        assert not at.has_focus


async def test_the_next_question_returns_the_focus() -> None:
    async with bench() as at:
        await at.ask()
        await at.enter()
        await at.press("1")
        await at.ask(pb.PermissionRequest(request_id="q2", tool="bash", arguments_json='{"command": "ls"}'))
        assert not at.has_focus
        await at.press(TAB)
        assert not at.has_focus
        await at.press(TAB, pause=1)
        await at.press(ENTER)
        assert at.answers == [DENIAL]


async def test_hidden_characters_in_a_command_are_shown() -> None:
    async with bench() as at:
        await at.ask()
        rows = await at.drawn()
        assert any("rm -rf <U+202E>/ # x" in row for row in rows)
        assert any("Run this command outside the sandbox?" in row for row in rows)


async def test_a_question_that_does_not_fit_is_not_answered() -> None:
    async with bench((19, 8)) as at:
        await at.ask()
        await at.press(TAB, "1", ENTER, pause=2)
        assert at.answers == []
        assert TOO_SMALL[:18] in "".join(await at.drawn())


@pytest.mark.parametrize("size", [(120, 40), (80, 24), (40, 12), (20, 5)])
async def test_a_question_shows_the_whole_command_by_scrolling(size: tuple[int, int]) -> None:
    words = [f"echo-{number}" for number in range(200)]
    command = " ".join(words)
    async with bench(size) as at:
        await at.ask(pb.PermissionRequest(request_id="q", tool="bash", arguments_json=f'{{"command": "{command}"}}'))
        seen, before = "", list[str]()
        while (rows := [row.partition("│ ")[2] for row in await at.drawn() if "│ " in row]) != before:
            seen += "".join(row for row in rows if "PgDn" not in row and "…" not in row)
            before = rows
            await at.press("\x1b[6~")
        joined = seen.replace(" ", "")
        assert [word for word in words if word not in joined] == []


@example("\u0301 b中", 2)
@given(st.text(alphabet=st.sampled_from([*"ab  -/", "中", "\u0301", "\u200b"]), max_size=90), st.integers(2, 20))
def test_a_command_is_wrapped_at_blanks_and_keeps_every_character(text: str, width: int) -> None:
    rows = fold_keeping_blanks(text, width)
    assert "".join(rows) == text
    assert all(cell_len(row) <= width for row in rows)
    for row, rest in itertools.pairwise(rows):
        assert row.endswith(" ") or " " not in row[len(row) // 2 :] or cell_len(rest) == 0


def asked(request_id: str) -> pb.AgentEvent:
    return pb.AgentEvent(permission_request=pb.PermissionRequest(request_id=request_id, tool="bash"))


def settled(request_id: str, **fields: Any) -> pb.AgentEvent:
    return pb.AgentEvent(permission_settled=pb.PermissionSettled(request_id=request_id, **fields))


class Desk:
    """Questions of a session, what is shown of them, and what was answered."""

    def __init__(self) -> None:
        self.shown: QueuedRequest | None = None
        self.given: list[tuple[str, PermissionReply]] = []
        self.complaints: list[str] = []
        self.refusal: Exception | None = None
        self.questions = PermissionQueue(self._show, self._answer, self.complaints.append)

    def _show(self, asked: QueuedRequest | None) -> None:
        self.shown = asked

    async def _answer(self, request_id: str, answered: PermissionReply) -> None:
        self.given.append((request_id, answered))
        if self.refusal:
            raise self.refusal

    @property
    def at(self) -> tuple[str, int, int]:
        assert self.shown
        return self.shown.request.request_id, self.shown.number, self.shown.total

    def see(self, *events: pb.AgentEvent) -> list[str]:
        """The lines about answers."""
        return [outcome.text for _, outcome in self.questions.process_events(events) if outcome]


async def test_questions_are_shown_one_after_the_other_with_their_number() -> None:
    desk = Desk()
    desk.see(asked("one"), asked("two"), asked("three"))
    assert desk.at == ("one", 1, 3)
    await desk.questions.send_reply(DENIAL)
    assert desk.given == [("one", DENIAL)]
    assert desk.at == ("two", 2, 3)
    assert desk.see(settled("one", answer=pb.PERMISSION_ANSWER_NO, by="person"))[0].startswith("Denied by you")
    assert desk.see(settled("two", answer=pb.PERMISSION_ANSWER_ONCE, by="person"))[0].startswith(
        "Allowed once by another client"
    )
    assert desk.at == ("three", 3, 3)
    desk.questions.reset([pb.PermissionRequest(request_id="other")])
    assert desk.at == ("other", 1, 1)
    assert desk.see(settled("other", answer=pb.PERMISSION_ANSWER_NO, by="timeout"))[0].startswith(
        "Denied, not answered"
    )
    assert desk.shown is None


@pytest.mark.parametrize(("reason", "stays"), [("STORAGE", True), ("NOT_RUNNING", False)])
async def test_an_answer_that_could_not_be_stored_is_requested_again(reason: str, *, stays: bool) -> None:
    desk = Desk()
    status = status_pb2.Status()
    status.details.add().Pack(error_details_pb2.ErrorInfo(reason=reason, domain="yarrow"))
    metadata = aio.Metadata(("grpc-status-details-bin", status.SerializeToString()))
    desk.refusal = aio.AioRpcError(StatusCode.FAILED_PRECONDITION, aio.Metadata(), metadata, "full")
    desk.see(asked("one"))
    await desk.questions.send_reply(DENIAL)
    assert desk.complaints == ["full"]
    assert (desk.shown is not None) is stays


async def test_each_event_is_passed_on_once_and_in_order() -> None:
    desk = Desk()
    events = [asked("one"), settled("one"), asked("two"), asked("three"), settled("two"), settled("three")]
    pieces = list(desk.questions.process_events(events))
    assert [event for piece, _ in pieces for event in piece] == events
    assert [len(piece) for piece, _ in pieces] == [2, 3, 1]


@given(st.lists(st.tuples(st.sampled_from(["key", "drawn", "hidden"]), st.floats(0, 2)), min_size=1))
def test_the_guard_accepts_keys_after_both_pauses(steps: list[tuple[str, float]]) -> None:
    now = 0.0
    guard = FocusGuard(lambda: now)
    key_at, drawn_at = 0.0, None
    for what, pause in steps:
        now += pause
        match what:
            case "key":
                guard.note_key()
                seen = drawn_at is not None and now - drawn_at >= QUIET_SECONDS
                assert guard.allows_focus is (now - key_at >= QUIET_SECONDS and seen)
                key_at = now
            case "drawn":
                guard.note_shown()
                drawn_at = now if drawn_at is None else drawn_at
            case _:
                guard.note_hidden()
                drawn_at = None


def test_the_status_line_counts_the_seconds_of_a_question() -> None:
    def said(*events: pb.AgentEvent, now: float) -> str:
        nonlocal status
        status = reduce_status(status, events, now)
        return format_line(status, 80, TerminalTheme(has_signs=False), now=now + 2).split(" | ")[0]

    status = SessionStatus(doing=pb.AGENT_STATE_EXECUTING)
    assert said(now=7) == "* Running tools... 9s"
    assert said(asked("one"), now=10) == "* Waiting for your answer... 2s"
    assert said(asked("two"), asked("two"), settled("one"), now=20) == "* Waiting for your answer... 12s"
    assert said(settled("two"), now=30) == "* Running tools... 2s"
    assert said(settled("none"), now=40) == "* Running tools... 12s"
    assert said(asked("three"), now=50) == "* Waiting for your answer... 2s"
    ended = pb.AgentEvent(agent_end=pb.AgentEnd())
    assert said(ended, now=60) == "ready"
