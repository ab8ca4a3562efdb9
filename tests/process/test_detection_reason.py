"""The reason why a provider was detected is one line on standard error."""

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


async def test_a_single_configured_provider_needs_no_reason(world: World) -> None:
    async with OllamaServer([says("ok")]) as server:
        world.configure({"model": "m", "providers": {"box": {"type": "ollama", "baseUrl": server.root}}})
        ended = await world.run("hi")
    assert (ended.code, ended.out, ended.err) == (0, "ok\n", "")
