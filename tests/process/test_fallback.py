"""Fallbacks through the command line: two servers, what is printed and recorded, and the exit code."""

import asyncio
import re
from typing import Any

import pytest

from doubles.chat_server import DONE, ChatServer, Reply, chunk, finish, page, says
from doubles.ollama_server import OllamaServer
from doubles.ollama_server import says as ollama_says
from doubles.screen import Screen
from doubles.world import UNASKED, Ended, World
from yarrow.message import Message, Role
from yarrow.session.record import Change

BUSY = page({"error": {"message": "busy"}}, 529)
CUT = Reply([chunk({"role": "assistant", "content": "half"}), chunk({"content": " of it"})], whole=False)
REFUSED = page({"error": {"message": "Invalid API Key", "type": "authentication_error"}}, 401)


def configure(world: World, *servers: ChatServer, **more: Any) -> None:
    """Configure a provider for each server, named a, b and so on; the first is selected, the others are fallbacks."""
    names = "abc"[: len(servers)]
    providers = {
        name: {"type": "ollama" if isinstance(server, OllamaServer) else "openai", "baseUrl": server.root}
        for name, server in zip(names, servers, strict=True)
    }
    fallback = [f"{name}/m" for name in names[1:]]
    quick = {"retry": {"baseDelay": 0.01, "attempts": 1}}
    chosen = {"provider": "a", "model": "m", "providers": providers, "fallback": fallback}
    world.configure(chosen | quick | UNASKED | more)


def of_kind(ended: Ended, kind: str) -> list[Any]:
    return [line[kind] for line in ended.lines if kind in line]


def answers(world: World) -> list[tuple[str, str, bool]]:
    messages = [one for one in world.records() if isinstance(one, Message) and one.role is Role.ASSISTANT]
    return [(one.provider, one.text, one.incomplete) for one in messages]


@pytest.mark.parametrize("mode", ["--plain", "--json"])
async def test_another_server_answers_if_the_first_is_overloaded(world: World, mode: str) -> None:
    async with ChatServer([BUSY, BUSY]) as first, ChatServer([says("fine")]) as second:
        configure(world, first, second)
        ended = await world.run(mode, "-p", "x")
        assert (len(first.prompts), len(second.prompts)) == (2, 1)
    assert ended.code == 0, ended.err
    if mode == "--json":
        change = {"provider": "b", "model": "m", "fromProvider": "a", "fromModel": "m", "code": "OVERLOADED"}
        assert of_kind(ended, "modelChanged") == [change]
        assert of_kind(ended, "agentEnd")[0]["reason"] == "END_REASON_COMPLETED"
    else:
        assert ended.out == "fine\n"
        assert "yarrow: Overloaded at a/m, continuing with b/m\n" in ended.err
    assert answers(world) == [("b", "fine", False)]
    assert not any(isinstance(record, Change) for record in world.records())


async def test_the_next_prompt_tries_the_first_choice_and_statistics_count_both(world: World) -> None:
    async with ChatServer([BUSY, BUSY, says("back")]) as first, ChatServer([says("fine")]) as second:
        configure(world, first, second, fallback=["b/other"])
        await world.run("-p", "x")
        ended = await world.run("-c", "-p", "y")
        assert (ended.code, ended.out) == (0, "back\n")
        assert [one["content"] for one in first.prompts[-1]["messages"][1:]] == ["x", "fine", "y"]
        stats = await world.run("-c", "/stats")
    assert sorted(re.findall(r"^ *model +(\w+): 1 request", stats.out, re.MULTILINE)) == ["m", "other"], stats.out
    assert [provider for provider, _, _ in answers(world)] == ["b", "a"]


async def test_a_message_cut_after_text_is_incomplete_and_not_sent(world: World) -> None:
    async with ChatServer([CUT, BUSY]) as first, ChatServer([says("whole")]) as second:
        configure(world, first, second)
        ended = await world.run("-p", "x")
        assert [one["role"] for one in second.prompts[0]["messages"]] == ["system", "user"]
    assert ended.code == 0, ended.err
    assert ended.out == "half of it\nwhole\n"
    assert answers(world) == [("a", "half of it", True), ("b", "whole", False)]


@pytest.mark.parametrize("mode", ["--plain", "--json"])
async def test_if_all_servers_fail_the_error_names_each(world: World, mode: str) -> None:
    broken = page({"error": {"message": "out of order"}}, 500)
    async with ChatServer([BUSY] * 2) as first, ChatServer([broken] * 2) as second, ChatServer([BUSY] * 2) as third:
        configure(world, first, second, third)
        ended = await world.run(mode, "-p", "x")
    assert ended.code == 3
    message = of_kind(ended, "agentEnd")[0]["error"]["message"] if mode == "--json" else ended.err.splitlines()[-1]
    for part in ("a/m: a", "busy", "; b/m: b", "out of order", "; c/m: c"):
        assert part in message
    assert answers(world) == []


