"""Images that a model or its server does not take: refused at the front door, or replaced by a note later."""

import asyncio
import base64
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from msgspec.structs import replace
from PIL import Image

from doubles import chat_server, gemini_server, messages_server, ollama_server
from doubles.chat_server import ChatServer, Reply, page
from doubles.gemini_server import GeminiServer
from doubles.house import House, kinds, play, reason_of, stub_of
from doubles.messages_server import MessagesServer
from doubles.ollama_server import OllamaServer
from yarrow.config.settings import ProviderSettings, Settings
from yarrow.imaging.fit import Fitting, fit
from yarrow.provider.history_repair import HIDDEN_IMAGE
from yarrow.service.provider_cache import ProviderCache
from yarrow.service.servicer import Servicer
from yarrow.v1 import agent_pb2 as pb

REFUSED = "messages.3.content.1.image: the image cannot be processed"


def png(width: int, height: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(buffer, "PNG")
    return buffer.getvalue()


LARGE = png(8_400, 100)


class RealHouse(House):
    """A service whose model is behind an adapter that users have."""

    def __init__(self, folder: Path, kind: Any, server: ChatServer) -> None:
        super().__init__(folder, [])
        providers = {"acme": ProviderSettings(kind, base_url=server.root)}
        self.settings = Settings(provider="acme", model="m", providers=providers)
        self.providers = ProviderCache(self.settings, {})
        self.parts = replace(self.parts, settings=self.settings, providers=self.providers)
        self.servicer = Servicer(self.parts)


def look(house: House, data: bytes, **options: Any) -> pb.PromptRequest:
    asked = house.prompt("look", **options)
    asked.images.add(media_type="image/png", data=data)
    return asked


def holds(body: dict[str, Any], data: bytes) -> bool:
    """True if a request contains an image, in either of the two alphabets."""
    return base64.b64encode(data).decode() in json.dumps(body).replace("-", "+").replace("_", "/")


@pytest.mark.parametrize(
    ("kind", "server", "says", "refused"),
    [
        ("openai", ChatServer, chat_server.says, page({"error": {"message": REFUSED}}, 400)),
        ("messages", MessagesServer, messages_server.says, messages_server.refusal(REFUSED)),
        ("ollama", OllamaServer, ollama_server.says, ollama_server.refusal(REFUSED)),
        ("gemini", GeminiServer, gemini_server.says, gemini_server.refusal(REFUSED)),
    ],
    ids=["openai", "messages", "ollama", "gemini"],
)
async def test_case_T_12_an_image_rejected_on_a_later_turn_is_omitted(
    tmp_path: Path, kind: str, server: Callable[[], ChatServer], says: Callable[[str], Reply], refused: Reply
):
    scaled = fit(LARGE)
    assert isinstance(scaled, Fitting)
    async with server() as running:
        running.replies = [says("red"), refused, says("on"), says("and on")]
        house = RealHouse(tmp_path, kind, running)
        async with stub_of(house) as stub:
            events = await play(stub, look(house, LARGE))
            session_id = events[0].session_id
            for text in ("and now?", "and then?"):
                events = await play(stub, house.prompt(text, session_id))
                assert events[-1].agent_end.reason == pb.END_REASON_COMPLETED
        assert [holds(body, scaled.data) for body in running.prompts] == [True, True, False, False]
        assert [HIDDEN_IMAGE in json.dumps(body) for body in running.prompts] == [False, False, True, True]


async def test_case_T_12_an_image_rejected_at_once_fails_only_its_prompt(tmp_path: Path):
    cut = png(40, 40)[:-20]
    async with MessagesServer() as running:
        refused = messages_server.refusal("messages.0.content.1.image: Could not process image")
        running.replies = [refused, refused, messages_server.says("on")]
        house = RealHouse(tmp_path, "messages", running)
        async with stub_of(house) as stub:
            events = await play(stub, look(house, cut))
            assert events[-1].agent_end.reason == pb.END_REASON_ERROR
            events = await play(stub, house.prompt("never mind", events[0].session_id))
            assert events[-1].agent_end.reason == pb.END_REASON_COMPLETED
        assert holds(running.prompts[0], cut)
        assert not holds(running.prompts[-1], cut)


async def test_case_T_12_without_the_extra_a_large_image_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "PIL", None)
    house = House(tmp_path, [[{"text": "done"}]])
    async with stub_of(house) as stub:
        with pytest.raises(grpc.aio.AioRpcError, match=r"8400x100.*'\.\[images\]'"):
            await play(stub, look(house, LARGE))
    assert not list(house.sessions.rglob("*.jsonl"))


async def test_case_T_12_llamacpp_rejects_an_image_and_no_session_is_created(tmp_path: Path):
    async with ChatServer([chat_server.says("x")]) as running:
        house = RealHouse(tmp_path, "llamacpp", running)
        async with stub_of(house) as stub:
            with pytest.raises(grpc.aio.AioRpcError, match="the model 'm' of 'acme' cannot read images: ") as caught:
                await play(stub, look(house, png(2, 2)))
            assert reason_of(caught.value) == "UNSUPPORTED_FEATURE"
            assert not list(house.sessions.rglob("*.jsonl"))
            assert running.prompts == []
            assert kinds(await play(stub, house.prompt("without")))[-1] == "agent_end"


@pytest.mark.parametrize("session_id", ["", "chosen"])
async def test_a_prompt_rejected_for_its_images_creates_no_session(tmp_path: Path, session_id: str):
    house = House(tmp_path, [[{"text": "done"}]])
    asked = look(house, png(2, 2))
    asked.session_id = session_id
    async with stub_of(house) as stub:
        with pytest.raises(grpc.aio.AioRpcError, match="cannot read images"):
            await play(stub, asked)
        assert not list(house.sessions.rglob("*.jsonl"))
        assert not (await stub.ListSessions(pb.ListSessionsRequest(scope=pb.SESSION_SCOPE_ALL))).sessions


async def test_an_existing_session_is_unchanged_when_images_are_rejected(tmp_path: Path):
    house = House(tmp_path, [[{"text": "done"}], [{"text": "done"}]])
    async with stub_of(house) as stub:
        session_id = (await play(stub, house.prompt("first")))[0].session_id
        (file,) = house.sessions.rglob("*.jsonl")
        before = file.read_bytes()
        asked = look(house, png(2, 2))
        asked.session_id = session_id
        with pytest.raises(grpc.aio.AioRpcError, match="cannot read images"):
            await play(stub, asked)
        assert file.read_bytes() == before


@pytest.mark.parametrize(("name", "request_type"), [("Steer", pb.SteerRequest), ("FollowUp", pb.FollowUpRequest)])
async def test_a_running_model_without_images_rejects_them(tmp_path: Path, name: str, request_type: Any):
    house = House(tmp_path, [[{"call": {"name": "act", "arguments": {"text": "a"}}}], [{"text": "done"}]])
    house.act.gate = asyncio.Event()
    async with stub_of(house) as stub:
        running = asyncio.create_task(play(stub, house.prompt(session_id="s")))
        await house.act.started.wait()
        image = pb.Image(media_type="image/png", data=png(2, 2))
        with pytest.raises(grpc.aio.AioRpcError, match="cannot read images") as caught:
            await getattr(stub, name)(request_type(session_id="s", text="look", images=[image]))
        assert reason_of(caught.value) == "UNSUPPORTED_FEATURE"
        house.act.gate.set()
        assert (await running)[-1].agent_end.reason == pb.END_REASON_COMPLETED
