"""Output about model calls that fail, pause or are truncated, over real HTTP."""

import re
import socket
from typing import Any

import pytest

from doubles import messages_server as messages
from doubles.chat_server import ChatServer, Reply, page, says
from doubles.messages_server import MessagesServer
from doubles.ollama_server import OllamaServer, answer, done, said
from doubles.world import World
from yarrow.message import Message

QUICK = {"retry": {"baseDelay": 0.01}}
PAUSED = Reply([messages.start(), messages.text(0, "I search"), messages.end("pause_turn")])


def serve_messages(world: World, root: str, **more: Any) -> None:
    provider = {"type": "messages", "baseUrl": root}
    world.configure({"provider": "mock", "model": "m", "providers": {"mock": provider}, **QUICK} | more)


def of_kind(lines: list[dict[str, Any]], kind: str) -> list[Any]:
    return [line[kind] for line in lines if kind in line]


def said_in(world: World) -> list[tuple[str, bool]]:
    return [(one.text, one.incomplete) for one in world.records() if isinstance(one, Message)]


@pytest.mark.parametrize("mode", [[], ["--json"]])
async def test_case_P_24_an_overloaded_server_is_waited_for(world: World, mode: list[str]) -> None:
    busy = page({"error": {"message": "busy"}}, 529, {"retry-after-ms": "30"})
    async with ChatServer([busy, busy, says("fine")]) as server:
        world.serve_by(server.root, **QUICK)
        ended = await world.run(*mode, "-p", "x")
    assert ended.code == 0, ended.err
    if mode:
        told = of_kind(ended.lines, "retryScheduled")
        assert [(one["attempt"], one["code"]) for one in told] == [(2, "OVERLOADED"), (3, "OVERLOADED")]
        assert all(0.03 <= one["delay"] < 0.04 for one in told)
    else:
        assert ended.out == "fine\n"
        assert ended.err.count("Overloaded, retrying in") == 2
    assert said_in(world) == [("x", False), ("fine", False)]


async def test_case_P_24_a_requested_delay_of_a_day_is_not_waited_for(world: World) -> None:
    async with ChatServer([page({"error": {"message": "slow down"}}, 429, {"retry-after": "86400"})]) as server:
        world.serve_by(server.root)
        ended = await world.run("-p", "x")
    assert ended.code == 3
    assert "86,400 s" in ended.err
    assert len(server.prompts) == 1


async def test_case_P_08_an_overload_inside_a_stream_is_retried(world: World) -> None:
    overloaded = messages.sse("error", error={"type": "overloaded_error", "message": "Overloaded"})
    cut = Reply([messages.start(), messages.text(0, "Part"), overloaded])
    async with MessagesServer([cut, messages.says("Whole")]) as server:
        serve_messages(world, server.root)
        ended = await world.run("-p", "x")
    assert ended.code == 0, ended.err
    assert said_in(world) == [("x", False), ("Part", True), ("Whole", False)]
    assert [message["role"] for message in server.prompts[1]["messages"]] == ["user"]


async def test_case_P_10_a_truncated_stream_is_retried(world: World) -> None:
    cut = Reply([messages.start(), messages.text(0, "The answer is")], whole=False)
    async with MessagesServer([cut, messages.says("42")]) as server:
        serve_messages(world, server.root)
        ended = await world.run("-p", "x")
    assert ended.code == 0, ended.err
    assert "Stream truncated, retrying" in ended.err
    assert said_in(world) == [("x", False), ("The answer is", True), ("42", False)]


async def test_case_P_26_a_paused_turn_continues(world: World) -> None:
    async with MessagesServer([PAUSED, messages.says("found")]) as server:
        serve_messages(world, server.root)
        ended = await world.run("-p", "x")
    assert ended.code == 0, ended.err
    paused = server.prompts[1]["messages"][1]
    assert (paused["role"], [block["text"] for block in paused["content"]]) == ("assistant", ["I search"])
    assert said_in(world) == [("x", False), ("I search", False), ("found", False)]


async def test_case_P_26_endless_pauses(world: World) -> None:
    async with MessagesServer([PAUSED] * 30) as server:
        serve_messages(world, server.root)
        ended = await world.run("-p", "x")
    assert ended.code == 4, ended.err
    assert "paused 9 times in a row" in ended.err
    assert len(server.prompts) == 9


@pytest.mark.parametrize("mode", [[], ["--json"]])
async def test_case_P_13_a_prompt_truncated_by_the_server_is_reported(world: World, mode: list[str]) -> None:
    cut = answer(said("fine"), done(prompt_eval_count=2051, eval_count=2))
    async with OllamaServer([cut]) as server:
        mock = {"type": "ollama", "baseUrl": server.root, "contextWindow": 65536}
        world.configure({"provider": "mock", "model": "m", "providers": {"mock": mock}})
        ended = await world.run(*mode, "-p", "word " * 20_000)
    assert ended.code == 0, ended.err
    if mode:
        [notice] = of_kind(ended.lines, "notice")
        assert notice["code"] == "PROMPT_CUT"
        assert "reports 2051" in notice["text"]
    else:
        assert ended.out == "fine\n"
        assert "reports 2051: the server may have truncated" in ended.err


async def test_an_unreachable_server_is_reported_quickly(world: World) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    world.serve_by(f"http://{address}", retry={"baseDelay": 20})
    ended = await world.run("-p", "x")
    assert ended.code == 3
    why = f"cannot connect to {address}: connection refused"
    assert re.findall(r"Unreachable, retrying in 0\.[34]s: (.*)", ended.err) == [why] * 3
