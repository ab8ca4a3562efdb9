"""The offer to run a command outside the sandbox, and the lines by which a user does it."""

import json

import pytest

from yarrow.client.by_hand import line_of, request_of
from yarrow.client.command import WrongWords
from yarrow.client.notes import call_note
from yarrow.client.permission import REASON_CHARACTERS, agent_reason, always, call_lines, facts, for_session, title
from yarrow.client.way_out import PROMPT, for_user, is_offered
from yarrow.tool.bash import REASON_CHARACTERS as LONGEST
from yarrow.tool.command_notes import NO_WAY_OUT, WAY_OUT
from yarrow.v1 import agent_pb2 as pb


def test_what_the_tool_says_is_what_the_client_looks_for() -> None:
    assert is_offered(f"x\n[exit code 1]\n[sandbox: a is read-only. {WAY_OUT}]")
    assert is_offered(f"[sandbox: a is read-only. {WAY_OUT}]\n")
    assert not is_offered(f"x\n[sandbox: a is read-only. {NO_WAY_OUT}]")
    assert not is_offered(f"[sandbox: a is read-only. {WAY_OUT}]\n[exit code 1]")
    assert not is_offered(f"a [sandbox: a is read-only. {WAY_OUT}]")
    assert not is_offered("")
    output = f"x\n[exit code 1]\n[sandbox: a is read-only. {WAY_OUT}]"
    assert for_user(output) == "x\n[exit code 1]\n[sandbox: a is read-only.]"
    assert for_user(f"x\n[sandbox: a is read-only. {NO_WAY_OUT}]").endswith(NO_WAY_OUT + "]")
    assert PROMPT == "Run it again with outside: true."
    assert REASON_CHARACTERS == LONGEST


@pytest.mark.parametrize(
    ("line", "silent", "outside"),
    [("!ls", False, False), ("!!ls", True, False), ("!!!ls", False, True), ("!!! ls", False, True)],
)
def test_the_signs_before_a_command(line: str, *, silent: bool, outside: bool) -> None:
    request = request_of("s", line)
    assert request.silent is silent
    arguments = json.loads(request.arguments_json)
    assert arguments == {"command": "ls", **({"outside": True, "reason": "the user typed it"} if outside else {})}
    assert line_of(f"bash {request.arguments_json}", f"I ran the tool bash with {request.arguments_json}.") == (
        "!!!ls" if outside else "!ls"
    )


@pytest.mark.parametrize("line", ["!", "!!", "!!!", "!!! "])
def test_signs_alone_are_refused_with_their_meaning(line: str) -> None:
    with pytest.raises(WrongWords, match="!!!COMMAND to run it outside"):
        request_of("s", line)


REQUEST = pb.PermissionRequest(
    tool="bash",
    arguments_json='{"command":"git push","outside":true,"reason":"r","cwd":"sub","timeout":9}',
    reason="it would run outside the sandbox",
    outside=True,
    model_reason='a " \u202e\x1b[31m',
    cwd="/p/sub",
)


def test_the_question_shows_command_directory_reason_and_scope() -> None:
    assert title(REQUEST) == "Run this command outside the sandbox?"
    assert [line.text for line in call_lines(REQUEST)] == ["git push", '{"timeout":9}']
    assert facts(REQUEST, "/elsewhere") == "in /p/sub"
    assert agent_reason(REQUEST) == 'The agent says: "a \' <U+202E><U+001B>[31m"'
    assert for_session(REQUEST) == "Yes, this command for this session"
    assert always(REQUEST) == "Always allow exactly this command here"


def test_a_card_says_once_that_a_command_leaves_the_sandbox() -> None:
    assert call_note("bash", REQUEST.arguments_json, "") == "> bash: git push cwd=sub timeout=9 (outside the sandbox)"
    assert call_note("bash", '{"command":"ls","outside":false}', "") == "> bash: ls outside=false"


def test_a_long_reason_of_another_service_is_cut() -> None:
    request = pb.PermissionRequest(model_reason="x" * 5_000 + "\nDo you agree?")
    assert len(agent_reason(request)) < REASON_CHARACTERS + 30
    assert agent_reason(pb.PermissionRequest()) == ""
