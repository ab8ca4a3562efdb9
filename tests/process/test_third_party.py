"""Our adapters against servers that others wrote: two that imitate the vendors' formats, and the real llama.cpp."""

import json
import os
import shutil
import sys
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from foreign.programs import running

from doubles.conversation import result
from doubles.spoken import record
from doubles.world import World
from yarrow.config.settings import ProviderSettings, ProviderType, Settings
from yarrow.errors import Code, ProviderError
from yarrow.message import Block, Message, Role, StopReason, Text, ThinkingLevel, ToolCall, ToolSpec
from yarrow.provider.base import (
    CallPiece,
    CompletionRequest,
    ListsModels,
    Provider,
    ProviderEvent,
    StopPiece,
    TextPiece,
    ThinkingPiece,
    UsagePiece,
)
from yarrow.provider.factory import ProviderContext, build_provider
from yarrow.provider.local.model_files import STARTER_FILE, list_installed, models_dir
from yarrow.provider.local.server_process import LocalServer, LocalSettings

FOREIGN = Path(__file__).parents[1] / "foreign"
KEY = "sk-third-party"
PATH: dict[str, Any] = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
LS = ToolSpec("ls", "Lists a folder.", PATH)
READ = ToolSpec("read", "Reads a file.", PATH)


@asynccontextmanager
async def provider_of(kind: ProviderType, url: str, *, key: str = KEY, model: str = "m") -> AsyncGenerator[Provider]:
    """Configuration of a provider of this kind at this address."""
    configured = {"there": ProviderSettings(type=kind, base_url=url, api_key_env="THERE_KEY")}
    built = await build_provider("there", model, ProviderContext(Settings(providers=configured), {"THERE_KEY": key}))
    try:
        yield built.provider
    finally:
        await built.provider.close()


def said(role: Role, *content: Block, **more: Any) -> Message:
    return Message(id=role, role=role, content=content, timestamp="", **more)


def user(words: str) -> Message:
    return said(Role.USER, Text(words))


async def ask(provider: Provider, *messages: Message, **more: Any) -> list[ProviderEvent]:
    return [event async for event in provider.stream(CompletionRequest(**{"model": "m", "messages": messages} | more))]


async def fails(provider: Provider, words: str = "Are you busy?") -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await ask(provider, user(words))
    return caught.value


def text_of(events: Sequence[ProviderEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, TextPiece)]


def call_of(events: Sequence[ProviderEvent]) -> ToolCall:
    [call] = [event.call for event in events if isinstance(event, CallPiece)]
    return call


# -- a server of all formats, in JavaScript ---------------------------------------------------------------------------

FORMATS: tuple[ProviderType, ...] = ("openai", "responses", "messages", "gemini", "ollama")


@pytest.fixture(scope="module")
def aimock() -> Generator[str]:
    """Its address. It answers by tests/foreign/answers.json, eight characters at a time, and refuses other prompts."""
    node = shutil.which("node")
    assert node is not None
    program = FOREIGN / "node_modules/@copilotkit/aimock/dist/cli.js"
    pace = ["--chunk-size", "8", "--latency", "5"]
    with running(
        node, str(program), "--port", "0", "--fixtures", str(FOREIGN / "answers.json"), "--strict", *pace
    ) as address:
        yield address


@pytest.mark.parametrize("kind", FORMATS)
async def test_a_text_a_call_and_its_result(aimock: str, kind: ProviderType) -> None:
    """The server sends its last answer only if it finds the result where its format has results.

    It differs from the vendors, which no adapter accommodates: it counts no tokens; in Ollama's format its calls have
    no id and `/api/show` is missing; in Gemini's a call ends with FUNCTION_CALL, which is not one of Gemini's reasons,
    models can be neither listed nor described, and `v1beta`, which the adapter uses, is the only version.
    """
    async with provider_of(kind, aimock) as provider:
        asked = user("What is in docs?")
        first = await ask(provider, asked, tools=(LS,), system="Be brief.")
        assert len(text_of(first)) > 1, "the answer was not streamed"
        assert "".join(text_of(first)) == "I look into the folder."
        call = call_of(first)
        assert (call.name, json.loads(call.arguments)) == ("ls", {"path": "docs", "depth": 2})
        assert first[-1] == StopPiece(StopReason.OTHER if kind == "gemini" else StopReason.TOOL_USE)
        answer = said(Role.ASSISTANT, Text("I look into the folder."), call, provider="there", model="m")
        result = said(Role.TOOL, Text("guide.md"), tool_call_id=call.id, tool_name="ls")
        last = await ask(provider, asked, answer, result, tools=(LS,), system="Be brief.")
    assert "".join(text_of(last)) == "There is one file in docs: guide.md."
    assert last[-1] == StopPiece(StopReason.END_TURN)


