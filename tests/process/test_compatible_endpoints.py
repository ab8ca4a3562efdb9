"""Several endpoints in one configuration, each with its own address, key and headers; and what models each has."""

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from doubles.chat_server import ChatServer, page, says
from doubles.gemini_server import GeminiServer
from doubles.messages_server import MessagesServer
from doubles.ollama_server import OllamaServer
from doubles.world import World
from yarrow.agent.hooks import no_contributions
from yarrow.cli.bootstrap import build_service
from yarrow.config.settings import ProviderSettings, ProviderType, Settings
from yarrow.service.rpc_middleware import register_service
from yarrow.v1 import agent_pb2 as pb
from yarrow.v1.agent_pb2_grpc import AgentServiceStub
from yarrow.wire.channel import InMemoryChannel, Registrar

# -- side by side ------------------------------------------------------------------------------------------------------


async def test_each_endpoint_has_its_own_key_and_headers(world: World) -> None:
    async with AsyncExitStack() as opened:
        a = await opened.enter_async_context(ChatServer([says("I am a")] * 3, key="key-of-a"))
        b = await opened.enter_async_context(ChatServer([says("I am b")] * 3, key="key-of-b"))
        providers = {
            "a": {"type": "openai", "baseUrl": f"{a.root}/v1", "apiKeyEnv": "A_KEY", "headers": {"X-Team": "a"}},
            "b": {"type": "openai", "baseUrl": b.root, "apiKeyCommand": "echo key-of-b"},
        }
        world.configure({"provider": "a", "model": "x", "providers": providers})
        env = {"A_KEY": "key-of-a", "OPENAI_API_KEY": "the-vendors", "OPENAI_BASE_URL": a.root}
        for model, answer in (("a/x", "I am a"), ("b/y:high", "I am b"), ("b/vendor/z", "I am b"), ("w", "I am a")):
            ended = await world.run("-m", model, "who are you?", env=env)
            assert (ended.code, ended.out) == (0, f"{answer}\n"), ended.err
    assert [(body["model"], body.get("reasoning_effort")) for body in a.prompts] == [("x", None), ("w", None)]
    assert [(body["model"], body.get("reasoning_effort")) for body in b.prompts] == [("y", "high"), ("vendor/z", None)]
    assert {asked.headers["authorization"] for asked in a.received} == {"Bearer key-of-a"}
    assert {asked.headers["authorization"] for asked in b.received} == {"Bearer key-of-b"}
    assert {asked.headers.get("x-team") for asked in a.received} == {"a"}
    assert {asked.headers.get("x-team") for asked in b.received} == {None}


async def test_a_session_can_continue_at_another_endpoint(world: World) -> None:
    """The session is known at both endpoints, and no credentials of the one are sent to the other."""
    async with ChatServer([says("blue")], key="key-of-a") as a, ChatServer([says("yes")]) as b:
        keyed = {"type": "openai", "baseUrl": a.root, "apiKeyEnv": "A_KEY", "headers": {"X-Team": "a"}}
        world.configure({"providers": {"a": keyed, "b": {"type": "openai", "baseUrl": b.root}}})
        env = {"A_KEY": "key-of-a"}
        assert (await world.run("-m", "a/x", "which colour?", env=env)).code == 0
        ended = await world.run("-m", "b/y", "-c", "really?", env=env)
        assert (ended.code, ended.out) == (0, "yes\n"), ended.err
    [asked] = b.received
    assert [message["content"] for message in asked.json["messages"][1:]] == ["which colour?", "blue", "really?"]
    assert asked.headers.keys().isdisjoint({"authorization", "x-team"})


async def test_a_failing_endpoint_is_named_and_no_other_is_tried(world: World) -> None:
    async with ChatServer(key="right") as a, ChatServer([says("no")]) as b:
        one, other = ({"type": "openai", "baseUrl": server.root} for server in (a, b))
        world.configure({"providers": {"a": one, "b": other}})
        ended = await world.run("-m", "a/x", "hi")
    assert ended.code == 3
    assert "a requires an API key" in ended.err
    assert b.received == []


# -- which models there are --------------------------------------------------------------------------------------------

GEMINI: dict[str, Any] = {
    "name": "gemini",
    "provider": "gemini-style",
    "responses": {
        "GET /v1beta/models?pageSize=1000": {
            "models": [
                {"name": "models/g", "inputTokenLimit": 1048576, "supportedGenerationMethods": ["generateContent"]},
                {"name": "models/e", "inputTokenLimit": 2048, "supportedGenerationMethods": ["embedContent"]},
            ]
        }
    },
    "expected_models": ["g"],
    "expected_context_window": {"g": 1048576},
}
LISTS: list[dict[str, Any]] = [
    *json.loads((Path(__file__).parents[1] / "fixtures/wire/model-lists.json").read_text("utf-8")),
    GEMINI,
]
DOUBLES: dict[ProviderType, type[ChatServer]] = {
    "openai": ChatServer,
    "llamacpp": ChatServer,
    "messages": MessagesServer,
    "ollama": OllamaServer,
    "gemini": GeminiServer,
}
KEY = "key-of-the-lists"


