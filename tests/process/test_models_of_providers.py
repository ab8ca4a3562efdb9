"""A model goes with the provider that it was configured with, whatever names another provider."""

import json

import pytest

from doubles.house import House, stub_of
from doubles.world import World
from yarrow.config.settings import CompactionSettings, ProviderSettings, Settings
from yarrow.service.provider_cache import ProviderCache
from yarrow.v1 import agent_pb2 as pb


def two_providers(world: World) -> None:
    world.script([{"text": "one"}], [{"text": "two"}])
    script = {"type": "scripted", "script": str(world.home / "script.json")}
    providers = {"work": {"type": "openai", "baseUrl": "http://127.0.0.1:9/v1"}, "other": script}
    world.configure({"provider": "work", "model": "mock-1", "compaction": {"model": "mock-0"}, "providers": providers})


@pytest.mark.parametrize("way", ["flag", "variable"])
async def test_another_provider_is_asked_for_its_own_model(world: World, way: str) -> None:
    two_providers(world)
    if way == "variable":
        world.environment["YARROW_PROVIDER"] = "other"
    named = ["--provider", "other"] if way == "flag" else []
    ended = await world.run(*named, "hi")
    assert (ended.code, ended.out) == (0, "one\n")
    (path,) = world.session_files()
    header = json.loads(path.read_text().splitlines()[0])
    assert (header["provider"], header["model"]) == ("other", "scripted")
    assert header["compaction"].get("model", "") == ""
    again = await world.run(*named, "-c", "and now?")
    assert (again.code, again.out) == (0, "two\n")


async def test_switching_the_provider_drops_its_models(world: World) -> None:
    small = CompactionSettings(model="small")
    house = House(world.home, [[{"text": "hi"}]], model="big", compaction=small)
    async with stub_of(house) as stub:
        here = await stub.NewSession(pb.NewSessionRequest(cwd=str(house.cwd)))
        await stub.ConfigureSession(
            pb.ConfigureSessionRequest(session_id=here.session_id, settings=pb.SessionSettings(provider="other"))
        )
        state = await stub.GetState(pb.GetStateRequest(session_id=here.session_id))
    assert (state.settings.model, state.settings.compaction.model) == ("scripted", "")


async def test_the_model_is_that_of_the_only_provider(world: World) -> None:
    world.script([{"text": "one"}])
    work = ProviderSettings("scripted", script=str(world.home / "script.json"))
    providers = ProviderCache(Settings(model="big", providers={"work": work}), {})
    assert [(await providers.get(name, "")).info.model for name in ("", "work")] == ["big", "big"]
    await providers.close()


async def test_an_unknown_provider_is_rejected_with_the_known_ones(world: World) -> None:
    world.script([{"text": "one"}])
    for words in (["-m", "nope/x"], ["--provider", "scripted", "-m", "nope/x"]):
        ended = await world.run(*words, "hi")
        assert (ended.code, ended.out) == (3, "")
        assert "unknown provider 'nope': use one of anthropic, gemini, " in ended.err
    assert world.session_files() == []
