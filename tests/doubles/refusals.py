"""A server that refuses every model call, and the adapters that call it."""

import asyncio
import json
from typing import Any, NamedTuple

from doubles.loopback import Loopback
from yarrow.config.provider_adapter_table import ADAPTERS
from yarrow.config.settings import ProviderSettings, Settings
from yarrow.provider.base import Provider
from yarrow.provider.factory import ProviderContext, create_provider

KINDS = [kind for kind in ADAPTERS if kind not in ("local", "scripted")]
"""The adapters that send requests to a server."""


class Refused(NamedTuple):
    """A model call that was refused."""

    path: str
    headers: dict[str, str]
    body: Any


class RefusingServer(Loopback):
    """Answers a model call with the next refusal, the last one again and again; knows no other request."""

    def __init__(self, *refusals: tuple[int, Any]) -> None:
        """`refusals` are statuses with the JSON of their bodies."""
        super().__init__(self._respond)
        self.refusals = list(refusals)
        self.calls: list[Refused] = []

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, path, _ = first.split(" ", 2)
        headers = {name.lower(): text for name, _, text in (line.partition(": ") for line in lines) if name}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        status, told = 404, {"error": {"message": "not found"}}
        if method == "POST" and not path.endswith("/api/show"):
            self.calls.append(Refused(path, headers, json.loads(body)))
            status, told = self.refusals.pop(0) if len(self.refusals) > 1 else self.refusals[0]
        data = json.dumps(told).encode()
        writer.write(b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\n" % status)
        writer.write(b"content-length: %d\r\n\r\n%s" % (len(data), data))
        await writer.drain()
        return True


async def create(kind: str, server: RefusingServer, *, environment: dict[str, str], **more: Any) -> Provider:
    """Return a provider of one kind for the server, without a request to it."""
    settings = Settings(providers={"acme": ProviderSettings(type=kind, base_url=server.root, **more)})  # pyright: ignore[reportArgumentType] (`more` is untyped)
    return (await create_provider("acme", "m", ProviderContext(settings, environment))).provider
