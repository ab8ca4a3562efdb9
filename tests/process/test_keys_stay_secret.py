"""No key is ever shown: not when a backend repeats it in what it says, and wherever the key came from."""

import itertools
import json
import logging
import traceback
from collections.abc import Callable, Mapping
from typing import Literal

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from doubles import chat_server, gemini_server, messages_server, ollama_server, responses_server
from doubles.chat_server import ChatServer, Received, Reply, page
from doubles.world import World
from yarrow.config.settings import ProviderSettings, ProviderType, Settings
from yarrow.errors import ProviderError
from yarrow.message import Message, Role, Text
from yarrow.provider.base import CompletionRequest, ListsModels
from yarrow.provider.factory import ProviderContext, create_provider

Place = Literal["environment", "command", "authorization", "header"]
KINDS: tuple[ProviderType, ...] = ("openai", "llamacpp", "responses", "messages", "ollama", "gemini")
PLACES: tuple[Place, ...] = ("environment", "command", "authorization", "header")
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
keys = st.text(LETTERS + "-._~+/=", min_size=12, max_size=60).map(lambda text: f"sk-{text}")


class Parrot(ChatServer):
    """Meets whatever it is asked with the same answer, in which it repeats the key."""

    def __init__(self, answer: Reply) -> None:
        super().__init__()
        self._answer = answer

    def _reply(self, received: Received) -> Reply:
        return self._answer


def told(status: int, body: object, **headers: str) -> Reply:
    return page(body, status, {name.replace("_", "-"): value for name, value in headers.items()})


def streamed(kind: str, text: str) -> Reply:
    return Reply([text.encode()], headers={"content-type": kind})


SSE, NDJSON = "text/event-stream", "application/x-ndjson"
ECHOES: dict[str, Callable[[str], Reply]] = {
    "sentence": lambda key: told(401, {"error": {"message": f"Incorrect API key provided: {key}."}}),
    "bare": lambda key: told(403, {"error": key}),
    "detail": lambda key: told(422, {"detail": [{"loc": ["header", "authorization"], "input": f"Bearer {key}"}]}),
    "code": lambda key: told(400, {"error": {"message": "no", "code": key, "type": key, "status": key}}),
    "raw": lambda key: told(502, {"error": {"message": "no", "metadata": {"raw": f"key={key}"}}}),
    "unknown shape": lambda key: told(500, {"request": {"headers": {"x-api-key": key}}}),
    "list": lambda key: told(429, [{"error": {"message": key, "details": [{"reason": key}]}}]),
    "text": lambda key: told(503, f"upstream said: {key}\nwith {key}", content_type="text/plain"),
    "long": lambda key: told(500, {"error": {"message": "x" * 590 + key + "y" * 2000}}),
    "web page": lambda key: told(200, f"<html>{key}</html>", content_type="text/html"),
    "redirect": lambda key: told(302, "", location=f"https://elsewhere.invalid/?key={key}"),
    "no JSON": lambda key: told(200, f"{key} is no JSON"),
    "error in a good answer": lambda key: told(200, {"error": {"message": key, "code": 500}}),
    "error in a stream": lambda key: streamed(SSE, f'data: {{"error": {{"message": "{key}", "code": 500}}}}\n\n'),
    "named error": lambda key: streamed(
        SSE, f'event: error\ndata: {{"type": "error", "error": {{"type": "{key}", "message": "{key}"}}}}\n\n'
    ),
    "garbage in a stream": lambda key: streamed(SSE, f'data: {{"key": "{key}\n\n'),
    "another type in a stream": lambda key: streamed(SSE, f'data: {{"choices": "{key}", "candidates": "{key}"}}\n\n'),
    "half a stream": lambda key: streamed(SSE, f'data: {{"x": "{key}"'),
    "unknown reason": lambda key: streamed(
        SSE, f'data: {{"choices": [{{"delta": {{}}, "finish_reason": "{key}"}}]}}\n\ndata: [DONE]\n\n'
    ),
    "unknown reason of Gemini": lambda key: streamed(SSE, f'data: {{"candidates": [{{"finishReason": "{key}"}}]}}\n\n'),
    "error in a line": lambda key: streamed(NDJSON, f'{{"error": "{key}"}}\n'),
    "garbage in a line": lambda key: streamed(NDJSON, f"{key}\n"),
    "another type in a line": lambda key: streamed(NDJSON, f'{{"message": "{key}", "done": "{key}"}}\n'),
    "unknown reason in a line": lambda key: streamed(
        NDJSON, f'{{"message": {{"role": "assistant", "content": ""}}, "done": true, "done_reason": "{key}"}}\n'
    ),
}


def configured(kind: ProviderType, place: Place, key: str) -> tuple[ProviderSettings, Mapping[str, str]]:
    """The settings of a provider that gets its key in one of the ways, and the environment for it."""
    match place:
        case "environment":
            return ProviderSettings(type=kind, api_key_env="THE_KEY"), {"THE_KEY": key}
        case "command":
            return ProviderSettings(type=kind, api_key_command=f"printf %s '{key}'"), {"PATH": "/usr/bin:/bin"}
        case "authorization":
            return ProviderSettings(type=kind, headers={"Authorization": f"Bearer {key}"}), {}
        case "header":
            return ProviderSettings(type=kind, headers={"X-Gateway-Token": key}), {}


