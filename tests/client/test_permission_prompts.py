"""The questions of a run at a terminal: shown whole, answered one after the other, taken back when they are settled."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from client.fake_service import SESSION, FakeService, Tape, connected, event, whole
from hypothesis import given
from hypothesis import strategies as st

from yarrow.client import plain_mode
from yarrow.client.bang_command import RERUN_OFFER
from yarrow.client.permission_prompts import CHOICES, TypedAnswer, format_question
from yarrow.client.permission_texts import format_always_label, format_facts, format_rule, format_session_label, reveal
from yarrow.client.plain_mode import PlainTerminal
from yarrow.client.run_stream import RunResult
from yarrow.client.terminal_text_sanitizer import UNSAFE_CHARACTER
from yarrow.tool.command_output import OUTSIDE_HINT
from yarrow.v1 import agent_pb2 as pb

WAIT = "..."
"""Types nothing, like a user who is thinking."""


class Person:
    """Types given answers, and records what it is shown."""

    def __init__(self, *lines: str | TypedAnswer, keeps: bool = False) -> None:
        self.lines = list(lines)
        self.shown: list[str] = []
        self.kept: list[str] = []
        self.told: list[str] = []
        self.asked = asyncio.Event()
        self.interrupted = 0
        self._keeps = keeps

    async def answer(self, question: str) -> TypedAnswer:
        self.shown.append(question)
        self.asked.set()
        if self.lines and (line := self.lines.pop(0)) != WAIT:
            return line if isinstance(line, TypedAnswer) else TypedAnswer(line, is_answer=True)
        try:
            await asyncio.Event().wait()
        finally:
            self.interrupted += 1
        raise AssertionError

    def keep(self, text: str) -> bool:
        self.kept.append(text)
        return self._keeps

    def tell(self, text: str) -> None:
        self.told.append(text)


def asks(request_id: str = "q1", **fields: Any) -> pb.AgentEvent:
    given_: dict[str, Any] = {"tool": "bash", "arguments_json": '{"command": "ls"}', "reason": "no sandbox"} | fields
    return event("permission_request", request_id=request_id, **given_)


async def run(service: FakeService, person: Person, err: Tape | None = None) -> RunResult:
    async with connected(service) as stub:
        terminal = PlainTerminal(Tape(), err or Tape(), person)
        return await asyncio.wait_for(
            plain_mode.run_plain(stub, SESSION, pb.PromptRequest(text="hi"), terminal=terminal), 10
        )


async def run_until(service: FakeService, person: Person, holds: Callable[[], object]) -> RunResult:
    """Run the service up to its last event, and let the run end once a condition holds."""
    last = service.gates[len(service.batches) - 1] = asyncio.Event()
    running = asyncio.create_task(run(service, person))
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0)
    last.set()
    return await running


def held(person: Person, *events: pb.AgentEvent) -> FakeService:
    """A service that goes on after the first event when the person was asked."""
    service = FakeService(*whole(*events))
    service.gates[len(service.batches) - 1] = person.asked
    return service


def answers(service: FakeService) -> list[pb.AnswerPermissionRequest]:
    return [each for each in service.requests if isinstance(each, pb.AnswerPermissionRequest)]


@pytest.mark.parametrize(
    ("lines", "answer", "text"),
    [
        (["yes"], pb.PERMISSION_ANSWER_ONCE, ""),
        ([" YES "], pb.PERMISSION_ANSWER_ONCE, ""),
        (["session"], pb.PERMISSION_ANSWER_SESSION, ""),
        (["always", "always"], pb.PERMISSION_ANSWER_ALWAYS, ""),
        (["always", "", "Always"], pb.PERMISSION_ANSWER_ALWAYS, ""),
        (["always", "no"], pb.PERMISSION_ANSWER_NO, ""),
        (["always", "yes"], pb.PERMISSION_ANSWER_ONCE, ""),
        (["always", TypedAnswer("always", is_answer=False), "no"], pb.PERMISSION_ANSWER_NO, ""),
        (["", "y", "s", "A", "n", "no"], pb.PERMISSION_ANSWER_NO, ""),
        ([TypedAnswer("", is_answer=True, is_end=True)], pb.PERMISSION_ANSWER_NO, ""),
        ([TypedAnswer("yes", is_answer=False), "no"], pb.PERMISSION_ANSWER_NO, ""),
        (["use make"], pb.PERMISSION_ANSWER_NO, "use make"),
        (["yes please"], pb.PERMISSION_ANSWER_NO, "yes please"),
        (["yes."], pb.PERMISSION_ANSWER_NO, "yes."),
    ],
)
async def test_a_whole_word_is_the_answer(lines: list[str | TypedAnswer], answer: int, text: str) -> None:
    person = Person(*lines)
    service = FakeService(*whole(asks()))
    assert await run_until(service, person, lambda: answers(service)) == RunResult("s1", "COMPLETED")
    assert service.requests[0].options.answers_permissions
    (sent,) = answers(service)
    assert (sent.session_id, sent.request_id, sent.answer, sent.text) == ("s1", "q1", answer, text)


@pytest.mark.parametrize("keeps", [True, False])
async def test_a_line_that_is_not_an_answer_is_kept_or_sent_to_the_run(*, keeps: bool) -> None:
    person = Person(TypedAnswer("always", is_answer=False), WAIT, keeps=keeps)
    service = FakeService(*whole(asks()))
    await run_until(service, person, lambda: len(person.shown) >= 2)
    assert answers(service) == []
    assert person.kept == ["always"]
    steered = [each.text for each in service.requests if isinstance(each, pb.SteerRequest)]
    assert steered == ([] if keeps else ["always"])
    assert "always" in person.shown[1]


async def test_the_user_sees_the_whole_call() -> None:
    command = "echo " + "x" * 3000 + "\nrm -rf /"
    arguments = json.dumps({"command": command})
    shown = format_question(pb.PermissionRequest(tool="bash", arguments_json=arguments, reason="no sandbox"))
    indented = command.replace("\n", "\n    ")
    assert shown == f"yarrow: Run this command outside the sandbox?\n    {indented}\n  no sandbox\n{CHOICES}"
    with_more = format_question(pb.PermissionRequest(tool="bash", arguments_json='{"command": "ls", "cwd": "/x"}'))
    assert '    ls\n    {"cwd":"/x"}\n' in with_more
    placed = pb.PermissionRequest(tool="bash", arguments_json='{"command": "ls", "cwd": "x"}', cwd="/p/x")
    assert format_question(placed).split("\n")[1:3] == ["    ls", "  in /p/x"]
    outside = pb.PermissionRequest(
        tool="bash",
        arguments_json='{"command": "git push", "outside": true, "reason": "it needs keys"}',
        reason="it would run outside the sandbox",
        outside=True,
        model_reason="it needs keys",
        cwd="/p",
    )
    assert format_question(outside) == (
        "yarrow: Run this command outside the sandbox?\n    git push\n  in /p\n"
        f'  The agent says: "it needs keys"\n{CHOICES}'
    )


async def test_the_user_sees_what_session_and_always_allow() -> None:
    request = pb.PermissionRequest(
        tool="write",
        arguments_json='{"path": "/etc/x", "content": "a"}',
        reason="/etc/x is outside the workspace",
        rule_json='{"tool":"write","subject":"/etc","cwd":"/p"}',
    )
    assert format_question(request) == (
        "yarrow: Write /etc/x?\n    + a\n  /etc/x is outside the workspace\n"
        "  session: allows writing files directly in /etc until Yarrow ends\n"
        f"  always: allows the same from now on\n{CHOICES}"
    )
    assert format_always_label(request) == "Always allow writing files directly in /etc"
    assert format_session_label(request) == "Yes, and writing files directly in /etc for this session"
    assert format_facts(request, "/p") == "/etc/x is outside the workspace"
    request.rule_json = '{"tool":"write","subject":"/a\\u202e\\nb"}'
    assert format_always_label(request) == "Always allow writing files directly in /a<U+202E> b"
    for broken in ("", "[", '{"subject":3}'):
        request.rule_json = broken
        assert format_always_label(request) == "Always allow writing files directly in this directory"
    other = pb.PermissionRequest(tool="deploy", rule_json='{"tool":"deploy","subject":"{}"}')
    assert (format_always_label(other), format_session_label(other)) == (
        "Always allow this call here",
        "Yes, this call for this session",
    )


async def test_every_path_of_a_question_begins_with_the_same_home() -> None:
    home = str(Path.home())
    request = pb.PermissionRequest(
        tool="write",
        arguments_json=json.dumps({"path": f"{home}/sub/x", "content": "a"}),
        reason=f"{home}/sub/x is outside the workspace; creates the directory sub",
        rule_json=json.dumps({"tool": "write", "subject": f"{home}/sub", "cwd": "/p"}),
    )
    assert format_question(request) == (
        "yarrow: Write ~/sub/x?\n    + a\n  ~/sub/x is outside the workspace; creates the directory sub\n"
        "  session: allows writing files directly in ~/sub until Yarrow ends\n"
        f"  always: allows the same from now on\n{CHOICES}"
    )
    request = pb.PermissionRequest(
        tool="ls", arguments_json=json.dumps({"path": home}), reason=f"{home} is outside the workspace"
    )
    assert format_question(request).startswith("yarrow: List ~?\n  ~ is outside the workspace\n")


@given(st.lists(st.sampled_from(["ls", "\x1b[2K", "\x1b[0m", "\r", "\u202e", "\u200b", "\u200d", "\x08", "\n", " "])))
def test_hidden_characters_of_a_command_are_shown(pieces: list[str]) -> None:
    text = "".join(pieces)
    shown = reveal(text)
    assert not UNSAFE_CHARACTER.search(shown)
    hidden = [letter for letter in text if UNSAFE_CHARACTER.match(letter)]
    assert shown.count("<U+") == len(hidden)


@pytest.mark.parametrize("is_there", [True, False])
async def test_an_interactive_user_is_offered_the_shell_escape(*, is_there: bool) -> None:
    output = event("tool_output", name="bash", text=f"no\n[sandbox: a is read-only. {OUTSIDE_HINT}]", is_error=True)
    err = Tape()
    async with connected(FakeService(*whole(output))) as stub:
        terminal = PlainTerminal(Tape(), err, Person() if is_there else None)
        await plain_mode.run_plain(stub, SESSION, pb.PromptRequest(text="hi"), terminal=terminal)
    assert (f"yarrow: {RERUN_OFFER}\n" in err.text) is is_there


async def test_questions_are_asked_one_at_a_time() -> None:
    person = Person("yes", "no")
    service = FakeService(*whole(asks("q1"), asks("q2", tool="write")))
    await run_until(service, person, lambda: len(answers(service)) >= 2)
    assert [(each.request_id, each.answer) for each in answers(service)] == [
        ("q1", pb.PERMISSION_ANSWER_ONCE),
        ("q2", pb.PERMISSION_ANSWER_NO),
    ]


async def test_a_question_settled_elsewhere_is_replaced_by_the_next() -> None:
    person = Person(WAIT, "yes")
    service = FakeService(*whole(asks("q1"), event("permission_settled", request_id="q1"), asks("q2", tool="write")))
    (index,) = (at for at, (each,) in enumerate(service.batches) if each.HasField("permission_settled"))
    service.gates[index] = person.asked
    assert await run_until(service, person, lambda: answers(service)) == RunResult("s1", "COMPLETED")
    assert person.interrupted == 1
    assert ["Denied" in line for line in person.told] == [True]
    assert [each.request_id for each in answers(service)] == ["q2"]


async def test_the_end_of_the_run_withdraws_a_question() -> None:
    person = Person()
    assert (await run(held(person, asks()), person)).reason == "COMPLETED"
    assert person.interrupted == 1


async def test_an_answer_that_could_not_be_stored_is_requested_again() -> None:
    person = Person("session", "yes")
    service = FakeService(*whole(asks()))
    last = service.gates[len(service.batches) - 1] = asyncio.Event()
    service.refused, service.refusal = {"AnswerPermission"}, (grpc.StatusCode.FAILED_PRECONDITION, "full", "STORAGE")
    service.state.permission_requests.add(request_id="q1")
    running = asyncio.create_task(run(service, person))
    while len(person.shown) < 2:
        await asyncio.sleep(0)
    service.state.ClearField("permission_requests")
    last.set()
    await running
    assert person.shown[1] == f"yarrow: full\n{CHOICES}"


async def test_a_late_answer_is_dropped() -> None:
    person = Person("yes")
    service = held(person, asks())
    service.refused, service.refusal = {"AnswerPermission"}, (grpc.StatusCode.FAILED_PRECONDITION, "no", "NOT_RUNNING")
    assert (await run(service, person)).reason == "COMPLETED"
    assert len(person.shown) == 1


async def test_always_shows_the_rule_and_file_before_confirmation() -> None:
    person = Person("always", "no")
    rule = '{"tool":"bash","subject":"ls \\u202e"}'
    service = FakeService(*whole(asks(rule_json=rule, rule_file="/etc/yarrow/config.json")))
    await run_until(service, person, lambda: answers(service))
    assert "This adds a rule to permissions.always in /etc/yarrow/config.json:\n" in person.shown[1]
    assert '{"tool":"bash","subject":"ls ' in person.shown[1]
    assert not UNSAFE_CHARACTER.search(person.shown[1])


def test_always_states_that_no_rule_is_saved() -> None:
    assert "No rule is saved" in format_rule(pb.PermissionRequest(tool="bash", rule_json="{}"))
