"""Fallbacks behind the RPCs: the event, an abort, keys that come late, and histories that fit every backend."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import permutations
from pathlib import Path

import pytest
from msgspec.structs import replace
from test_model_switch import BACKENDS

from doubles.chain import BUSY as PLAYED_BUSY
from doubles.chain import PlayedModel
from doubles.chat_server import ChatServer, Received, Reply, page, says
from doubles.hooking import hooks
from doubles.house import House, kinds, play, refused, stub_of
from doubles.ollama_server import OllamaServer, refusal
from doubles.ollama_server import says as ollama_says
from yarrow.agent.hooks import Contributions, no_contributions
from yarrow.config.settings import ProviderSettings, RetrySettings, Settings
from yarrow.provider.api_keys import list_known_keys
from yarrow.provider.base import AdapterConfig, ProviderBuilder
from yarrow.service.provider_cache import ProviderCache
from yarrow.service.servicer import Servicer
from yarrow.v1 import agent_pb2 as pb

BUSY = page({"error": {"message": "busy"}}, 529)


def house_of(folder: Path, *providers: ProviderSettings) -> House:
    """A service with these providers, named a, b and so on, of which all but the first are fallbacks."""
    house = House(folder, [])
    named = dict(zip("abcd", providers, strict=False))
    fallback = tuple(f"{name}/m" for name in list(named)[1:])
    chosen = Settings(provider="a", model="m", providers=named, fallback=fallback)
    chosen = replace(chosen, retry=replace(chosen.retry, attempts=0))
    house.parts = replace(
        house.parts,
        settings=chosen,
        providers=ProviderCache(chosen, {}),
        key_values=lambda: list_known_keys(chosen, {}),
        secret_values=lambda: list_known_keys(chosen, {}),
    )
    house.servicer = Servicer(house.parts)
    return house


@asynccontextmanager
async def two(folder: Path, here: str, there: str) -> AsyncGenerator[tuple[House, ChatServer, ChatServer]]:
    """A service whose first provider has one kind of server and its fallback another."""
    async with BACKENDS[here].server() as ours, BACKENDS[there].server() as theirs:
        yield (
            house_of(folder, ProviderSettings(here, base_url=ours.root), ProviderSettings(there, base_url=theirs.root)),
            ours,
            theirs,
        )


@pytest.mark.parametrize(("here", "there"), list(permutations(BACKENDS, 2)))
async def test_law_1_holds_when_the_fallback_has_another_format(tmp_path: Path, here: str, there: str) -> None:
    first, second = BACKENDS[here], BACKENDS[there]
    async with two(tmp_path, here, there) as (house, ours, theirs), stub_of(house) as stub:
        ours.replies = [first.calls(), BUSY, first.says("back")]
        theirs.replies = [second.calls(), second.says("done")]
        events = await play(stub, house.prompt("go", "s1"))
        assert events[-1].agent_end.reason == pb.END_REASON_COMPLETED, events[-1]
        assert first.own not in json.dumps(theirs.prompts[0]), "signed data of one model was sent to another"
        events = await play(stub, house.prompt("and on", "s1"))
        # The strict servers refuse what their backends would, so all of it was legal.
        assert events[-1].agent_end.reason == pb.END_REASON_COMPLETED, events[-1]
        assert (len(ours.prompts), len(theirs.prompts)) == (3, 2)
        assert json.dumps(ours.prompts[-1]).count(first.own) == 1


async def test_the_event_lies_between_two_turns(tmp_path: Path) -> None:
    async with two(tmp_path, "openai", "llamacpp") as (house, ours, theirs), stub_of(house) as stub:
        ours.replies, theirs.replies = [BUSY], [says("fine")]
        events = await play(stub, house.prompt("go", "s1"))
        state = await stub.GetState(pb.GetStateRequest(session_id="s1"))
    [change] = [event.model_changed for event in events if event.WhichOneof("event") == "model_changed"]
    assert change == pb.ModelChanged(provider="b", model="m", from_provider="a", from_model="m", code="OVERLOADED")
    shown = [kind for kind in kinds(events) if kind in ("turn_start", "turn_end", "model_changed")]
    assert shown == ["turn_start", "turn_end", "model_changed", "turn_start", "turn_end"]
    assert (state.settings.provider, state.settings.model) == ("a", "m")


class SlowServer(OllamaServer):
    """A server that answers questions about its models only once a gate is open."""

    def __init__(self, gate: asyncio.Event) -> None:
        super().__init__()
        self._gate = gate

    def _reply(self, received: Received) -> Reply:
        reply = super()._reply(received)
        return reply._replace(pieces=[self._gate, *reply.pieces])


async def test_an_abort_while_the_fallback_is_asked_for_its_capabilities(tmp_path: Path) -> None:
    gate = asyncio.Event()
    async with ChatServer([BUSY, says("later")]) as ours, SlowServer(gate) as theirs:
        house = house_of(
            tmp_path, ProviderSettings("openai", base_url=ours.root), ProviderSettings("ollama", base_url=theirs.root)
        )
        async with stub_of(house) as stub:
            playing = asyncio.ensure_future(play(stub, house.prompt("go", "s1")))
            while not theirs.received:
                await asyncio.sleep(0.005)
            assert (await stub.Abort(pb.AbortRequest(session_id="s1"))).was_running
            events = await asyncio.wait_for(playing, 10)
            assert events[-1].agent_end.reason == pb.END_REASON_ABORTED
            assert "model_changed" not in kinds(events)
            events = await play(stub, house.prompt("again", "s1"))
            assert events[-1].agent_end.reason == pb.END_REASON_COMPLETED
        gate.set()


async def test_the_key_of_a_fallback_from_a_command_is_redacted(tmp_path: Path) -> None:
    key = "sk-late-0123456789abcdef"
    async with ChatServer([BUSY]) as ours, ChatServer([says(f"your key is {key}")], key=key) as theirs:
        house = house_of(
            tmp_path,
            ProviderSettings("openai", base_url=ours.root),
            ProviderSettings("openai", base_url=theirs.root, api_key_command=f"echo {key}"),
        )
        watched: list[str] = []
        added = Contributions(hooks(AfterProviderResponse=lambda payload, _: watched.append(json.dumps(payload))))
        house.servicer = Servicer(replace(house.parts, contributions=added))
        async with stub_of(house) as stub:
            events = await play(stub, house.prompt("go", "s1"))
        assert events[-1].agent_end.reason == pb.END_REASON_COMPLETED, events[-1]
        assert key not in str(events)
        assert "your key is [redacted]" in watched[-1]
        [path] = house.sessions.rglob("s1.jsonl")
        assert key not in path.read_text()
        assert "your key is" in path.read_text()


class RecoveringServer(OllamaServer):
    """A server that is overloaded when it is first asked about a model."""

    has_failed = False

    def _reply(self, received: Received) -> Reply:
        if received.path == "/api/show" and not self.has_failed:
            self.has_failed = True
            return refusal("busy", 503)
        return super()._reply(received)


async def test_a_first_choice_that_recovers_answers_itself(tmp_path: Path) -> None:
    async with RecoveringServer([ollama_says("back"), ollama_says("again")]) as ours, ChatServer() as theirs:
        house = house_of(
            tmp_path, ProviderSettings("ollama", base_url=ours.root), ProviderSettings("openai", base_url=theirs.root)
        )
        async with stub_of(house) as stub:
            for text in ("back", "again"):
                events = await play(stub, house.prompt("go", "s1"))
                assert events[-1].agent_end.reason == pb.END_REASON_COMPLETED, events[-1]
                assert "".join(event.text_delta.text for event in events) == text
                assert "model_changed" not in kinds(events)
            state = await stub.GetState(pb.GetStateRequest(session_id="s1"))
        assert theirs.received == []
    assert state.provider.context_window > 0


@pytest.mark.parametrize("problem", ["missing", "refused"])
async def test_a_first_choice_that_cannot_work_is_not_replaced(tmp_path: Path, problem: str) -> None:
    async with OllamaServer(key="" if problem == "missing" else "k") as ours, ChatServer() as theirs:
        ours.models.clear()
        house = house_of(
            tmp_path, ProviderSettings("ollama", base_url=ours.root), ProviderSettings("openai", base_url=theirs.root)
        )
        async with stub_of(house) as stub:
            _, reason = await refused(play(stub, house.prompt("go")))
        assert reason == ("NOT_FOUND" if problem == "missing" else "AUTH")
        assert theirs.received == []


async def test_a_weak_fallback_of_an_extension_is_offered_reading_tools_only(tmp_path: Path) -> None:
    strong, weak = PlayedModel("strong", [PLAYED_BUSY]), PlayedModel("weak", reads_only=True)

    def builder(model: PlayedModel) -> ProviderBuilder:
        async def build(_: AdapterConfig) -> PlayedModel:
            return model

        return build

    added = replace(no_contributions(), providers={model.name: builder(model) for model in (strong, weak)})
    house = House(tmp_path, [], added=added, fallback=(weak.path,), retry=RetrySettings(attempts=0))
    settings = pb.SessionSettings(provider="strong", model="m-strong")
    async with stub_of(house) as stub:
        made = await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd), settings=settings))
        for _ in range(2):
            events = await play(stub, house.prompt("go", made.session_id))
            assert events[-1].agent_end.reason == pb.END_REASON_COMPLETED, events[-1]
    offered = [[tool.name for tool in request.tools] for request in (*strong.requests, *weak.requests)]
    assert offered == [["echo", "act"], ["echo", "act"], ["echo"]]
