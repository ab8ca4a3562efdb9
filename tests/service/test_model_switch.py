"""A session goes from any backend to any other and back: each request is legal, and what is signed stays home."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from doubles import chat_server, gemini_server, messages_server, ollama_server
from doubles.chat_server import ChatServer, Reply
from doubles.gemini_server import GeminiServer
from doubles.house import House, play, stub_of
from doubles.messages_server import MessagesServer
from doubles.ollama_server import OllamaServer
from yarrow.config.settings import ProviderSettings, Settings
from yarrow.service.providers import Providers
from yarrow.service.servicer import Servicer
from yarrow.v1 import agent_pb2 as pb

SIGNATURE = "c2lnbmVkLWJ5LWl0cy1iYWNrZW5k"
ARGUMENTS = '{"text": "a \\u2028 <think> b"}'


class Backend(NamedTuple):
    server: Callable[[], ChatServer]
    says: Callable[[str], Reply]
    calls: Callable[[], Reply]
    signs: bool = False
    """Whether what it answers holds data that only it can read."""


def chat_calls() -> Reply:
    calls = [
        {
            "index": index,
            "id": f"call_{index}",
            "type": "function",
            "function": {"name": "echo", "arguments": ARGUMENTS},
        }
        for index in range(2)
    ]
    pieces = [{"reasoning_content": "hm"}, {"content": "I look."}, {"tool_calls": calls}]
    return Reply([*map(chat_server.chunk, pieces), chat_server.finish("tool_calls"), chat_server.DONE])


def messages_calls() -> Reply:
    pieces = [
        messages_server.start(),
        messages_server.thinking(0, "hm", signature=SIGNATURE),
        messages_server.text(1, "I look."),
        messages_server.call(2, "toolu_1", "echo", ARGUMENTS),
        messages_server.call(3, "toolu_2", "echo", ARGUMENTS),
        messages_server.end("tool_use"),
    ]
    return Reply(pieces)


def ollama_calls() -> Reply:
    calls = [ollama_server.call("echo", json.loads(ARGUMENTS)) for _ in range(2)]
    return ollama_server.answer(
        ollama_server.said("", thinking="hm"),
        ollama_server.said("I look."),
        ollama_server.said("", tool_calls=calls),
        ollama_server.done(prompt_eval_count=9, eval_count=2),
    )


def gemini_calls() -> Reply:
    arguments = json.loads(ARGUMENTS)
    parts = [
        gemini_server.text("I look."),
        gemini_server.call("echo", arguments, thoughtSignature=SIGNATURE),
        gemini_server.call("echo", arguments),
    ]
    return Reply([gemini_server.chunk(*parts, finish="STOP")])


BACKENDS = {
    "openai": Backend(ChatServer, chat_server.says, chat_calls),
    "llamacpp": Backend(ChatServer, chat_server.says, chat_calls),
    "messages": Backend(MessagesServer, messages_server.says, messages_calls, signs=True),
    "ollama": Backend(OllamaServer, ollama_server.says, ollama_calls),
    "gemini": Backend(GeminiServer, gemini_server.says, gemini_calls, signs=True),
}


class Two(NamedTuple):
    """A service with two backends, and a session of the first."""

    here: ChatServer
    there: ChatServer
    stub: Any
    house: House

    async def ask(self, text: str, session_id: str = "") -> str:
        events = await play(self.stub, self.house.prompt(text, session_id))
        end = events[-1].agent_end
        assert end.reason == pb.END_REASON_COMPLETED, end.error
        return events[0].session_id

    async def turn_to(self, provider: str, session_id: str) -> None:
        chosen = pb.SessionSettings(provider=provider, model="m")
        await self.stub.ConfigureSession(pb.ConfigureSessionRequest(session_id=session_id, settings=chosen))


@asynccontextmanager
async def two(folder: Path, here: str, there: str) -> AsyncGenerator[Two]:
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(BACKENDS[kind].server()) for kind in (here, there)]
        house = House(folder, [])
        providers = {
            name: ProviderSettings(kind, base_url=server.root)  # type: ignore[arg-type]
            for name, kind, server in zip(("here", "there"), (here, there), servers, strict=True)
        }
        chosen = Settings(provider="here", model="m", providers=providers)
        house.parts = replace(house.parts, settings=chosen, providers=Providers(chosen, {}))
        house.servicer = Servicer(house.parts)
        stub = await stack.enter_async_context(stub_of(house))
        yield Two(servers[0], servers[1], stub, house)


@pytest.mark.parametrize(("here", "there"), list(permutations(BACKENDS, 2)), ids="-".join)
async def test_law_1_holds_when_the_model_is_switched_and_switched_back(tmp_path: Path, here: str, there: str) -> None:
    first, second = BACKENDS[here], BACKENDS[there]
    async with two(tmp_path, here, there) as both:
        both.here.replies = [first.calls(), first.says("done"), first.calls(), first.says("done again")]
        both.there.replies = [second.calls(), second.says("and here")]
        session_id = await both.ask("begin")
        await both.turn_to("there", session_id)
        await both.ask("go on there", session_id)
        await both.turn_to("here", session_id)
        await both.ask("and back", session_id)
        # The strict servers refuse what their backends would; so all of it was legal. Nothing was asked twice.
        assert (len(both.here.prompts), len(both.there.prompts)) == (4, 2)
        theirs = [json.dumps(body) for body in both.there.prompts]
        ours = [json.dumps(body) for body in both.here.prompts]
        assert "I look." in theirs[0]
        assert "done" in theirs[0]
        if first.signs:
            assert SIGNATURE not in theirs[0], "data of one backend was sent to another"
            assert SIGNATURE in ours[1], "data of a backend must go back to it"
            assert SIGNATURE in ours[-1]
        elif second.signs:
            assert all(SIGNATURE not in body for body in ours)
