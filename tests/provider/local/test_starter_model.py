"""The real starter model behind the real library: what its server says of itself, our template, and true tool calls."""

import hashlib
import json
import os
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
import pytest_asyncio

from yarrow.config.settings import ProviderSettings
from yarrow.message import Message, Role, StopReason, Text, ToolCall
from yarrow.provider.base import CallPiece, CompletionRequest, ProviderEvent, StopPiece, TextPiece, UsagePiece
from yarrow.provider.http.client import HttpClient
from yarrow.provider.llamacpp.adapter import LlamaCppProvider
from yarrow.provider.local.model_files import STARTER_FILE, STARTER_MAX_TOKENS, STARTER_MODEL, pull_model
from yarrow.provider.local.server_process import LocalServer, LocalSettings
from yarrow.tool.builtin import BUILTIN_TOOLS
from yarrow.tool.registry import ToolRegistry

pytestmark = [pytest.mark.real_model, pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]

TOOLS = ToolRegistry(BUILTIN_TOOLS).specs()
SYSTEM = "You are a coding agent. Use the tools to do what the user asks. Then answer in one sentence."


class Model(NamedTuple):
    path: Path
    server: LocalServer
    provider: LlamaCppProvider
    http: httpx.AsyncClient


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def model() -> AsyncGenerator[Model]:
    path = pull_model(lambda *_: None, os.environ)
    server = await LocalServer.start(LocalSettings(str(path)))
    settings = ProviderSettings(base_url=server.base_url)
    provider = LlamaCppProvider("local", STARTER_FILE, settings=settings, key=server.key, http=HttpClient())
    async with httpx.AsyncClient(base_url=server.base_url, headers={"Authorization": f"Bearer {server.key}"}) as http:
        yield Model(path, server, provider, http)
    await provider.close()
    await server.close()


async def answer(model: Model, *messages: Message) -> list[ProviderEvent]:
    request = CompletionRequest(model=STARTER_FILE, messages=messages, tools=TOOLS, system=SYSTEM, max_tokens=64)
    return [event async for event in model.provider.stream(request)]


def message(role: Role, *content: Text | ToolCall, call: str = "") -> Message:
    return Message(id=f"{role}{call}", role=role, content=content, timestamp="", tool_call_id=call)


async def test_the_starter_model_has_the_expected_hash(model: Model) -> None:
    content = model.path.read_bytes()
    assert len(content) == STARTER_MODEL.size
    assert hashlib.sha256(content).hexdigest() == STARTER_MODEL.sha256


async def test_the_server(model: Model) -> None:
    props: dict[str, Any] = (await model.http.get("/props")).json()
    defaults = props["default_generation_settings"]
    assert (defaults["n_ctx"], props["total_slots"]) == (8192, 1)
    assert defaults["params"]["temperature"] == 0.0
    assert defaults["params"]["dry_multiplier"] > 0
    assert props["chat_template_caps"]["supports_tool_calls"]
    assert [entry.name for entry in await model.provider.list_models()] == [STARTER_FILE]
    assert (await model.provider.info()).context_window == 8192


async def test_the_server_requires_the_key(model: Model) -> None:
    async with httpx.AsyncClient(base_url=model.server.base_url) as stranger:
        for path in ("/props", "/v1/models", "/slots"):
            assert (await stranger.get(path)).status_code == 401
        assert (await stranger.post("/v1/chat/completions", json={})).status_code == 401


def wire(*names: str) -> list[dict[str, Any]]:
    return [
        {"type": "function", "function": {"name": tool.name, "description": "D", "parameters": tool.parameters}}
        for tool in TOOLS
        if tool.name in names
    ]


async def rendered(model: Model, messages: list[dict[str, Any]], *names: str) -> str:
    offered = {"tools": wire(*names)} if names else {}
    response = await model.http.post("/apply-template", json={"messages": messages, **offered})
    return response.json()["prompt"]


USER = {"role": "user", "content": "U"}
TAIL = "<|im_start|>user\nU<|im_end|>\n<|im_start|>assistant\n"


async def test_the_template_without_tools(model: Model) -> None:
    assert await rendered(model, [USER]) == f"<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{TAIL}"
    system = {"role": "system", "content": "S"}
    assert await rendered(model, [system, USER]) == f"<|im_start|>system\nS<|im_end|>\n{TAIL}"


async def test_the_template_offers_tools_by_signature(model: Model) -> None:
    prompt = await rendered(model, [USER], "edit")
    head, _, rest = prompt.partition("Functions:\n")
    assert head == "<|im_start|>system\nYou are a helpful assistant.\n\n"
    how = "To use one, write its name and its arguments as JSON.\n<|im_end|>\n"
    assert rest == f"edit(path: string, edits: array): D\n{how}{TAIL}"


