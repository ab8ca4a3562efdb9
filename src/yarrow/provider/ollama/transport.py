"""Sends chat requests to one Ollama server and reads its answers."""

from collections.abc import AsyncGenerator

import msgspec

from yarrow.provider.base import ProviderEvent, StreamOptions
from yarrow.provider.body import Body, to_json
from yarrow.provider.http.client import HttpClient
from yarrow.provider.ollama.decoder import OllamaDecoder
from yarrow.provider.transport import Endpoint, Transport, make_bearer_header, read_stream


class OllamaTransport:
    """One server, over an HTTP client that belongs to the caller."""

    def __init__(self, http: HttpClient, endpoint: Endpoint) -> None:
        self._backend = endpoint.backend
        self._transport = Transport(http, endpoint, make_bearer_header(endpoint.backend))

    def stream(self, body: Body, options: StreamOptions, *, window: int) -> AsyncGenerator[ProviderEvent]:
        """Send a body and yield its answer; ends with a stop or raises ProviderError. `window` is in tokens."""
        request = self._transport.make_request("api/chat", to_json(body), idle=options.idle_timeout)
        decoder = OllamaDecoder(self._backend, chunk_size=options.chunk_size, window=window)
        return self._transport.stream(request, decoder, read_stream)

    async def ask(self, path: str, question: Body | None = None) -> object:
        """Return the decoded JSON that answers a GET of a path, or a POST of a question; raises ProviderError."""
        return await self._transport.ask(path, b"" if question is None else msgspec.json.encode(question))
