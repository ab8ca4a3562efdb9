"""Statistics of a session in the terminal UI: the reason of the provider, and the cost."""

import re

from doubles.chat_server import DONE, Reply, chunk, finish, page, usage
from doubles.ollama_server import OllamaServer
from doubles.ollama_server import says as ollama_says
from doubles.opened import opened
from doubles.screen import Screen
from doubles.world import World

SIZE = (100, 30)


def costly(text: str) -> Reply:
    """An answer of a million tokens in and half a million out."""
    return Reply(
        [chunk({"role": "assistant", "content": text}), finish("stop"), usage(1_000_000, 500_000), DONE],
    )


async def test_the_reason_of_the_provider_is_shown_at_start_and_in_statistics(world: World) -> None:
    async with OllamaServer([ollama_says("ok")]) as server:
        server.pages["/v1/models"] = page({"data": [{"id": "m"}]})
        world.environment["OLLAMA_HOST"] = server.root.removeprefix("http://")
        reason = f"Ollama answers at {server.root}"
        async with Screen(world) as screen:
            await screen.ready()
            await screen.until(reason)
            screen.send("/stats\r")
            await screen.until(lambda _: re.search(rf"^provider +{re.escape(reason)}$", screen.text, re.MULTILINE))


async def test_the_cost_is_shown_by_configured_prices(world: World) -> None:
    settings = {"prices": {"m": {"input": 0.25, "output": 1.5}}}
    async with opened(world, costly("first"), costly("second"), settings=settings, size=SIZE) as (screen, _):
        assert "$" not in screen.text
        screen.send("one\r")
        await screen.until(lambda _: re.search(r"^ready .* \$1\.00", screen.text, re.MULTILINE))
        screen.send("two\r")
        await screen.until(lambda _: re.search(r"^ready .* \$2\.00", screen.text, re.MULTILINE))
        screen.send("/stats\r")
        await screen.until(lambda _: re.search(r"^cost +\$2\.00$", screen.text, re.MULTILINE))
        assert re.search(r"^model +m: 2 requests, 2,000,000 in, 1,000,000 out, \$2\.00$", screen.text, re.MULTILINE)


async def test_without_a_price_no_cost_is_shown(world: World) -> None:
    settings = {"prices": {"another": {"input": 1}}}
    async with opened(world, costly("first"), settings=settings, size=SIZE) as (screen, _):
        screen.send("one\r")
        await screen.until("first")
        await screen.until("ready")
        screen.send("/stats\r")
        await screen.until("1,000,000 in")
        assert "$" not in screen.text
        assert not re.search(r"^cost", screen.text, re.MULTILINE)