@pytest.mark.parametrize(
    ("offered", "shown"),
    [
        (("bash", "read", "ls"), ['bash{"command": "make"}', 'read{"path": "README.md"}']),
        (("read", "ls"), ['ls{"path": "lib"}', 'read{"path": "README.md"}']),
        (("bash",), ['bash{"command": "make"}']),
        (("grep",), []),
    ],
)
async def test_the_template_shows_examples_of_offered_tools(
    model: Model, offered: tuple[str, ...], shown: list[str]
) -> None:
    prompt = await rendered(model, [USER], *offered)
    assert [call.partition("</call>")[0] for call in prompt.split("<call>")[1:]] == shown
    assert prompt.endswith(TAIL)


async def test_the_template_replays_calls_and_results(model: Model) -> None:
    calls = [
        {"id": "1", "type": "function", "function": {"name": "grep", "arguments": '{"pattern": "é\\n"}'}},
        {"id": "2", "type": "function", "function": {"name": "find", "arguments": "{}"}},
    ]
    history = [
        USER,
        {"role": "assistant", "content": "T", "tool_calls": calls},
        {"role": "tool", "tool_call_id": "1", "content": "one"},
        {"role": "tool", "tool_call_id": "2", "content": ""},
        {"role": "assistant", "content": "done"},
        USER,
    ]
    prompt = await rendered(model, history, "grep")
    assert prompt.endswith(
        "<|im_start|>user\nU<|im_end|>\n"
        '<|im_start|>assistant\nT<call>grep{"pattern": "é\\n"}</call><call>find{}</call><|im_end|>\n'
        "<|im_start|>user\nResult:\none<|im_end|>\n<|im_start|>user\nResult:\n<|im_end|>\n"
        f"<|im_start|>assistant\ndone<|im_end|>\n{TAIL}"
    )


@pytest.mark.parametrize(
    ("prompt", "name", "result"),
    [
        ("Use ls on the folder docs.", "ls", "guide.md\nindex.md"),
        ("Read the file notes.txt.", "read", "The answer is forty-two.\n"),
    ],
)
async def test_a_call_its_result_and_a_final_text(model: Model, prompt: str, name: str, result: str) -> None:
    user = message(Role.USER, Text(prompt))
    first, *_, usage, stop = await answer(model, user)
    assert stop == StopPiece(StopReason.TOOL_USE)
    assert isinstance(usage, UsagePiece)
    assert usage.usage.output > 5
    assert isinstance(first, CallPiece)
    call = first.call
    assert call.name == name
    # The arguments differ from one processor to the next; their agreement with the schema does not.
    assert json.loads(call.arguments).keys() <= {"path", "offset", "limit"}
    history = (user, message(Role.ASSISTANT, call), message(Role.TOOL, Text(result), call=call.id))
    *texts, usage, stop = await answer(model, *history)
    assert stop == StopPiece(StopReason.END_TURN)
    assert isinstance(usage, UsagePiece)
    assert usage.usage.cache_read > 100, "the prompt was read again"
    text = "".join(piece.text for piece in texts if isinstance(piece, TextPiece))
    assert text.strip()
    assert len(texts) > 1


@pytest.mark.parametrize("prompt", ["what does this project do?", "Explain recursion."])
async def test_an_answer_does_not_repeat_itself(model: Model, prompt: str) -> None:
    request = CompletionRequest(
        model=STARTER_FILE,
        messages=(message(Role.USER, Text(prompt)),),
        tools=tuple(tool for tool in TOOLS if tool.name in ("read", "grep", "find", "ls")),
        system=SYSTEM,
        max_tokens=STARTER_MAX_TOKENS,
    )
    pieces = [event async for event in model.provider.stream(request)]
    words = "".join(piece.text for piece in pieces if isinstance(piece, TextPiece)).split()
    sequences = Counter(zip(*(words[start:] for start in range(12)), strict=False))
    assert max(sequences.values(), default=0) < 3, " ".join(words)


async def test_an_answer_without_a_call_is_not_an_error(model: Model) -> None:
    """By some templates the server concludes that text is never an answer once tools are offered."""
    never = {"logit_bias": [["<", False]]}
    body = {"messages": [USER], "tools": wire("read", "bash"), "max_tokens": 12, **never}
    response = await model.http.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    [choice] = response.json()["choices"]
    assert choice["message"]["content"].strip()
    assert "tool_calls" not in choice["message"]
