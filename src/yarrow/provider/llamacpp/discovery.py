"""Finds a llama.cpp server that runs on this machine."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from yarrow.errors import ProviderError
from yarrow.provider.http.client import HttpClient, HttpRequest, Timeouts

DEFAULT_ROOTS = ("http://127.0.0.1:8080", "http://127.0.0.1:9931")
"""Where llama-server listens unless told otherwise: older builds, newer builds."""
PROBE_SECONDS = 0.25
"""Seconds in which a server on this machine answers a probe, or is taken for absent."""
_MAX_HEALTH_BYTES = 4096
"""Bytes of a health answer that are read; a llama.cpp server needs a few dozen."""


async def find_server(http: HttpClient, roots: Sequence[str] = DEFAULT_ROOTS) -> str:
    """Return the first of the roots at which a llama.cpp server answers, also one that still loads; else empty."""
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
    """Tell a llama.cpp server from whatever else listens on a popular port."""
    try:
        value: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    if not isinstance(value, dict):
        return False
    health = cast("dict[str, Any]", value)
    error = health.get("error")
    loads = isinstance(error, dict) and cast("dict[str, Any]", error).get("message") == "Loading model"
    return loads or health.get("status") == "ok"