async def test_an_unreachable_server_is_replaced(world: World) -> None:
    async with ChatServer([says("fine")]) as second:
        async with ChatServer() as first:
            configure(world, first, second)
        ended = await world.run("-p", "x")
    assert (ended.code, ended.out) == (0, "fine\n")
    assert "Unreachable at a/m, continuing with b/m" in ended.err


async def test_a_refused_key_is_not_replaced(world: World) -> None:
    async with ChatServer([REFUSED]) as first, ChatServer([says("never")]) as second:
        configure(world, first, second)
        ended = await world.run("-p", "x")
        assert second.received == []
    assert ended.code == 3
    assert "AUTH" in ended.err


async def test_a_fallback_without_a_key_is_skipped(world: World) -> None:
    async with ChatServer([BUSY] * 2) as first, ChatServer([says("fine")]) as second:
        configure(world, first, second, fallback=["openai/gpt-5", "b/m"])
        ended = await world.run("-p", "x")
    assert (ended.code, ended.out) == (0, "fine\n")
    assert "yarrow: skipped the fallback openai/gpt-5: openai needs a key: export OPENAI_API_KEY=..." in ended.err


async def test_the_flag_turns_fallbacks_off(world: World) -> None:
    async with ChatServer([BUSY] * 2) as first, ChatServer([says("never")]) as second:
        configure(world, first, second)
        ended = await world.run("--fallback", "none", "-p", "x")
        assert second.received == []
    assert ended.code == 3
    assert ended.err.splitlines()[-1].startswith("yarrow: OVERLOADED: a is overloaded")


async def test_the_fallback_itself_chosen_as_the_model_has_none(world: World) -> None:
    async with ChatServer([says("never")]) as first, ChatServer([BUSY] * 2) as second:
        configure(world, first, second)
        ended = await world.run("-m", "b/m", "-p", "x")
        assert (len(first.received), len(second.prompts)) == (0, 2)
    assert ended.code == 3
    assert "continuing with" not in ended.err


async def test_a_wrong_entry_is_an_error_at_the_start(world: World) -> None:
    async with ChatServer() as first:
        configure(world, first, fallback=["nope/m"])
        ended = await world.run("-p", "x")
        assert first.received == []
    assert ended.code == 2
    assert "fallback[0]: 'nope' in 'nope/m' is not a provider; the choices are a, anthropic" in ended.err


async def test_a_tool_call_of_the_first_model_is_history_for_the_other(world: World) -> None:
    called = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
    calls = Reply([chunk({"role": "assistant", "tool_calls": [called]}), finish("tool_calls"), DONE])
    async with ChatServer([calls, BUSY, BUSY]) as first, OllamaServer([ollama_says("fine")]) as second:
        configure(world, first, second)
        ended = await world.run("-p", "x")
        assert [one["role"] for one in second.prompts[0]["messages"]] == ["system", "user", "assistant", "tool"]
    assert (ended.code, ended.out) == (0, "fine\n")
    assert [provider for provider, _, _ in answers(world)] == ["a", "b"]


async def test_the_terminal_shows_the_change_and_the_model(world: World) -> None:
    gate = asyncio.Event()
    slow = Reply([chunk({"role": "assistant", "content": "from b"}), gate, finish("stop"), DONE])
    async with ChatServer([BUSY, BUSY]) as first, ChatServer([slow]) as second:
        configure(world, first, second, fallback=["b/other"])
        async with Screen(world) as screen:
            await screen.ready()
            screen.send("go\r")
            await screen.until("from b")
            await screen.until("Overloaded at a/m, continuing with b/other")
            await screen.until(lambda _: re.search(r"Thinking… \d+s . other", screen.text))
            gate.set()
            await screen.until(lambda _: re.search(r"^ready . m ", screen.text, re.MULTILINE))


async def test_a_stopped_server_that_is_asked_for_its_model_first_is_replaced(world: World) -> None:
    async with ChatServer([says("fine")]) as second:
        async with OllamaServer() as first:
            configure(world, first, second)
        ended = await world.run("-p", "x")
        assert (ended.code, ended.out) == (0, "fine\n"), ended.err
        assert "Unreachable at a/m, continuing with b/m" in ended.err
        second.replies = [says("again")]
        ended = await world.run("-c", "--json", "-p", "y")
        assert ended.code == 0
    assert (ended.lines[0]["provider"], ended.lines[0]["model"]) == ("a", "m")
    assert of_kind(ended, "modelChanged")[0]["code"] == "UNREACHABLE"


async def test_a_stopped_server_without_a_model_is_an_error(world: World) -> None:
    async with ChatServer([says("never")]) as second:
        async with OllamaServer() as first:
            configure(world, first, second, model="")
        ended = await world.run("-p", "x")
    assert ended.code == 3
    assert "cannot connect" in ended.err