async def errors_of(there: ProviderSettings, environment: Mapping[str, str]) -> list[ProviderError]:
    """Failures that occur for any request to a provider."""
    ground = ProviderContext(Settings(providers={"there": there}), environment)
    provider = (await create_provider("there", "m", ground)).provider
    assert isinstance(provider, ListsModels)
    hi = Message(id="u", role=Role.USER, content=(Text("hi"),), timestamp="")
    caught: list[ProviderError] = []
    try:
        for ask in (provider.info, provider.list_models):
            try:
                await ask()
            except ProviderError as error:
                caught.append(error)
        try:
            async for _ in provider.stream(CompletionRequest(model="m", messages=(hi,))):
                pass
        except ProviderError as error:
            caught.append(error)
    finally:
        await provider.close()
    return caught


def shown(error: ProviderError) -> str:
    """All that can be seen of an error, what it came from included."""
    return "\n".join([repr(error), repr(vars(error)), repr(error.failure()), *traceback.format_exception(error)])


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(key=keys, place=st.sampled_from(PLACES), echo=st.sampled_from(sorted(ECHOES)))
async def test_keys_repeated_by_a_backend_are_redacted(
    caplog: pytest.LogCaptureFixture, *, kind: ProviderType, key: str, place: Place, echo: str
) -> None:
    caplog.clear()
    caplog.set_level(logging.DEBUG)
    there, environment = configured(kind, place, key)
    async with Parrot(ECHOES[echo](key)) as server:
        errors = await errors_of(replace(there, base_url=server.root), environment)
    assert errors or echo.startswith("unknown reason"), "the backend repeated it for nothing"
    for error in errors:
        assert key not in shown(error)
    assert key not in caplog.text


# -- the whole program -------------------------------------------------------------------------------------------------

SAYS: dict[ProviderType, Callable[[str], Reply]] = {
    "openai": chat_server.says,
    "llamacpp": chat_server.says,
    "responses": responses_server.says,
    "messages": messages_server.says,
    "ollama": ollama_server.says,
    "gemini": gemini_server.says,
}
DOUBLES: dict[ProviderType, Callable[..., ChatServer]] = {
    "openai": ChatServer,
    "llamacpp": ChatServer,
    "responses": responses_server.ResponsesServer,
    "messages": messages_server.MessagesServer,
    "ollama": ollama_server.OllamaServer,
    "gemini": gemini_server.GeminiServer,
}


@pytest.mark.parametrize(("kind", "place"), list(zip(KINDS, itertools.cycle(PLACES), strict=False)))
async def test_keys_are_redacted_in_all_output_and_files(world: World, kind: ProviderType, place: Place) -> None:
    key = f"sk-of-{kind}-0123456789"
    there, environment = configured(kind, place, key)
    env = {**environment, "PATH": world.environment["PATH"], "YARROW_LOG": "debug"}
    seen: list[str] = []
    demanded = key if place in ("environment", "command") else ""
    async with DOUBLES[kind]([SAYS[kind]("fine"), *[ECHOES["sentence"](key)] * 2], key=demanded) as server:
        entry = msgspec.to_builtins(replace(there, base_url=server.root))
        world.configure({"provider": "there", "model": "m", "providers": {"there": entry}})
        for code, *words in (
            (0, "--json", "hello"),
            (3, "--json", "-c", "again"),
            (3, "--plain", "and again"),
            (0, "config"),
            (0, "config", "json"),
            (0, "-c", "--export", "all.jsonl"),
            (0, "-c", "--export", "all.html"),
        ):
            ended = await world.run(*words, env=env)
            assert ended.code == code, ended
            seen += [ended.out, ended.err]
        examined = await world.run("doctor", env=env)
        seen += [examined.out, examined.err]
    assert key in " ".join(map(str, (received.headers for received in server.received))), "it was never sent"
    assert "Incorrect API key provided: [key]" in " ".join(seen), "the backend repeated it for nothing"
    configuration = world.home / ".yarrow" / "config.json"
    for folder in (world.home, world.project):
        seen += [path.read_text() for path in folder.rglob("*") if path.is_file() and path != configuration]
    assert len(world.session_files()) == 2
    assert [text for text in seen if key in text] == []


async def test_output_and_logs_of_an_extension_are_redacted(world: World) -> None:
    key = "of-no-telling-name-01234"
    world.script([{"text": "heard"}], extensions=["loud.py"])
    path = world.home / ".yarrow" / "config.json"
    configured_there = json.loads(path.read_text())
    configured_there["providers"]["there"] = {"type": "openai", "apiKeyEnv": "MY_MODEL"}
    path.write_text(json.dumps(configured_there))
    (world.home / ".yarrow" / "loud.py").write_text(LOUD)
    seen: list[str] = []
    for words in (["--json", "hello"], ["again"]):
        ended = await world.run(*words, env={"MY_MODEL": key})
        seen += [ended.out, ended.err]
    log = world.home / ".yarrow" / "yarrow.log"
    assert "logged [redacted]" in log.read_text()
    assert "raised [redacted]" in "".join(seen)
    assert [text for text in [*seen, log.read_text()] if key in text] == []


LOUD = """
import logging, os

def start(payload):
    logging.getLogger("loud").error("logged %s", os.environ["MY_MODEL"])
    raise ValueError("raised " + os.environ["MY_MODEL"])

def extend(yarrow):
    yarrow.hook("AgentStart", start)
    yarrow.hook("SessionStart", start)
"""
