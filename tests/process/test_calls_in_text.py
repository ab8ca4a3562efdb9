"""Calls that a model writes as text, from servers of each type over HTTP."""

from typing import Any

import pytest

from doubles import messages_server as messages
from doubles import ollama_server as ollama
from doubles.chat_server import DONE, ChatServer, Reply, chunk, finish, says
from doubles.world import Ended, World

KIMI = (
    "<|tool_calls_section_begin|><|tool_call_begin|>functions.read:0<|tool_call_argument_begin|>"
    '{"path": "a.txt"}<|tool_call_end|><|tool_calls_section_end|>'
)
GLM = "I look.\n<tool_call>read\n<arg_key>path</arg_key>\n<arg_value>a.txt</arg_value>\n</tool_call>"


def serve(kind: str, text: str) -> ChatServer:
    """A server whose first answer is this text."""
    if kind == "messages":
        return messages.MessagesServer([messages.says(text), messages.says("fine")])
    if kind == "ollama":
        return ollama.OllamaServer([ollama.says(text), ollama.says("fine")])
    return ChatServer([says(text), says("fine")])


def outputs(ended: Ended) -> list[str]:
    return [line["toolOutput"]["text"].strip() for line in ended.lines if "toolOutput" in line]


@pytest.mark.parametrize("kind", ["openai", "llamacpp", "ollama", "messages"])
@pytest.mark.parametrize(("mode", "runs"), [("auto", True), ("on", True), ("off", False)])
async def test_case_RA_01_the_setting_holds_for_each_adapter(world: World, kind: str, mode: str, runs: bool) -> None:
    (world.project / "a.txt").write_text("hello\n")
    async with serve(kind, GLM) as server:
        place: dict[str, Any] = {"type": kind, "baseUrl": server.root, "textCalls": mode, "apiKeyEnv": "AK"}
        world.configure({"provider": "mock", "model": "m", "providers": {"mock": place}})
        ended = await world.run("--json", "-p", "x", env={"AK": "k" * 20})
    assert ended.code == 0, ended.err
    assert ["hello" in output for output in outputs(ended)] == ([True] if runs else [])


async def test_case_RA_01_a_call_in_pieces_is_sent_back_as_a_call(world: World) -> None:
    (world.project / "a.txt").write_text("hello\n")
    pieces = [chunk({"content": KIMI[at : at + 7]}) for at in range(0, len(KIMI), 7)]
    async with ChatServer([Reply([*pieces, finish("stop"), DONE]), says("fine")]) as server:
        world.serve_by(server.root)
        ended = await world.run("--json", "-p", "x")
    assert ["hello" in output for output in outputs(ended)] == [True]
    *_, called, result = server.prompts[1]["messages"]
    assert called["tool_calls"][0]["function"]["name"] == "read"
    assert result["tool_call_id"] == called["tool_calls"][0]["id"]


async def test_case_RA_01_a_call_that_does_not_run_is_a_notice(world: World) -> None:
    async with ChatServer([says(KIMI.replace("path", "file"))]) as server:
        world.serve_by(server.root)
        ended = await world.run("--json", "-p", "x")
    [notice] = [line["notice"] for line in ended.lines if "notice" in line]
    assert notice["code"] == "UNPARSED_TOOL_CALL"
    assert "--tool-call-parser kimi_k2" in notice["text"]
