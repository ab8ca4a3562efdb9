"""Commands that ask one thing."""

import json

from client.fake_service import FakeService, Tape, connected

from yarrow.cli.service_commands import print_models
from yarrow.v1 import agent_pb2 as pb

MODELS = pb.ListModelsResponse(
    provider="local", models=[pb.Model(name="qwen3:8b", context_window=4096), pb.Model(name="od\x1b[2Jd")]
)


async def listed(*, as_json: bool = False, terminal: bool = False) -> str:
    service, out, err = FakeService(), Tape(is_terminal=terminal), Tape()
    service.models = MODELS
    async with connected(service) as stub:
        await print_models(stub, "local", json=as_json, out=out, err=err)
    assert service.requests == [pb.ListModelsRequest(provider="local")]
    assert (out.drains, err.text) == (1, "")
    return out.text


async def test_models_are_printed_one_per_line() -> None:
    assert await listed() == await listed(terminal=True) == "qwen3:8b\nod␛[2Jd\n"


async def test_models_are_printed_as_one_object_per_line() -> None:
    assert [json.loads(line) for line in (await listed(as_json=True)).splitlines()] == [
        {"name": "qwen3:8b", "contextWindow": 4096, "provider": "local"},
        {"name": "od\x1b[2Jd", "contextWindow": 0, "provider": "local"},
    ]


async def test_an_empty_model_list_is_reported() -> None:
    service, out, err = FakeService(), Tape(), Tape()
    service.models = pb.ListModelsResponse(provider="local")
    async with connected(service) as stub:
        await print_models(stub, "", json=True, out=out, err=err)
    assert (out.text, err.text) == ("", "yarrow: local lists no models: choose one with -m MODEL\n")
