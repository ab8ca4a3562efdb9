"""Facts about a llama.cpp server: whether one runs, its models and their windows."""

import asyncio
from collections.abc import Sequence
from urllib.parse import quote

import msgspec

from yarrow.errors import Code, ProviderError
from yarrow.provider.base import ModelEntry
from yarrow.provider.chat_model_filter import is_chat_model
from yarrow.provider.http.client import HttpClient, HttpRequest, Timeouts
from yarrow.provider.model_list import UNSUPPORTED_CODES, as_count, as_object, parse_models, parse_rows
from yarrow.provider.transport import Transport


async def get_slot_window(root: Transport, model: str) -> int:
    """Return the context of one slot in tokens, 0 if the server does not report it; `model` may be empty.

    The trained maximum is not a substitute: it says nothing about the memory reserved.
    """
    props = await _get_or_none(root, f"props?model={quote(model, safe='')}" if model else "props")
    if window := as_count(as_object(as_object(props).get("default_generation_settings")).get("n_ctx")):
        return window
    for slot in parse_rows(await _get_or_none(root, "slots")):
        if window := as_count(slot.get("n_ctx")):
            return window
    return next(
        (entry.context_window for entry in parse_models(await _get_or_none(root, "v1/models")) if entry.context_window),
        0,
    )


async def list_server_models(root: Transport) -> list[ModelEntry]:
    """Return the server's models; the window is known if there is only one, or if the list contains it."""
    listed = parse_models(await root.ask("v1/models"))
    if len(listed) == 1 and not listed[0].context_window:
        return [ModelEntry(listed[0].name, await get_slot_window(root, ""))]
    return listed


async def get_first_model(root: Transport) -> str:
    """Return the name of the first model that can chat; raises PROVIDER_SETUP if the server has none."""
    rows = parse_rows(await root.ask("v1/models"))
    names = [model.name for row in rows for model in parse_models([row]) if is_chat_model(row, model.name)]
    if not names:
        what = "no models that can chat" if rows else "no models"
        raise ProviderError(Code.PROVIDER_SETUP, f"the llama.cpp server lists {what}; select one with -m")
    return names[0]


async def _get_or_none(root: Transport, path: str) -> object:
    try:
        return await root.ask(path)
    except ProviderError as error:
        if error.code not in UNSUPPORTED_CODES:
            raise
        return None


DEFAULT_ROOTS = ("http://127.0.0.1:8080", "http://127.0.0.1:9931")
"""Default addresses of llama-server, in older and in newer builds."""
PROBE_SECONDS = 0.25
"""Timeout in seconds for probing a server on this machine."""
_MAX_HEALTH_BYTES = 4096
"""Maximum bytes read of a health response; a llama.cpp server needs a few dozen."""


async def find_server(http: HttpClient, roots: Sequence[str] = DEFAULT_ROOTS) -> str:
    """Return the first root with a llama.cpp server, even if it is still loading; empty if there is none."""
    found = await asyncio.gather(*(_is_server(http, root) for root in roots))
    return next((root for root, answers in zip(roots, found, strict=True) if answers), "")


async def _is_server(http: HttpClient, root: str) -> bool:
    limits = Timeouts(connect=PROBE_SECONDS, write=PROBE_SECONDS, first_byte=PROBE_SECONDS, idle=PROBE_SECONDS)
    try:
        async with (
            asyncio.timeout(PROBE_SECONDS),
            http.send(HttpRequest("GET", f"{root}/health", timeouts=limits)) as response,
        ):
            return _is_health(await response.read(_MAX_HEALTH_BYTES))
    except (TimeoutError, ProviderError):
        return False


def _is_health(body: bytes) -> bool:
    """Return whether this is a llama.cpp server, and not another server on a popular port."""
    try:
        value: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    health = as_object(value)
    return as_object(health.get("error")).get("message") == "Loading model" or health.get("status") == "ok"
