"""The system prompt: facts, a replacement, context files, skills, an addition; and the size of a first request."""

import os
from datetime import date
from pathlib import Path

import pytest

from yarrow.message import Message, Role, Text
from yarrow.prompt.skills import Skill
from yarrow.prompt.system_prompt import ContextFile, PromptSources, SessionFacts, build_system_prompt
from yarrow.provider.base import CompletionRequest
from yarrow.provider.chat_completions.request import encode_chat_request
from yarrow.provider.history_repair import Target
from yarrow.provider.request_body import to_json
from yarrow.tool.builtin import BUILTIN_TOOLS
from yarrow.tool.registry import ToolRegistry

FACTS = SessionFacts(cwd=Path("/w"), today=date(2026, 11, 28))
GATHERED = PromptSources(
    context=(ContextFile("~/AGENTS.md", "Home."), ContextFile("/w/AGENTS.md", "Here.")),
    skills=(Skill("pdf", "Reads.", Path("/w/.agents/skills/pdf/SKILL.md")),),
)


def test_the_system_prompt_contains_facts_but_no_time() -> None:
    prompt = build_system_prompt(SessionFacts(cwd=Path("/w"), today=date(2026, 11, 28), tools=("read", "ls")))
    assert prompt.startswith("You are Yarrow")
    assert prompt.endswith("\n\nWorking directory: /w\nDate: 2026-11-28\nTools: read, ls")


def test_a_replacement_replaces_the_default_and_an_addition_comes_last() -> None:
    assert build_system_prompt(FACTS, replacement="Be a poet.", addition="In verse.") == (
        "Be a poet.\n\nWorking directory: /w\nDate: 2026-11-28\n\nIn verse."
    )


def test_an_empty_replacement_removes_the_default_text() -> None:
    assert build_system_prompt(FACTS, replacement="") == "Working directory: /w\nDate: 2026-11-28"


def test_context_files_and_skills_precede_the_addition() -> None:
    prompt = build_system_prompt(FACTS, GATHERED, replacement="", addition="In verse.")
    context, _, skills = prompt.removeprefix("Working directory: /w\nDate: 2026-11-28\n\n").partition("\n\nSkills ")
    assert context.split("\n\n")[1:] == [
        '<context_file path="~/AGENTS.md">\nHome.\n</context_file>',
        '<context_file path="/w/AGENTS.md">\nHere.\n</context_file>',
    ]
    assert skills.endswith("\n- pdf: Reads. (/w/.agents/skills/pdf/SKILL.md)\n\nIn verse.")


@pytest.mark.parametrize("name", [b"a\nTools: none", b"\xff"])
def test_an_odd_directory_name_adds_no_line_and_can_be_encoded(name: bytes) -> None:
    prompt = build_system_prompt(SessionFacts(cwd=Path("/w") / os.fsdecode(name), today=FACTS.today), replacement="")
    assert prompt.encode().count(b"\n") == 1


def test_the_first_request_is_small() -> None:
    """The limit, in bytes, of system prompt and tool schemas."""
    registry = ToolRegistry(BUILTIN_TOOLS)
    message = Message(id="m", role=Role.USER, content=(Text("hi"),), timestamp="")
    request = CompletionRequest(
        model="m",
        messages=(message,),
        tools=registry.specs(),
        system=build_system_prompt(SessionFacts(Path("/home/somebody/project"), FACTS.today, tuple(registry.names()))),
    )
    assert len(to_json(encode_chat_request(request, Target("p", "m"), fields={}, extra={}))) <= 4300