@pytest.mark.parametrize("kind", ["openai", "responses", "messages", "gemini"])
async def test_thinking_is_separate_from_text(aimock: str, kind: ProviderType) -> None:
    """In Ollama's format the server thinks under a name that Ollama does not use, so that clients ignore it."""
    async with provider_of(kind, aimock) as provider:
        events = await ask(provider, user("Six times seven?"), thinking=ThinkingLevel.MEDIUM)
    thought = "".join(event.text for event in events if isinstance(event, ThinkingPiece))
    assert thought == "Six times six is thirty-six."
    assert "".join(text_of(events)) == "Forty-two."


@pytest.mark.parametrize("kind", FORMATS)
async def test_an_error_response_is_understood(aimock: str, kind: ProviderType) -> None:
    async with provider_of(kind, aimock) as provider:
        error = await fails(provider)
    assert (error.code, error.retryable, error.status) == (Code.OVERLOADED, True, 503)
    assert "come back later" in error.message


# -- a server with faults on demand, and its judgement ----------------------------------------------------------------

BASES: dict[ProviderType, str] = {"openai": "/v1", "responses": "/v1", "messages": "/anthropic", "gemini": "/gemini"}


@pytest.fixture(scope="module")
def faults() -> Generator[str]:
    with running(sys.executable, str(FOREIGN / "faults.py")) as address:
        yield address


async def order(faults: str, *behaviors: Mapping[str, Any]) -> None:
    """Say what the next requests are met with; what was before is forgotten."""
    async with httpx.AsyncClient(base_url=faults) as http:
        (await http.post("/_llmock/reset")).raise_for_status()
        (await http.post("/_llmock/scenario", json={"behaviors": behaviors})).raise_for_status()


async def findings(faults: str) -> list[str]:
    """Problems that it finds in our requests."""
    async with httpx.AsyncClient(base_url=faults) as http:
        verdict = (await http.get("/_llmock/verdict")).json()
    return [finding["code"] for finding in verdict["findings"]]


@pytest.mark.parametrize("kind", BASES)
async def test_a_rate_limit_has_a_retry_delay(faults: str, kind: ProviderType) -> None:
    # Not for the question what the model can do, which some adapters ask first.
    await order(faults, {"type": "fail", "status": 429, "retry_after": 7, "match": {"stream": True}})
    async with provider_of(kind, faults + BASES[kind]) as provider:
        error = await fails(provider)
    assert (error.code, error.retryable, error.retry_after) == (Code.RATE_LIMIT, True, 7)


@pytest.mark.parametrize("kind", BASES)
@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("truncate", Code.STREAM_TRUNCATED),
        ("disconnect", Code.STREAM_TRUNCATED),
        ("malformed", Code.MALFORMED_RESPONSE),
    ],
)
async def test_a_broken_stream_is_not_an_answer(faults: str, kind: ProviderType, fault: str, code: Code) -> None:
    await order(faults, {"type": "stream_fault", "kind": fault, "after_chunks": 2})
    async with provider_of(kind, faults + BASES[kind]) as provider:
        error = await fails(provider)
    assert (error.code, error.retryable) == (code, True)


@pytest.mark.parametrize("kind", ["openai", "messages"])
async def test_a_call_with_broken_arguments_keeps_them(faults: str, kind: ProviderType) -> None:
    """In Gemini's format arguments are no text, and the server breaks nothing there."""
    await order(faults, {"type": "tool_fault", "kind": "malformed_arguments"})
    async with provider_of(kind, faults + BASES[kind]) as provider:
        events = await ask(provider, user("ls"), tools=(LS,))
    call = call_of(events)
    assert (call.name, call.arguments, call.invalid_arguments) == ("ls", "{}", '{"path": "')


