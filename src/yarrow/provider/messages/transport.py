"""Sends messages requests to one server and reads its answers."""

from collections.abc import AsyncGenerator

from yarrow.provider.base import ProviderEvent, StreamOptions
from yarrow.provider.body import Body, to_json
from yarrow.provider.http.client import HttpClient, Timeouts
from yarrow.provider.messages.decoder import MessagesDecoder
from yarrow.provider.timeouts import QUESTION_TIMEOUTS
from yarrow.provider.transport import Endpoint, Transport, read_stream_or_body

API_VERSION = "2023-06-01"
"""The version of the API in which a temperature can be set."""


class MessagesTransport:
    """One server, over an HTTP client that belongs to the caller."""

    def __init__(self, http: HttpClient, endpoint: Endpoint) -> None:
        self._backend = endpoint.backend
        key = {"x-api-key": endpoint.backend.secret} if endpoint.backend.secret else {}
        self._transport = Transport(http, endpoint, {"anthropic-version": API_VERSION} | key)

    def stream(self, body: Body, options: StreamOptions) -> AsyncGenerator[ProviderEvent]:
        """Send a body and yield its answer; ends with a stop or raises ProviderError."""
        request = self._transport.make_request("messages", to_json(body), idle=options.idle_timeout)
        decoder = MessagesDecoder(self._backend, chunk_size=options.chunk_size)
        return self._transport.stream(request, decoder, read_stream_or_body)

    async def get(self, path: str, timeouts: Timeouts = QUESTION_TIMEOUTS) -> object:
        """Return the decoded JSON at a path below the base; raises ProviderError."""
        return await self._transport.ask(path, timeouts=timeouts)
