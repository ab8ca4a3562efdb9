"""The system prompt: facts, a replacement, an addition; and the size of a first request."""

from datetime import date
from pathlib import Path

from yarrow.message import Message, Role, Text
from yarrow.prompt.system import system_prompt
from yarrow.provider.base import CompletionRequest
from yarrow.provider.chat_completions.encode import encode, to_json
from yarrow.provider.history import Target
from yarrow.tool.builtin import BUILTIN_TOOLS
from yarrow.tool.registry import Registry

TODAY = date(2026, 11, 28)


def test_it_names_the_facts_and_no_time() -> None:
    prompt = system_prompt(cwd=Path("/w"), today=TODAY, tools=["read", "ls"])
    assert "Working directory: /w" in prompt
    assert "Date: 2026-11-28" in prompt
    assert "Tools: read, ls" in prompt
    assert ":" not in prompt.partition("Date: ")[2].partition("\n")[0].removeprefix("2026-11-28")


def test_a_replacement_takes_our_words_and_an_addition_comes_last() -> None:
    prompt = system_prompt(cwd=Path("/w"), today=TODAY, tools=[], replacement="Be a poet.", addition="In verse.")
    assert prompt.startswith("Be a poet.\n\nWorking directory")
    assert prompt.endswith("\n\nIn verse.")
    assert "Yarrow" not in prompt
    assert "Tools" not in prompt


def test_the_first_request_is_small() -> None:
    """The goal is 5.0 kB of system prompt and tool schemas."""
    registry = Registry(BUILTIN_TOOLS)
    message = Message(id="m", role=Role.USER, content=(Text("hi"),), timestamp="")
    request = CompletionRequest(
        model="m",
        messages=(message,),
        tools=registry.specs(),
        system=system_prompt(cwd=Path("/home/somebody/project"), today=TODAY, tools=registry.names()),
    )
    assert len(to_json(encode(request, Target("p", "m"), fields={}, extra={}))) < 5000