FAULTS: dict[str, list[dict[str, Any]]] = {
    "rate limit": [{"type": "fail", "status": 429, "retry_after": 0.4, "times": 2}],
    "overload": [{"type": "fail", "status": 503}],
    "disconnect": [{"type": "stream_fault", "kind": "disconnect", "after_chunks": 1}],
    "truncate": [{"type": "stream_fault", "kind": "truncate", "after_chunks": 1}],
    "truncate behind text": [
        {"type": "reply", "text": "I look into it."},
        {"type": "stream_fault", "kind": "truncate", "after_chunks": 3},
    ],
}


@pytest.mark.parametrize("fault", FAULTS)
async def test_an_agent_completes_without_errors(faults: str, world: World, fault: str) -> None:
    """The server calls a tool that is on offer, answers with text when its result came, and checks our requests.

    It cannot check malformed chunks: it does not recognize the next request as a retry of the same call.
    """
    await order(faults, *FAULTS[fault])
    world.serve_by(faults, retry={"baseDelay": 0.05})
    ended = await world.run("--json", "--tools", "ls", "ls")
    assert ended.code == 0, ended
    told = [
        key for line in ended.lines for key in line if key in ("retryScheduled", "toolCall", "toolOutput", "agentEnd")
    ]
    tries = sum(behavior.get("times", 1) for behavior in FAULTS[fault] if behavior["type"] != "reply")
    assert told == ["retryScheduled"] * tries + ["toolCall", "toolOutput", "agentEnd"]
    assert await findings(faults) == []


async def test_an_agent_does_not_retry_permanent_errors(faults: str, world: World) -> None:
    await order(faults, {"type": "fail", "status": 401, "times": None})
    world.serve_by(faults, retry={"baseDelay": 0.05})
    ended = await world.run("--json", "ls")
    assert ended.code == 3, ended
    assert await findings(faults) == []


# -- the real llama.cpp -----------------------------------------------------------------------------------------------


@pytest.mark.real_model
@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["openai", "llamacpp", "messages", "responses"])
async def test_a_real_model_in_all_its_formats(kind: ProviderType) -> None:
    """The server that the `local` provider starts has them all, the last ones under `/v1/messages`, `/v1/responses`."""
    assert STARTER_FILE in list_installed(os.environ), f"make setup puts {STARTER_FILE} into {models_dir(os.environ)}"
    server = await LocalServer.start(LocalSettings(str(models_dir(os.environ) / STARTER_FILE), 2048))
    try:
        async with provider_of(kind, server.base_url, key=server.key, model=STARTER_FILE) as provider:
            assert isinstance(provider, ListsModels)
            assert [entry.name for entry in await provider.list_models()] == [STARTER_FILE]
            asked, fixed = (
                user("Use ls on the folder docs."),
                {"model": STARTER_FILE, "system": "You are a coding agent."},
            )
            words = await ask(provider, asked, **fixed, max_tokens=12, temperature=0.0)
            forced = await ask(
                provider, asked, **fixed, tools=(READ, LS), tool_choice="required", max_tokens=96, temperature=0.0
            )
            called = record(forced)
            answers = [result(call.id, "guide.md", tool_name=call.name) for call in called.tool_calls]
            history = (asked, called, *answers, record(words), user("Thanks."))
            more = await ask(provider, *history, **fixed, tools=(READ, LS), max_tokens=12, temperature=0.0)
    finally:
        await server.close()
    assert len(text_of(words)) > 1, "the answer was not streamed"
    assert words[-1] in (StopPiece(StopReason.MAX_TOKENS), StopPiece(StopReason.END_TURN))
    assert call_of(forced).name in ("ls", "read")
    # The arguments differ from one processor to the next; their agreement with the schema does not.
    assert json.loads(call_of(forced).arguments).keys() == {"path"}
    assert forced[-1] == StopPiece(StopReason.TOOL_USE)
    for events in (words, forced, more):
        [usage] = [event.usage for event in events if isinstance(event, UsagePiece)]
        assert usage.context > 20
        assert usage.output > 5
