"""Images of a prompt are made to fit at the edge of the service."""

import io
import os
import sys
from pathlib import Path

import grpc
import pytest
from PIL import Image

from doubles.house import House, kinds, play, reason_of, stub_of
from yarrow.errors import InvalidArgument
from yarrow.service.prompt_input import fit_images
from yarrow.v1 import agent_pb2 as pb


def png(width: int, height: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), "red").save(buffer, "PNG")
    return buffer.getvalue()


async def test_an_image_within_the_limits_keeps_its_bytes_and_gets_the_type_of_its_content():
    (image,) = await fit_images([pb.Image(media_type="image/jpeg", data=png(3, 2))])
    assert image == pb.Image(media_type="image/png", data=png(3, 2))


async def test_case_T_12_a_prompt_image_over_the_limits_is_scaled():
    (image,) = await fit_images([pb.Image(media_type="image/png", data=png(8_400, 100))])
    assert Image.open(io.BytesIO(image.data)).size == (2_000, 24)


async def test_the_error_names_which_image_and_why(monkeypatch: pytest.MonkeyPatch):
    images = [pb.Image(media_type="image/png", data=png(*size)) for size in ((1, 1), (8_400, 100))]
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(InvalidArgument, match=r"images\[1\].*8400x100.*'\.\[images\]'"):
        await fit_images(images)


def request(house: House, data: bytes) -> pb.PromptRequest:
    asked = house.prompt("look")
    asked.images.add(media_type="image/png", data=data)
    return asked


async def test_a_model_without_images_rejects_them_before_recording(tmp_path: Path):
    house = House(tmp_path, [[{"text": "done"}]])
    async with stub_of(house) as stub:
        with pytest.raises(grpc.aio.AioRpcError, match="cannot read images") as caught:
            await play(stub, request(house, png(2, 2)))
        assert reason_of(caught.value) == "UNSUPPORTED_FEATURE"
        assert not [path for path in house.sessions.rglob("*.jsonl") if "look" in path.read_text()]


async def test_case_K_07_a_3_mb_image_in_the_first_prompt_causes_no_compaction(tmp_path: Path):
    house = House(tmp_path, {"info": {"hasImages": True, "contextWindow": 200_000}, "turns": [[{"text": "red"}]]})  # type: ignore[arg-type]
    data = png(2, 2) + os.urandom(3_000_000)
    async with stub_of(house) as stub:
        events = await play(stub, request(house, data))
        assert kinds(events)[-1] == "agent_end"
        assert not [kind for kind in kinds(events) if "compaction" in kind]
        sent = (await house.scripted()).requests[-1]
        assert [len(image.data) for message in sent.messages for image in message.images] == [(len(data) + 2) // 3 * 4]


async def test_case_T_12_an_invalid_prompt_image_is_an_invalid_argument(tmp_path: Path):
    house = House(tmp_path, [[{"text": "done"}]])
    async with stub_of(house) as stub:
        with pytest.raises(grpc.aio.AioRpcError, match=r"images\[0\]") as caught:
            await play(stub, request(house, b"GIF, it says"))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert not list(house.sessions.rglob("*.jsonl"))
