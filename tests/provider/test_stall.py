"""Time without content: heartbeats of any format do not count, each kind of content does."""

import asyncio
import json
from typing import Any

import pytest

from yarrow.config.settings import ProviderSettings
from yarrow.errors import Code, ProviderError
from yarrow.provider.backend_errors import Backend
from yarrow.provider.chat_completions.decoder import ChatDecoder
from yarrow.provider.messages.decoder import MessagesDecoder
from yarrow.provider.ollama.decoder import OllamaDecoder
from yarrow.provider.transport import StallTimer, make_timeouts, replace_idle

SPEAKER = Backend("acme")


def sse(value: Any) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


def chat(delta: Any) -> bytes:
    return sse({"choices": [{"index": 0, "delta": delta}]})


def block(index: int, start: Any, delta: Any) -> bytes:
    begun = {"type": "content_block_start", "index": index, "content_block": start}
    return sse(begun) + sse({"type": "content_block_delta", "index": index, "delta": delta})


def line(**message: Any) -> bytes:
    return json.dumps({"model": "m", "message": {"role": "assistant", **message}, "done": False}).encode() + b"\n"


CALL = {"index": 0, "id": "c", "function": {"name": "read", "arguments": '{"p'}}
CONTENT = [
    (ChatDecoder, chat({"content": "a"})),
    (ChatDecoder, chat({"reasoning_content": "a"})),
    (ChatDecoder, chat({"tool_calls": [CALL]})),
    (ChatDecoder, sse({"choices": [], "usage": {"prompt_tokens": 1}})),
    (MessagesDecoder, block(0, {"type": "text", "text": ""}, {"type": "text_delta", "text": "a"})),
    (
        MessagesDecoder,
        block(0, {"type": "tool_use", "id": "c", "name": "r"}, {"type": "input_json_delta", "partial_json": "{"}),
    ),
    (OllamaDecoder, line(content="a")),
    (OllamaDecoder, line(content="", thinking="a")),
    (OllamaDecoder, line(content="", tool_calls=[{"function": {"name": "read", "arguments": {}}}])),
]
HEARTBEATS = [
    (ChatDecoder, b": ping\n\n"),
    (ChatDecoder, b"data: {}\n\n"),
    (ChatDecoder, chat({})),
    (ChatDecoder, chat({"role": "assistant", "content": ""})),
    (MessagesDecoder, sse({"type": "ping"})),
    (MessagesDecoder, b": ping\n\n"),
    (OllamaDecoder, line(content="")),
]


@pytest.mark.parametrize(("decoder", "data"), CONTENT)
def test_content_of_each_kind_is_progress(decoder: Any, data: bytes) -> None:
    one = decoder(SPEAKER)
    for _ in range(2):
        before = one.progress
        one.feed(data)
        assert one.progress > before


@pytest.mark.parametrize(("decoder", "data"), HEARTBEATS)
def test_case_RA_12_heartbeats_are_not_progress(decoder: Any, data: bytes) -> None:
    one = decoder(SPEAKER)
    one.feed(data * 3)
    assert one.progress == 0


async def test_the_stall_timeout_counts_from_the_last_content(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    watch, endless = StallTimer(10.0, SPEAKER), StallTimer(None, SPEAKER)
    for now, progress in ((9.0, 0), (9.5, 1), (19.5, 1), (20.0, 2), (30.0, 2)):  # noqa: B007 (read by the clock)
        watch.check(progress)
        endless.check(0)
    now = 30.1
    with pytest.raises(ProviderError, match="stallTimeout") as caught:
        watch.check(2)
    assert (caught.value.code, caught.value.retryable) == (Code.STREAM_STALLED, True)
    endless.check(0)


@pytest.mark.parametrize(
    ("settings", "stall"),
    [
        (ProviderSettings(), 600.0),
        (ProviderSettings(idle_timeout=1), 5.0),
        (ProviderSettings(idle_timeout=0), None),
        (ProviderSettings(idle_timeout=1, stall_timeout=3), 3.0),
        (ProviderSettings(stall_timeout=0), None),
    ],
)
def test_the_stall_timeout_follows_the_idle_timeout_unless_set(settings: ProviderSettings, stall: float | None) -> None:
    timeouts = make_timeouts(settings, local=False)
    assert timeouts.stall == stall
    longer = replace_idle(timeouts, 1_000.0)
    assert longer.stall == (None if stall is None else 5_000.0)
