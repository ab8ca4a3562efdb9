"""A session goes from any backend to any other and back: each request is legal, and what is signed stays home."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
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
from yarrow.config.settings import CompactionSettings, ProviderSettings, Settings
from yarrow.provider.history_repair import MISSING_RESULT
from yarrow.service.provider_cache import ProviderCache
from yarrow.service.servicer import Servicer
from yarrow.v1 import agent_pb2 as pb

SIGNATURE = "c2lnbmVkLWJ5LWl0cy1iYWNrZW5k"
ARGUMENTS = '{"text": "a \\u2028 <think> b"}'


class Backend(NamedTuple):
    server: Callable[[], ChatServer]
    says: Callable[[str], Reply]
    calls: Callable[[], Reply]
    own: str
    """Opaque data in its requests, as JSON."""
    said: str = "messages"
    speaker: str = "assistant"


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


REASONING = '"reasoning_content": "hm"'
BACKENDS = {
    "openai": Backend(ChatServer, chat_server.says, chat_calls, REASONING),
    "llamacpp": Backend(ChatServer, chat_server.says, chat_calls, REASONING),
    "messages": Backend(MessagesServer, messages_server.says, messages_calls, SIGNATURE),
    "ollama": Backend(OllamaServer, ollama_server.says, ollama_calls, '"thinking": "hm"'),
    "gemini": Backend(GeminiServer, gemini_server.says, gemini_calls, SIGNATURE, "contents", "model"),
}


class Client(NamedTuple):
    """The user's access to a service."""

    stub: Any
    house: House

    async def ask(self, text: str, session_id: str = "") -> str:
        events = await play(self.stub, self.house.prompt(text, session_id))
        end = events[-1].agent_end
        assert end.reason == pb.END_REASON_COMPLETED, end.error
        return events[0].session_id

    async def configure(self, session_id: str, **chosen: Any) -> None:
        settings = pb.SessionSettings(**chosen)
        await self.stub.ConfigureSession(pb.ConfigureSessionRequest(session_id=session_id, settings=settings))


@asynccontextmanager
async def client_of(folder: Path, servers: dict[str, tuple[str, ChatServer]], **more: Any) -> AsyncGenerator[Client]:
    """A service with the backends at these servers, by the id of each provider; the first is the usual one."""
    house = House(folder, [])
    providers = {name: ProviderSettings(kind, base_url=server.root) for name, (kind, server) in servers.items()}
    chosen = Settings(provider=next(iter(servers)), model="m", providers=providers, **more)
    house.parts = replace(house.parts, settings=chosen, providers=ProviderCache(chosen, {}))
    house.servicer = Servicer(house.parts)
    async with stub_of(house) as stub:
        yield Client(stub, house)


def first_answer(kind: str, body: dict[str, Any]) -> dict[str, Any]:
    """The first thing that a model said, as a request has it."""
    backend = BACKENDS[kind]
    return next(message for message in body[backend.said] if message["role"] == backend.speaker)


@pytest.mark.parametrize(("here", "there"), list(permutations(BACKENDS, 2)))
async def test_law_1_holds_when_the_model_is_switched_back_and_forth(tmp_path: Path, here: str, there: str) -> None:
    first, second = BACKENDS[here], BACKENDS[there]
    async with (
        first.server() as ours,
        second.server() as theirs,
        client_of(tmp_path, {"here": (here, ours), "there": (there, theirs)}) as client,
    ):
        ours.replies = [first.calls(), first.says("done"), first.calls(), first.says("done again")]
        theirs.replies = [second.calls(), second.says("and here")]
        session_id = await client.ask("begin")
        await client.configure(session_id, provider="there", model="m")
        await client.ask("go on there", session_id)
        await client.configure(session_id, provider="here", model="m")
        await client.ask("and back", session_id)
        # The strict servers refuse what their backends would; so all of it was legal. Nothing was asked twice.
        assert (len(ours.prompts), len(theirs.prompts)) == (4, 2)
        check_own_data(here, ours.prompts, theirs.prompts)
        assert json.dumps(theirs.prompts[-1]).count(second.own) == 1


@pytest.mark.parametrize("kind", BACKENDS)
async def test_law_1_holds_when_another_model_of_the_backend_is_selected(tmp_path: Path, kind: str) -> None:
    backend = BACKENDS[kind]
    async with backend.server() as server, client_of(tmp_path, {"here": (kind, server)}) as client:
        if isinstance(server, OllamaServer):
            server.models["n"] = ollama_server.shown()
        server.replies = [reply for _ in range(3) for reply in (backend.calls(), backend.says("done"))]
        session_id = await client.ask("begin")
        await client.configure(session_id, provider="here", model="n")
        await client.ask("go on there", session_id)
        await client.configure(session_id, provider="here", model="m")
        await client.ask("and back", session_id)
        assert len(server.prompts) == 6
        check_own_data(kind, [*server.prompts[:2], *server.prompts[4:]], server.prompts[2:4])


