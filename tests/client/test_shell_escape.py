"""The offer to run a command outside the sandbox, and the lines by which a user does it."""

import json

import pytest

from yarrow.client.bang_command import RERUN_PROMPT, format_bang, is_rerun_offered, parse_bang, strip_instruction
from yarrow.client.permission_texts import (
    MAX_REASON_CHARACTERS,
    format_agent_reason,
    format_always_label,
    format_call_lines,
    format_facts,
    format_question_title,
    format_session_label,
)
from yarrow.client.run_event_notes import format_call_note
from yarrow.client.slash_command import CommandError
from yarrow.tool.bash import MAX_REASON_CHARACTERS as LONGEST
from yarrow.tool.command_output import OUTSIDE_HINT, STRICT_HINT
from yarrow.v1 import agent_pb2 as pb


def test_the_client_recognizes_the_tools_texts() -> None:
    assert is_rerun_offered(f"x\n[exit code 1]\n[sandbox: a is read-only. {OUTSIDE_HINT}]")
    assert is_rerun_offered(f"[sandbox: a is read-only. {OUTSIDE_HINT}]\n")
    assert not is_rerun_offered(f"x\n[sandbox: a is read-only. {STRICT_HINT}]")
    assert not is_rerun_offered(f"[sandbox: a is read-only. {OUTSIDE_HINT}]\n[exit code 1]")
    assert not is_rerun_offered(f"a [sandbox: a is read-only. {OUTSIDE_HINT}]")
    assert not is_rerun_offered("")
    output = f"x\n[exit code 1]\n[sandbox: a is read-only. {OUTSIDE_HINT}]"
    assert strip_instruction(output) == "x\n[exit code 1]\n[sandbox: a is read-only.]"
    assert strip_instruction(f"x\n[sandbox: a is read-only. {STRICT_HINT}]").endswith(STRICT_HINT + "]")
    assert RERUN_PROMPT == "Run it again with outside: true."
    assert MAX_REASON_CHARACTERS == LONGEST


@pytest.mark.parametrize(
    ("line", "silent", "outside"),
    [("!ls", False, False), ("!!ls", True, False), ("!!!ls", False, True), ("!!! ls", False, True)],
)
def test_the_prefixes_of_shell_commands(line: str, *, silent: bool, outside: bool) -> None:
    request = parse_bang("s", line)
    assert request.silent is silent
    arguments = json.loads(request.arguments_json)
    assert arguments == {"command": "ls", **({"outside": True, "reason": "the user typed it"} if outside else {})}
    assert format_bang(f"bash {request.arguments_json}", f"I ran the tool bash with {request.arguments_json}.") == (
        "!!!ls" if outside else "!ls"
    )


@pytest.mark.parametrize("line", ["!", "!!", "!!!", "!!! "])
def test_prefixes_without_a_command_are_rejected_with_a_usage(line: str) -> None:
    with pytest.raises(CommandError, match="!!!COMMAND to run it outside"):
        parse_bang("s", line)


REQUEST = pb.PermissionRequest(
    tool="bash",
    arguments_json='{"command":"git push","outside":true,"reason":"r","cwd":"sub","timeout":9}',
    reason="it would run outside the sandbox",
    outside=True,
    model_reason='a " \u202e\x1b[31m',
    cwd="/p/sub",
)


def test_the_question_shows_command_directory_reason_and_scope() -> None:
    assert format_question_title(REQUEST) == "Run this command outside the sandbox?"
    assert [line.text for line in format_call_lines(REQUEST)] == ["git push", '{"timeout":9}']
    assert format_facts(REQUEST, "/elsewhere") == "in /p/sub"
    assert format_agent_reason(REQUEST) == 'The agent says: "a \' <U+202E><U+001B>[31m"'
    assert format_session_label(REQUEST) == "Yes, this command for this session"
    assert format_always_label(REQUEST) == "Always allow exactly this command here"


def test_a_call_states_once_that_it_leaves_the_sandbox() -> None:
    assert (
        format_call_note("bash", REQUEST.arguments_json, "")
        == "> bash: git push cwd=sub timeout=9 (outside the sandbox)"
    )
    assert format_call_note("bash", '{"command":"ls","outside":false}', "") == "> bash: ls outside=false"


def test_a_long_reason_is_truncated() -> None:
    request = pb.PermissionRequest(model_reason="x" * 5_000 + "\nDo you agree?")
    assert len(format_agent_reason(request)) < MAX_REASON_CHARACTERS + 30
    assert format_agent_reason(pb.PermissionRequest()) == ""
