"""Tools of extensions through the registry: offered, run, previewed, and every failure reported to the model."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

import pytest
from extending import CONTEXT, Say, Shout, called, extended, tool_of

from doubles.permits import permit_all
from yarrow.agent.hooks import Contributions
from yarrow.extension import extension_host
from yarrow.extension.api import Yarrow
from yarrow.message import Image, ToolCall
from yarrow.tool.base import Done, Progress, Result, ToolContext, ToolFailed
from yarrow.tool.registry import ToolRegistry


def offers(tool: Any) -> Callable[[Yarrow], None]:
    return lambda yarrow: yarrow.tool(tool)


def running(added: Contributions) -> AsyncGenerator[Progress | Result]:
    return ToolRegistry(added.tools).execute(ToolCall("1", "shout"), CONTEXT, authorize=permit_all, dry_run=False)


async def test_a_tool_runs_in_the_extensions_thread() -> None:
    threads: list[str] = []

    async def run(arguments: Say, context: ToolContext) -> AsyncGenerator[Any]:
        threads.append(threading.current_thread().name)
        yield Done(f"{arguments.text} in {context.cwd}", images=(Image("image/png", "AA=="),))

    async with extended(offers(tool_of(run))) as added:
        assert await called(added) == Done("hi in /", images=(Image("image/png", "AA=="),))
    (thread,) = threads
    assert thread.startswith("extension ")


async def test_the_model_is_offered_what_was_registered() -> None:
    tool = Shout()
    async with extended(offers(tool)) as added:
        tool.name = "other"
        (offered,) = added.tools
        assert (offered.name, offered.read_only, offered.arguments) == ("shout", False, Say)
        assert getattr(offered, "description", "") == "Says it louder."


async def test_output_beyond_the_buffer_arrives_completely_and_in_order() -> None:
    count = 3 * extension_host.MAX_BUFFER_ITEMS + 1

    async def run(*_: Any) -> AsyncGenerator[Any]:
        for number in range(count):
            yield Progress(str(number))
        yield Done("end")

    async with extended(offers(tool_of(run))) as added, aclosing(running(added)) as pieces:
        got = [piece.text async for piece in pieces]
    assert got == [*map(str, range(count)), "end"]


async def test_a_tool_waits_for_its_reader() -> None:
    yielded = 0

    async def run(*_: Any) -> AsyncGenerator[Any]:
        nonlocal yielded
        while True:
            yielded += 1
            yield Progress("x")

    async def turn(text: str, _: str) -> str:
        return text

    def extension(yarrow: Yarrow) -> None:
        yarrow.tool(tool_of(run))
        yarrow.command("turn", turn)

    async with extended(extension) as added, aclosing(running(added)) as pieces:
        for _ in range(10):
            await anext(pieces)
        # Each takes the thread's loop round once: the tool had every chance to go on.
        for _ in range(10):
            await added.commands[0].expand("", "/")
        assert 10 < yielded <= 10 + extension_host.MAX_BUFFER_ITEMS + 1


async def test_a_dry_run_shows_name_and_arguments_without_a_preview() -> None:
    async with extended(offers(Shout())) as added:
        result = await called(added, dry_run=True)
    assert result == Done('Dry run: nothing was changed. Would run shout with {"text":"hi"}.')


async def test_a_dry_run_calls_the_preview_of_the_tool() -> None:
    async def preview(_self: Any, arguments: Say, _context: ToolContext) -> Result:
        return Done(f"would shout {arguments.text}", diff="+HI\n")

    async def nonsense(_self: Any, _arguments: Say, _context: ToolContext) -> Any:
        return "HI"

    async with extended(offers(tool_of(Shout().run, preview=preview))) as added:
        assert await called(added, dry_run=True) == Done("Dry run: nothing was changed. would shout hi", "+HI\n")
    async with extended(offers(tool_of(Shout().run, preview=nonsense))) as added:
        assert "str is not one of Done, ToolFailed" in (await called(added, dry_run=True)).text


@pytest.mark.parametrize(
    ("item", "told"),
    [
        ("text", "str is not one of Progress, Done, ToolFailed"),
        (None, "NoneType is not one of"),
        (Progress(5), "Progress: Expected `str`, got `int`"),  # pyright: ignore[reportArgumentType]
        (Done(b"x"), "Done: Expected `str`, got `bytes`"),  # pyright: ignore[reportArgumentType]
        (Done("x", images=("x",)), "Done: Expected `object`, got `str`"),  # pyright: ignore[reportArgumentType]
        (ToolFailed(object()), "ToolFailed: "),  # pyright: ignore[reportArgumentType]
        (ValueError("bad"), "ValueError: bad"),
        (SystemExit("out"), "SystemExit: out"),
    ],
)
async def test_invalid_output_and_exceptions_fail_the_call(item: Any, told: str) -> None:
    async def run(*_: Any) -> AsyncGenerator[Any]:
        yield Progress("begun")
        if isinstance(item, BaseException):
            raise item
        yield item

    async with extended(offers(tool_of(run))) as added:
        result = await called(added)
    assert isinstance(result, ToolFailed)
    assert result.text.startswith("The tool shout failed: ")
    assert told in result.text
    assert result.text.endswith("Try another way.")


async def test_a_tool_without_a_result_or_with_output_after_it_is_an_error() -> None:
    async def nothing(*_: Any) -> AsyncGenerator[Any]:
        yield Progress("begun")

    async def more(*_: Any) -> AsyncGenerator[Any]:
        yield Done("end")
        yield Done("end")

    async with extended(offers(tool_of(nothing)), offers(tool_of(more, name="more"))) as added:
        assert "without a result" in (await called(added)).text
        assert "continued after its result" in (await called(added, "more")).text


async def test_a_huge_result_is_truncated() -> None:
    async def run(*_: Any) -> AsyncGenerator[Any]:
        yield Progress("x" * 50_000_000)
        yield Done("x" * 50_000_000)

    async with extended(offers(tool_of(run))) as added:
        assert len((await called(added)).text) < 60_000


async def test_closing_a_call_cleans_up_in_the_tool_first() -> None:
    cleaned = False

    async def run(*_: Any) -> AsyncGenerator[Any]:
        nonlocal cleaned
        try:
            yield Progress("begun")
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            cleaned = True

    async with extended(offers(tool_of(run))) as added:
        async with aclosing(running(added)) as pieces:
            assert await anext(pieces) == Progress("begun")
        assert cleaned


async def test_closing_a_blocking_call_abandons_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extension_host, "MAX_CLOSE_SECONDS", 0.05)
    monkeypatch.setattr(extension_host, "MAX_REACTION_SECONDS", 0.0)
    gate = threading.Event()

    async def run(*_: Any) -> AsyncGenerator[Any]:
        yield Progress("begun")
        gate.wait(60)
        yield Done("late")

    async with extended(offers(tool_of(run))) as added:
        async with aclosing(running(added)) as pieces:
            await anext(pieces)
        assert "is stuck" in (await called(added)).text
        gate.set()
        monkeypatch.setattr(extension_host, "MAX_CLOSE_SECONDS", 10)


async def test_the_generator_runs_in_one_task() -> None:
    async def run(*_: Any) -> AsyncGenerator[Any]:
        async with asyncio.timeout(60):  # it may be left only in the task that entered it
            yield Progress("within")
            yield Done("done")

    async with extended(offers(tool_of(run))) as added:
        assert await called(added) == Done("done")
