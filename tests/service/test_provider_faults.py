"""Whatever becomes of a provider's answer on its way: a run ends, no tool runs twice, the session is of use after it.

Between Yarrow and a strict server of each format is a proxy that breaks answers. Seeds say which answers, where and
how; one test per format resets the connection at every boundary of chunks there is.
"""

import asyncio
import json
import random
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from grpc import aio
from msgspec.structs import replace

from doubles import chat_server, gemini_server, messages_server, ollama_server
from doubles.chat_server import ChatServer, Reply
from doubles.fault_proxy import FAULTS, Fault, FaultProxy
from doubles.gemini_server import GeminiServer
from doubles.house import House, kinds, reason_of, stub_of
from doubles.messages_server import MessagesServer
from doubles.ollama_server import OllamaServer
from doubles.received import check_stream
from doubles.soak import seeds
from yarrow.config.settings import ProviderSettings, RetrySettings, Settings
from yarrow.service.provider_cache import ProviderCache
from yarrow.service.servicer import Servicer
from yarrow.v1 import agent_pb2 as pb

WORDS = ("I did ", "what ", "you asked ", "me to ", "do.")
"""Text of a complete answer, piece by piece."""
SILENCE = 0.25
"""Seconds that a server may be silent."""
DEADLINE = 20.0
"""Seconds that a run may take with every silence there can be, on a machine that is busy."""
RETRIES = RetrySettings(attempts=3, base_delay=2.0)  # the waiting itself takes no time here
PASSING = {
    "STREAM_TRUNCATED", "STREAM_STALLED", "MALFORMED_RESPONSE", "MALFORMED_TOOL_CALL", "UNREACHABLE", "SERVER_ERROR",
    "OVERLOADED", "RATE_LIMIT", "EMPTY_RESPONSE",
}  # fmt: skip
"""Errors that a broken answer may become."""
MENDED = ("reset", "end", "cut", "stall", "storm")
"""Faults after which the same call is tried again; what is unreadable may be taken for an answer that is."""


class Format(NamedTuple):
    """A server, and what it says: that it is done, or that it wants a tool run."""

    server: Callable[[], ChatServer]
    says: Callable[[], Reply]
    calls: Callable[[str], Reply]


def chat_calls(text: str) -> Reply:
    call = {"index": 0, "id": f"call_{text}", "type": "function", "function": {"name": "act", "arguments": ""}}
    rest = [{"index": 0, "function": {"arguments": part}} for part in ('{"te', f'xt": "{text}"}}')]
    pieces = [{"content": "I act."}, *({"tool_calls": [one]} for one in (call, *rest))]
    return Reply([*map(chat_server.chunk, pieces), chat_server.finish("tool_calls"), chat_server.DONE])


def chat_says() -> Reply:
    said = [chat_server.chunk({"content": words}) for words in WORDS]
    return Reply([*said, chat_server.finish("stop"), chat_server.DONE])


def messages_calls(text: str) -> Reply:
    call = messages_server.call(1, f"toolu_{text}", "act", '{"te', f'xt": "{text}"}}')
    said = [messages_server.start(), messages_server.text(0, "I ", "act."), call, messages_server.end("tool_use")]
    return Reply(said)


def messages_says() -> Reply:
    return Reply([messages_server.start(), messages_server.text(0, *WORDS), messages_server.end()])


def ollama_calls(text: str) -> Reply:
    call = ollama_server.call("act", {"text": text})
    return ollama_server.answer(
        ollama_server.said("I "), ollama_server.said("act."), ollama_server.said("", tool_calls=[call]),
        ollama_server.done(),
    )  # fmt: skip


def ollama_says() -> Reply:
    return ollama_server.answer(*map(ollama_server.said, WORDS), ollama_server.done())


def gemini_calls(text: str) -> Reply:
    said = [gemini_server.chunk(gemini_server.text(words)) for words in ("I ", "act.")]
    call = gemini_server.call("act", {"text": text})
    return Reply([*said, gemini_server.chunk(call, finish="STOP")])


def gemini_says() -> Reply:
    *said, last = (gemini_server.text(words) for words in WORDS)
    return Reply([*map(gemini_server.chunk, said), gemini_server.chunk(last, finish="STOP")])


FORMATS = {
    "openai": Format(ChatServer, chat_says, chat_calls),
    "llamacpp": Format(ChatServer, chat_says, chat_calls),
    "messages": Format(MessagesServer, messages_says, messages_calls),
    "ollama": Format(OllamaServer, ollama_says, ollama_calls),
    "gemini": Format(GeminiServer, gemini_says, gemini_calls),
}


class Scene(NamedTuple):
    """A service whose provider is behind the proxy."""

    stub: Any
    house: House
    proxy: FaultProxy

    async def ask(self, number: int) -> pb.AgentEnd:
        """Give prompt `number`; its run is looked at and its end is returned."""
        async with asyncio.timeout(DEADLINE):
            request = self.house.prompt(f"go {number}.", "s")
            events = [response.event async for response in self.stub.Prompt(request)]
        check_stream(events)
        assert kinds(events)[-1] == "agent_end"
        end = events[-1].agent_end
        assert len(set(self.house.act.ran)) == len(self.house.act.ran), "a tool ran twice"
        if end.reason == pb.END_REASON_COMPLETED:
            last = max(at for at, kind in enumerate(kinds(events)) if kind == "message_start")
            assert "".join(event.text_delta.text for event in events[last:]) == "".join(WORDS), (
                "half an answer is an answer"
            )
            assert self.house.act.ran.count(f"{number}x") == 1
        return end


