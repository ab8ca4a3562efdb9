"""The reason why a provider was detected is one line on standard error; a model is chosen if only one is listed."""

import pytest

from doubles.chat_server import ChatServer, page
from doubles.chat_server import says as chat_says
from doubles.ollama_server import OllamaServer, says
from doubles.world import World


async def test_a_detected_provider_is_reported_with_its_address(world: World) -> None:
    async with OllamaServer([says("ok"), says("ok")]) as server:
        server.pages["/v1/models"] = page({"data": [{"id": "m"}]})
        world.environment["OLLAMA_HOST"] = server.root.removeprefix("http://")
        found = await world.run("hi")
        named = await world.run("-m", "ollama/m", "hi")
    assert (found.code, found.out, found.err) == (
        0,
        "ok\n",
        f"yarrow: using ollama/m: Ollama answers at {server.root}\n",
    )
    assert (named.code, named.out, named.err) == (0, "ok\n", "")


async def test_the_address_of_a_compatible_server_is_enough(world: World) -> None:
    async with ChatServer([chat_says("ok")]) as server:
        ended = await world.run("-m", "m", "hi", env={"OPENAI_BASE_URL": f"{server.root}/v1"})
    assert (ended.code, ended.out) == (0, "ok\n")
    assert ended.err == "yarrow: using openai/m: OPENAI_BASE_URL is set\n"


@pytest.mark.parametrize("listed", [["qwen"], ["qwen", "nomic-embed-text"]])
async def test_the_only_chat_model_of_a_compatible_server_is_used(world: World, listed: list[str]) -> None:
    async with ChatServer([chat_says("ok")]) as server:
        server.pages["/v1/models"] = page({"data": [{"id": name} for name in listed]})
        env = {"OPENAI_BASE_URL": f"{server.root}/v1", "OPENAI_API_KEY": "k"}
        ended = await world.run("hi", env=env)
    assert (ended.code, ended.out) == (0, "ok\n"), ended.err
    assert ended.err == "yarrow: using openai/qwen: OPENAI_API_KEY is set\n"
    assert [body["model"] for body in server.prompts] == ["qwen"]


@pytest.mark.parametrize(
    ("count", "named"),
    [(0, "--list-models shows them"), (2, "lists m0, m1)"), (7, "lists m0, m1, m2, m3, m4, ...)")],
)
async def test_without_an_obvious_model_some_are_named(world: World, count: int, named: str) -> None:
    async with ChatServer([]) as server:
        server.pages["/v1/models"] = page({"data": [{"id": f"m{number}"} for number in range(count)]})
        ended = await world.run("hi", env={"OPENAI_BASE_URL": f"{server.root}/v1"})
    assert (ended.code, ended.out) == (3, "")
    assert "openai needs a model: use -m" in ended.err
    assert named in ended.err


async def test_a_single_configured_provider_needs_no_reason(world: World) -> None:
    async with OllamaServer([says("ok")]) as server:
        world.configure({"model": "m", "providers": {"box": {"type": "ollama", "baseUrl": server.root}}})
        ended = await world.run("hi")
    assert (ended.code, ended.out, ended.err) == (0, "ok\n", "")
