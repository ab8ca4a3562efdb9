"""Asks an https server, that no resolver knows, through the proxy of a test."""

from base64 import b64encode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from byte_script_server import ByteServer, Step, serve

from yarrow.errors import ProviderError
from yarrow.provider.http.client import HttpClient, HttpRequest, Timeouts

USER, PASSWORD = "a user", "p@ss:w\xf6rd/#"
QUOTED = "a%20user:p%40ss:w%C3%B6rd%2F%23"
BASIC = b64encode(f"{USER}:{PASSWORD}".encode())
URL = "https://model.test:8443/v1"


@asynccontextmanager
async def behind(proxy: str, variable: str = "https_proxy") -> AsyncGenerator[HttpClient]:
    """A client that asks through this proxy."""
    client = HttpClient({variable: proxy})
    try:
        yield client
    finally:
        await client.close()


async def fetch(client: HttpClient, url: str = URL, connect: float = 10, body: bytes = b"") -> bytes:
    async with client.send(HttpRequest("POST", url, body=body, timeouts=Timeouts(connect=connect))) as response:
        return b"".join([piece async for piece in response])


async def failure(client: HttpClient, connect: float = 10) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await fetch(client, connect=connect)
    for secret in (PASSWORD, QUOTED, BASIC.decode(), "%40"):
        assert secret not in caught.value.message
    return caught.value


async def refused(*steps: Step, user: str = f"{QUOTED}@", connect: float = 10) -> tuple[ProviderError, ByteServer]:
    """Ask through a proxy that does this."""
    async with serve(steps) as proxy, behind(f"http://{user}127.0.0.1:{proxy.port}", "HTTPS_PROXY") as client:
        error = await failure(client, connect)
        assert f"the proxy 127.0.0.1:{proxy.port}" in error.message
        await proxy.visits[0].gone.wait()
        assert len(proxy.visits) == 1
    return error, proxy