def check_own_data(kind: str, ours: list[dict[str, Any]], theirs: list[dict[str, Any]]) -> None:
    """Signed data is sent back unchanged to the model that signed it, also after switching back, and to no other."""
    own = BACKENDS[kind].own
    assert "I look." in json.dumps(theirs[0])
    assert "done" in json.dumps(theirs[0])
    assert own not in json.dumps(theirs[0]), "data of one model was sent to another"
    # Before its second answer, behind the switch, and before its fourth: its own answers, and nothing of the other.
    assert [json.dumps(body).count(own) for body in ours] == [0, 1, 1, 2]
    assert own in json.dumps(first_answer(kind, ours[1]))
    assert first_answer(kind, ours[2]) == first_answer(kind, ours[1])


@pytest.mark.parametrize("kind", BACKENDS)
async def test_case_P_16_calls_unanswered_after_a_crash_are_answered_in_requests(tmp_path: Path, kind: str) -> None:
    backend = BACKENDS[kind]
    async with backend.server() as server:
        server.replies = [backend.calls(), backend.says("done"), backend.says("I go on.")]
        async with client_of(tmp_path, {"here": (kind, server)}) as client:
            session_id = await client.ask("begin")
        [path] = client.house.sessions.rglob(f"{session_id}.jsonl")
        lines = path.read_bytes().splitlines(keepends=True)
        before = b"".join(lines[: 1 + next(at for at, line in enumerate(lines) if b"toolCall" in line)])
        path.write_bytes(before)
        async with client_of(tmp_path, {"here": (kind, server)}) as client:
            await client.ask("go on", session_id)
        assert path.read_bytes().startswith(before)
        asked = server.prompts[-1][backend.said]
        said = next(at for at, message in enumerate(asked) if message["role"] == backend.speaker)
        answers = json.dumps(asked[said + 1 :])
        assert answers.count(MISSING_RESULT) == 2
        assert answers.rindex(MISSING_RESULT) < answers.index("go on")


# -- what a backend binds to all that was said before --------------------------------------------------------------

LONG = "The quick brown fox jumps over the lazy dog again and again. " * 160
BINDS = messages_server.thinking(0, "hm", signature=messages_server.BINDING)


def thought(text: str) -> Reply:
    return Reply([messages_server.start(), BINDS, messages_server.text(1, text), messages_server.end()])


def seals(server: MessagesServer) -> list[str]:
    """The signatures in the last prompt."""
    parts = (part for message in server.prompts[-1]["messages"] for part in message["content"])
    return [part["signature"] for part in parts if "signature" in part]


async def compacted(client: Client, session_id: str) -> str:
    async for _ in client.stub.Compact(pb.CompactRequest(session_id=session_id)):
        pass
    return session_id


async def rebased(client: Client, session_id: str) -> str:
    made = await client.stub.RebaseSession(pb.RebaseSessionRequest(session_id=session_id, indices=[2, 3]))
    return made.session_id


async def rebased_behind_other_tools(client: Client, session_id: str) -> str:
    await client.configure(session_id, tools=pb.ToolSelection(names=["echo"]))
    made = await client.stub.RebaseSession(pb.RebaseSessionRequest(session_id=session_id, indices=[0, 1, 2, 3]))
    return made.session_id


async def merged(client: Client, session_id: str) -> str:
    other = await client.ask(LONG)
    request = pb.MergeSessionRequest(session_id=other, other_session_id=session_id)
    return (await client.stub.MergeSession(request)).session_id


async def with_other_tools(client: Client, session_id: str) -> str:
    await client.configure(session_id, tools=pb.ToolSelection(names=["echo"]))
    return session_id


async def with_another_prompt(client: Client, session_id: str) -> str:
    await client.configure(session_id, system_prompt="Be somebody else.")
    return session_id


@pytest.mark.parametrize(
    "change",
    [rebased, rebased_behind_other_tools, merged, compacted, with_other_tools, with_another_prompt],
    ids=["rebase", "rebase behind other tools", "merge", "compaction", "tools", "system prompt"],
)
async def test_a_signature_bound_to_its_prefix_is_not_sent_after_another(
    tmp_path: Path, change: Callable[[Client, str], Awaitable[str]]
) -> None:
    compaction = CompactionSettings(reserve_tokens=1_000, keep_recent_tokens=1_500)
    async with (
        MessagesServer(binds=True) as server,
        client_of(tmp_path, {"here": ("messages", server)}, compaction=compaction) as client,
    ):
        server.replies = [thought(letter) for letter in "abcdefgh"]
        session_id = await client.ask(LONG)
        await client.ask(LONG, session_id)
        await client.ask(LONG, session_id)
        assert (seals(server), server.refused) == (["seal0", "seal1"], 0)
        changed = await change(client, session_id)
        old = len(server.given)
        await client.ask("go on", changed)
        kept = seals(server)
        await client.ask("and on", changed)
        assert server.refused == 0
        assert seals(server) == [*kept, f"seal{old}"], "what is signed from now on goes back"
        assert "seal1" not in kept
        assert "seal2" not in kept