@asynccontextmanager
async def endpoint(case: dict[str, Any]) -> AsyncGenerator[tuple[ChatServer, ProviderType]]:
    """A double that answers as the case has it, and the type of provider that it is for."""
    kind: ProviderType = case["provider"].removesuffix("-style")
    async with DOUBLES[kind](key=KEY) as server:
        gets = {path.removeprefix("GET "): page(told) for path, told in case["responses"].items() if "GET" in path}
        server.pages = gets
        if isinstance(server, OllamaServer):
            names: list[str] = case["expected_models"]
            details: dict[str, Any] = case["responses"]["POST /api/show"]
            server.models = dict.fromkeys(names, details)
        yield server, kind


def expected(case: dict[str, Any]) -> list[tuple[str, int]]:
    """Names and windows."""
    return [(name, case["expected_context_window"].get(name, 0)) for name in case["expected_models"]]


@pytest.mark.parametrize("case", LISTS, ids=lambda case: case["name"])
async def test_the_models_of_an_endpoint(case: dict[str, Any]) -> None:
    async with endpoint(case) as (server, kind):
        there = ProviderSettings(type=kind, base_url=server.root, api_key_env="K")
        servicer = build_service(Settings(providers={"there": there}), {"K": KEY}, no_contributions())
        registrar = Registrar()
        register_service(servicer.handlers, registrar)
        async with InMemoryChannel(registrar) as channel:
            listed = await AgentServiceStub(channel).ListModels(pb.ListModelsRequest(provider="there"))
        await servicer.close()
    assert listed.provider == "there"
    assert [(model.name, model.context_window) for model in listed.models] == expected(case)


ONE_OF_EACH = {case["provider"]: case for case in LISTS}.values()


@pytest.mark.parametrize("case", ONE_OF_EACH, ids=lambda case: case["name"])
async def test_the_models_on_the_command_line(case: dict[str, Any], world: World) -> None:
    async with endpoint(case) as (server, kind):
        world.configure({"providers": {"there": {"type": kind, "baseUrl": server.root, "apiKeyEnv": "K"}}})
        env = {"K": KEY}
        plain = await world.run("--list-models", "--provider", "there", env=env)
        lines = await world.run("--list-models", "--provider", "there", "--json", env=env)
    names = [name for name, _ in expected(case)]
    assert (plain.code, plain.out.splitlines()) == (0, names), plain.err
    told = [{"name": name, "contextWindow": window, "provider": "there"} for name, window in expected(case)]
    assert (lines.code, lines.lines) == (0, told), lines.err


async def test_a_model_is_listed_once_and_on_one_line(world: World) -> None:
    async with ChatServer() as server:
        names = ["one", "two\nthree", "one", "\x1b[2Jfour", "five"]
        server.pages = {"/v1/models": page({"data": [{"id": name} for name in names]})}
        world.configure({"providers": {"there": {"type": "openai", "baseUrl": server.root}}})
        ended = await world.run("--list-models", "--provider", "there")
    assert (ended.code, ended.out, ended.err) == (0, "one\nfive\n", "")


async def test_a_server_without_models_is_reported(world: World) -> None:
    async with ChatServer() as server:
        server.pages = {"/v1/models": page({"data": []})}
        world.configure({"providers": {"there": {"type": "openai", "baseUrl": server.root}}})
        ended = await world.run("--list-models", "--provider", "there")
    assert (ended.code, ended.out) == (0, "")
    assert ended.err == "yarrow: there lists no models: choose one with -m MODEL\n"


async def test_a_session_with_a_removed_provider_explains_how_to_continue(world: World) -> None:
    async with ChatServer([says("blue"), says("yes")]) as server:
        there = {"type": "openai", "baseUrl": server.root}
        world.configure({"providers": {"old": there}})
        assert (await world.run("-m", "old/x", "which colour?")).code == 0
        world.configure({"providers": {"other": there}})
        ended = await world.run("-c", "really?")
        assert ended.code == 3
        assert "unknown provider 'old': use one of " in ended.err
        assert "(-m ID/MODEL)" in ended.err
        assert (await world.run("-c", "-m", "other/x", "really?")).code == 0