@asynccontextmanager
async def scene(folder: Path, kind: str) -> AsyncGenerator[Scene]:
    chosen = FORMATS[kind]
    async with chosen.server() as server:

        def asked(body: bytes) -> None:
            """Have the server say what follows from the request, however often it is made."""
            prompt = re.findall(rb"go (\d+)\.", body)[-1].decode()
            reply = chosen.says() if f"did {prompt}x".encode() in body else chosen.calls(f"{prompt}x")
            server.replies = [split(reply)]

        async with FaultProxy(server.root, asked=asked) as proxy:
            house = House(folder, [])
            provider = ProviderSettings(kind, base_url=proxy.root, first_byte_timeout=SILENCE, idle_timeout=SILENCE)
            settings = Settings(provider="p", model="m", providers={"p": provider}, retry=RETRIES)
            house.parts = replace(house.parts, settings=settings, providers=ProviderCache(settings, {}))
            house.servicer = Servicer(house.parts)
            async with stub_of(house) as stub:
                yield Scene(stub, house, proxy)


def split(reply: Reply) -> Reply:
    """The reply with each of its events in a chunk of its own."""
    whole = b"".join(piece for piece in reply.pieces if isinstance(piece, bytes))
    end = b"\r\n\r\n" if b"\r\n\r\n" in whole else b"\n\n" if b"\n\n" in whole else b"\n"
    return reply._replace(pieces=[part + end for part in whole.split(end) if part])


def broken(dice: random.Random) -> dict[int, Fault]:
    """Up to five answers of the first seven, each broken somehow."""
    if dice.random() < 0.1:
        return {number: Fault("storm") for number in range(dice.randint(1, 6))}
    numbers = dice.sample(range(7), dice.randint(1, 5))
    return {number: Fault(dice.choice(FAULTS), dice.randint(-1, 7)) for number in numbers}


@pytest.mark.parametrize("seed", seeds(40))
@pytest.mark.parametrize("kind", FORMATS)
async def test_a_broken_answer_ends_in_an_answer_or_in_an_error(tmp_path: Path, kind: str, seed: int) -> None:
    async with scene(tmp_path, kind) as played:
        played.proxy.faults = broken(random.Random(f"{kind} {seed}"))
        for number in range(2):
            end = await played.ask(number)
            assert end.reason == pb.END_REASON_COMPLETED or end.error.code in PASSING, end
        played.proxy.faults = {}
        end = await played.ask(2)
        assert end.reason == pb.END_REASON_COMPLETED, end
        assert played.house.act.ran.count("2x") == 1


@pytest.mark.parametrize("kind", FORMATS)
async def test_a_connection_reset_at_any_boundary_is_retried(tmp_path: Path, kind: str) -> None:
    happened, number = 0, 0
    async with scene(tmp_path, kind) as played:
        for question in range(2):
            for after in range(-1, 99):
                played.proxy.faults = {played.proxy.questions + question: Fault("reset", after)}
                end = await played.ask(number)
                number += 1
                assert end.reason == pb.END_REASON_COMPLETED, (question, after, end)
                if len(played.proxy.happened) == happened:
                    break  # the answer has no such boundary
                happened += 1
        assert played.house.act.ran == [f"{one}x" for one in range(number)]
    assert happened >= 8


@pytest.mark.parametrize("fault", MENDED)
@pytest.mark.parametrize("kind", FORMATS)
async def test_three_faults_in_a_row_are_retried_and_a_fourth_fails(tmp_path: Path, kind: str, fault: Any) -> None:
    async with scene(tmp_path, kind) as played:
        played.proxy.faults = {number: Fault(fault, 0) for number in range(3)}
        assert (await played.ask(0)).reason == pb.END_REASON_COMPLETED
        assert played.proxy.questions == 5
        played.proxy.faults = {number: Fault(fault, 0) for number in range(5, 9)}
        end = await played.ask(1)
        assert end.error.code in PASSING
        assert played.house.act.ran == ["0x"]
    assert json.dumps([one.kind for one in played.proxy.happened]).count(fault) == 7


@pytest.mark.parametrize("fault", ["reset", "end", "cut", "short", "garbage", "noise", "storm"])
@pytest.mark.parametrize("kind", [name for name in FORMATS if name != "openai"])  # which is asked nothing
async def test_model_details_may_become_available_later(tmp_path: Path, kind: str, fault: Any) -> None:
    async with scene(tmp_path, kind) as played:
        played.proxy.aside = Fault(fault)
        try:
            end = await played.ask(0)
        except aio.AioRpcError as error:
            assert reason_of(error) in PASSING  # noqa: PT017 (a run need not begin)
        else:
            assert end.reason == pb.END_REASON_COMPLETED
        assert played.proxy.happened
        played.proxy.aside = None
        assert (await played.ask(1)).reason == pb.END_REASON_COMPLETED
